package manifest_test

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// The corpora under testdata/fuzz hold what files have been broken with: see the names of the files there.

// FuzzParseLimits parses files of any name under small limits: what comes out must keep to them, and every error must
// name the file and stay readable, however large the file was.
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
			require.Empty(t, all, "a file is taken as a whole or not at all")
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
			require.False(t, seen.Has(m.ID()), "%s is there twice", m.ID())
			seen.Insert(m.ID())
		}
	})
}

// checkErrors takes joined errors apart.
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
			require.Less(t, list[i-1].Error(), err.Error(), "errors are sorted, each is there once")
		}
	}
}

// nesting is how deep maps and lists lie in each other.
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

// FuzzExclude asks the rules of inclusion about any annotation: they must answer, the same each time, and a manifest
// that is left out must be told why.
func FuzzExclude(f *testing.F) {
	for _, annotation := range []string{
		api.FeatureSetAnnotation, api.FeatureGateAnnotation, api.MajorVersionAnnotation, api.CapabilityAnnotation, api.ExcludePrefix + "id",
	} {
		for _, value := range []string{"", "true", ",", "-", "--", "4,-4", "-18446744073709551616", "Default,", "A+B", "+", " GateA , -GateB", "\x00", "４"} {
			f.Add(annotation, value)
		}
	}
	f.Fuzz(func(t *testing.T, annotation, value string) {
		m := &manifest.Manifest{Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{
				"name": "a", "annotations": map[string]any{api.IncludePrefix + api.DefaultProfile: "true", annotation: value},
			},
		}}}
		for _, filter := range []manifest.Filter{
			{},
			{ExcludeID: "id", FeatureSet: "TechPreviewNoUpgrade", Gates: sets.New("GateA"), MajorVersion: 4},
		} {
			reason, excluded := filter.Exclude(m)
			assert.Equal(t, excluded, reason != "")
			assert.False(t, strings.HasSuffix(reason, "."), "a reason is a part of a sentence: %q", reason)
			again, _ := filter.Exclude(m)
			assert.Equal(t, reason, again)
		}
	})
}
