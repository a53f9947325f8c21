package manifest_test

import (
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// testdata/fuzz contains inputs that found bugs. Their file names describe them.

// FuzzParseLimits parses files of any name under small limits. The result must respect the limits. Every error must name the file and stay
// readable, however large the file is.
//
//threat:huge-documents-many
//threat:manifests-under-limits
func FuzzParseLimits(f *testing.F) {
	f.Add("0000_50_dns_x.yaml", []byte(object("a")+"---\n"+object("b")), uint8(3), uint8(1), uint16(100))
	f.Add("a/../b.yaml", []byte(object("a", "x: [[[[1]]]]")), uint8(3), uint8(9), uint16(900))
	f.Add("\xff.json", []byte(`{"kind":"List","items":[{"kind":"List","items":[]}]}`), uint8(2), uint8(2), uint16(50))
	f.Fuzz(func(t *testing.T, name string, data []byte, depth, documents uint8, size uint16) {
		limits := manifest.Limits{
			FileBytes: 1 << 15, Depth: int(depth) + 1, Documents: int(documents) + 1, ObjectBytes: int(size) + 1,
		}
		all, err := manifest.Parse(name, data, limits)
		if err != nil {
			require.Empty(t, all, "Parse returned manifests together with an error")
			checkErrors(t, err, path.Base(name))
			return
		}
		require.LessOrEqual(t, len(all), limits.Documents)
		seen := sets.New[manifest.ID]()
		for _, m := range all {
			require.LessOrEqual(t, len(m.Raw), limits.ObjectBytes)
			require.LessOrEqual(t, nesting(m.Object.Object), limits.Depth)
			require.Equal(t, path.Base(name), m.File)
			require.Positive(t, m.Document)
			require.False(t, seen.Has(m.ID()), "%s occurs twice", m.ID())
			seen.Insert(m.ID())
		}
	})
}

// checkErrors checks each of the joined errors.
func checkErrors(t *testing.T, err error, file string) {
	t.Helper()
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for i, err := range list {
		var one *manifest.Error
		require.ErrorAs(t, err, &one)
		require.Equal(t, file, one.File)
		if i > 0 {
			require.Less(t, list[i-1].Error(), err.Error(), "errors are sorted and unique")
		}
	}
}

// nesting returns the depth of nested maps and lists.
func nesting(value any) int {
	deepest := 0
	switch v := value.(type) {
	case map[string]any:
		for _, child := range v {
			deepest = max(deepest, nesting(child))
		}
	case []any:
		for _, child := range v {
			deepest = max(deepest, nesting(child))
		}
	default:
		return 0
	}
	return deepest + 1
}
