package input

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestComponentVersionsAreParsed(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     map[string]string
		wantErr  string
	}{
		{name: "reads an empty label", in: "", want: map[string]string{}},
		{name: "reads several versions without build metadata", in: "kubernetes=1.36.3, machine-os=9.8.1+build.5", want: map[string]string{"kubernetes": "1.36.3", "machine-os": "9.8.1"}},
		{name: "rejects a pair without a value", in: "kubernetes", wantErr: "is not key=version"},
		{name: "rejects a short key", in: "k=1.0.0", wantErr: "is not key=version"},
		{name: "rejects capital letters", in: "Kube=1.0.0", wantErr: "is not key=version"},
		{name: "rejects an invalid version", in: "kubernetes=v1.36", wantErr: `component version "kubernetes=v1.36"`},
		{name: "rejects a duplicate key", in: "aa=1.0.0,aa=1.0.0", wantErr: "duplicate"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			got, err := ParseComponentVersions(tt.in)
			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

//threat:component-versions-display
func FuzzParseComponentVersions(f *testing.F) {
	for _, seed := range []string{"", "a=1", "kubernetes=1.2.3", "aa=1.0.0,bb=2.0.0-rc.1+x", "=,="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		versions, err := ParseComponentVersions(text)
		if err != nil {
			return
		}
		again, err := ParseComponentVersions(FormatPairs(versions))
		require.NoError(t, err)
		assert.Equal(t, versions, again)
	})
}

func TestDisplayNamesAreParsed(t *testing.T) {
	got, err := ParseDisplayNames("machine-os=Red Hat Enterprise Linux CoreOS (9.8), kernel=Linux: 6.1-rc")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"machine-os": "Red Hat Enterprise Linux CoreOS (9.8)", "kernel": "Linux: 6.1-rc"}, got)
	for _, bad := range []string{"kernel", "kernel=", "k=x", "kernel=a;b", "kernel=a,kernel=b"} {
		_, err := ParseDisplayNames(bad)
		assert.Error(t, err, bad)
	}
}

//threat:component-versions-display
func FuzzParseDisplayNames(f *testing.F) {
	for _, seed := range []string{"", "kernel=Linux", "aa=b, cc=d e", "=,=", "machine-os=Red Hat (x.y): z"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		names, err := ParseDisplayNames(text)
		if err != nil {
			return
		}
		again, err := ParseDisplayNames(FormatPairs(names))
		require.NoError(t, err)
		assert.Equal(t, names, again)
	})
}
