package input

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMappingFilesAreParsed(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     map[string]string
		wantErr  []string
	}{
		{name: "reads lines, blank lines and comments", in: "# a\n\n dns=r/dns@x \r\n#ntp=y\nntp = r/ntp:v1", want: map[string]string{"dns": "r/dns@x", "ntp": "r/ntp:v1"}},
		{name: "reads two components with the same image", in: "a=r/x\nb=r/x", want: map[string]string{"a": "r/x", "b": "r/x"}},
		{name: "reads an empty file", in: "", want: map[string]string{}},
		{name: "rejects a duplicate component and reports both lines", in: "a=r/x\n\na=r/x", wantErr: []string{`line 3: duplicate component "a", first in line 1`}},
		{name: "reports all errors", in: "dns\n=x\nA=b\na=b c", wantErr: []string{`line 1: "dns" is not COMPONENT=PULLSPEC`, `line 2: "=x" is not`, `line 3: component "A"`, `line 4: "a=b c" is not`}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			got, err := ParseMapping([]byte(tt.in))
			for _, want := range tt.wantErr {
				require.ErrorContains(t, err, want)
			}
			if tt.wantErr == nil {
				require.NoError(t, err)
				assert.Equal(t, tt.want, got)
			}
		})
	}
}

//threat:mapping-files
func FuzzParseMapping(f *testing.F) {
	for _, seed := range []string{"", "a=b", "# x\na=b\r\nc = d", "a=b\na=c", "=\n\n==", "a=b=c"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		mapping, err := ParseMapping(text)
		if err != nil {
			return
		}
		var again strings.Builder
		for component, pullspec := range mapping {
			require.NoError(t, CheckName(component))
			again.WriteString(component + "=" + pullspec + "\n")
		}
		got, err := ParseMapping([]byte(again.String()))
		require.NoError(t, err)
		assert.Equal(t, mapping, got)
	})
}
