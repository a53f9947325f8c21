package aliases_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/internal/aliases"
	"github.com/cluster-version/cvo/test/fixture"
)

//threat:yaml-alias-bombs
func TestExpandingAliasesAreRejected(t *testing.T) {
	for _, tt := range []struct{ name, data, want string }{
		{"accepts texts without aliases", "a: b\n", ""},
		{"accepts small aliases", "a: &a {b: c}\nd: *a\ne: [*a, *a]\n", ""},
		{"accepts text that only looks like an alias", "a: 'x & y * z'\n", ""},
		{"leaves errors to the parser", "a: &a [\nb: *c\n", ""},
		{"rejects documents that expand to a large size", fixture.HostileYAML()["aliases that repeat a large text"], "once aliases are expanded"},
		{"rejects keys that expand to a large size", fixture.HostileYAML()["aliases that repeat a large key"], "once aliases are expanded"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			fixture.Bounded(t, func() {
				err := aliases.Check([]byte(tt.data))
				if tt.want == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, tt.want)
			})
		})
	}
}

// FuzzCheck checks that no accepted document expands to much more than the limit.
//
//threat:manifests-under-limits
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{"a: &a b\nc: [*a, *a]\n", "&a {b: *a}", "a: &a {<<: *b}", "? &a b\n: *a\n", "x: &x [1]\ny: &y [*x, *x]\nz: [*y, *y]\n"} {
		f.Add([]byte(seed), uint16(0))
	}
	f.Add([]byte("a: &a X\nb: [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n"), uint16(60_000))
	f.Fuzz(func(t *testing.T, data []byte, grow uint16) {
		data = []byte(strings.Replace(string(data), "X", strings.Repeat("x", int(grow)), 1))
		if aliases.Check(data) != nil {
			return
		}
		text, err := yaml.YAMLToJSON(data)
		if err == nil {
			// JSON encodes a byte as up to six.
			assert.LessOrEqual(t, len(text), 6*(len(data)+8<<20))
		}
	})
}
