package inclusion_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// FuzzExclude applies the inclusion rules to arbitrary annotations. The result must be deterministic, and an excluded manifest must have a
// reason.
//
//threat:inclusion-annotations
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
		for _, filter := range []inclusion.Filter{
			{},
			{ExcludeID: "id", FeatureSet: "TechPreviewNoUpgrade", Gates: sets.New("GateA"), MajorVersion: new(uint64(4))},
		} {
			reason, excluded := filter.Exclude(m)
			assert.Equal(t, excluded, reason != "")
			assert.False(t, strings.HasSuffix(reason, "."), "the reason ends with a full stop: %q", reason)
			again, _ := filter.Exclude(m)
			assert.Equal(t, reason, again)
		}
	})
}
