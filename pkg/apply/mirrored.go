package apply

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// bothNames has a pod's service account stand in both fields that name it, where the manifest has one of them. The server
// copies it to the other one, which would belong to nobody then, and copies it back from there when a release drops
// the first. Nothing is changed in place.
func bothNames(u *unstructured.Unstructured, object map[string]any) map[string]any {
	path := podTemplatePath(u)
	if path == nil {
		return object
	}
	return changed(object, path, func(value any) any {
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
