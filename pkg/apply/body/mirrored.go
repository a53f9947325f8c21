package body

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// mirrorServiceAccount sets both fields for a pod's service account if the manifest sets one of them. Otherwise, the server copies the
// value to the other field, which then has no owner, and copies it back when a release drops the first field. mirrorServiceAccount does not
// modify its arguments.
func mirrorServiceAccount(u *unstructured.Unstructured, object map[string]any) map[string]any {
	path := manifest.PodSpecPath(u)
	if path == nil {
		return object
	}
	return inject.Replace(object, path, func(value any) any {
		spec, ok := value.(map[string]any)
		if !ok {
			return value
		}
		const current, deprecated = "serviceAccountName", "serviceAccount"
		name, _ := spec[current].(string)
		if name == "" {
			name, _ = spec[deprecated].(string)
		}
		if name == "" {
			return value
		}
		spec = maps.Clone(spec)
		spec[current], spec[deprecated] = name, name
		return spec
	})
}
