package release_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
)

func TestKubernetesRangeIncludesItsVersions(t *testing.T) {
	for _, tt := range []struct {
		name    string
		text    string
		in, out []string
	}{
		{
			name: "it includes the versions between both ends", text: ">=1.30.0 <1.38.0",
			in: []string{"v1.30.0", "1.37.9", "v1.36.3"}, out: []string{"v1.29.14", "v1.38.0", "v2.0.0"},
		},
		{name: "it combines several ranges", text: ">=1.30.0 <1.31.0 || 1.33.x", in: []string{"v1.30.2", "v1.33.0"}, out: []string{"v1.31.0", "v1.34.0"}},
		{name: "it treats a vendor's build as its base version", text: ">=1.31.2", in: []string{"v1.31.2-eks-a737599", "v1.31.2+k3s1", "v1.31.2-gke.100"}},
		{name: "it treats a pre-release as its final version", text: "<1.38.0", out: []string{"v1.38.0-alpha.1"}},
		{name: "it ignores surrounding spaces", text: " >=1.30.0 ", in: []string{"v1.30.0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := release.ParseKubernetesRange(tt.text)
			require.NoError(t, err)
			for want, versions := range map[bool][]string{true: tt.in, false: tt.out} {
				for _, v := range versions {
					got, err := r.Contains(v)
					require.NoError(t, err)
					assert.Equal(t, want, got, v)
				}
			}
		})
	}
}

func TestInvalidKubernetesRangesAreRejected(t *testing.T) {
	for _, text := range []string{"", " ", "1.30 or so", ">=banana", "||", ">=1.30.0 ||", "true", strings.Repeat(">=1.0.0 ", 40)} {
		_, err := release.ParseKubernetesRange(text)
		require.ErrorContains(t, err, `">=1.30.0 <1.38.0"`, "the error for %q shows an example", text)
	}
	r, err := release.ParseKubernetesRange(">=1.30.0")
	require.NoError(t, err)
	_, err = r.Contains("unknown")
	assert.EqualError(t, err, `"unknown" is not a Kubernetes version`)
}

//threat:versions-ranges-versions
func FuzzParseKubernetesRange(f *testing.F) {
	for _, seed := range [][2]string{
		{">=1.30.0 <1.38.0", "v1.36.3"},
		{">=1.30.0 <1.31.0 || 1.33.x", "v1.31.2-eks-a737599"},
		{"1.x", "1.0"},
		{"!=1.2.3||<x", ""},
		{"x.x.x", "v"},
		{">=99999999999999999999.0.0", "1.2.3"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, text, version string) {
		r, err := release.ParseKubernetesRange(text)
		if err != nil {
			assert.Less(t, len(err.Error()), 1500)
			return
		}
		first, err := r.Contains(version)
		if err == nil {
			second, err := r.Contains(version)
			require.NoError(t, err)
			assert.Equal(t, first, second)
		}
	})
}
