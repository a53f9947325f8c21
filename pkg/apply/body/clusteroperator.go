package body

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// IsClusterOperator reports whether a manifest is a ClusterOperator. Its status is not sent with it.
func IsClusterOperator(m *manifest.Manifest) bool {
	return m.Is("config.openshift.io", "ClusterOperator")
}

// RelatedObjects returns the related objects of a ClusterOperator, with all strings that the CRD requires. Real manifests omit empty ones (for all
// objects of a resource, or the core group), but typed clients send them.
func RelatedObjects(m *manifest.Manifest) []any {
	list, _, _ := unstructured.NestedFieldNoCopy(m.Object.Object, "status", "relatedObjects")
	entries, _ := list.([]any)
	related := make([]any, 0, len(entries))
	for _, entry := range entries {
		object, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		object = maps.Clone(object)
		for _, required := range []string{"group", "resource", "name"} {
			if object[required] == nil {
				object[required] = ""
			}
		}
		related = append(related, object)
	}
	return related
}
