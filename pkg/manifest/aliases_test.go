package manifest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/test/fixture"
)

func TestCheckAliases(t *testing.T) {
	for _, tt := range []struct{ name, data, want string }{
		{"lets texts without aliases pass", "a: b\n", ""},
		{"lets honest aliases pass", "a: &a {b: c}\nd: *a\ne: [*a, *a]\n", ""},
		{"lets pass what only looks like aliases", "a: 'x & y * z'\n", ""},
		{"leaves mistakes to the reader", "a: &a [\nb: *c\n", ""},
		{"refuses what becomes large", fixture.HostileYAML()["aliases that repeat a large text"], "once aliases are expanded"},
		{"refuses keys that become large", fixture.HostileYAML()["aliases that repeat a large key"], "once aliases are expanded"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			fixture.Bounded(t, func() {
				err := manifest.CheckAliases([]byte(tt.data))
				if tt.want == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, tt.want)
			})
		})
	}
}

// FuzzCheckAliases checks that what passes does not become much larger than a file may be when the library reads it.
func FuzzCheckAliases(f *testing.F) {
	for _, seed := range []string{"a: &a b\nc: [*a, *a]\n", "&a {b: *a}", "a: &a {<<: *b}", "? &a b\n: *a\n", "x: &x [1]\ny: &y [*x, *x]\nz: [*y, *y]\n"} {
		f.Add([]byte(seed), uint16(0))
	}
	f.Add([]byte("a: &a X\nb: [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n"), uint16(60_000))
	f.Fuzz(func(t *testing.T, data []byte, grow uint16) {
		data = []byte(strings.Replace(string(data), "X", strings.Repeat("x", int(grow)), 1))
		if manifest.CheckAliases(data) != nil {
			return
		}
		text, err := yaml.YAMLToJSON(data)
		if err == nil {
			// JSON writes a byte as up to six.
			assert.LessOrEqual(t, len(text), 6*(len(data)+8<<20))
		}
	})
}
