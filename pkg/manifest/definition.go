package manifest

import (
	"iter"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Defines returns the kind that a CustomResourceDefinition defines. ok is false for other manifests. A tombstone and an incomplete definition
// may lack the kind or its group.
func (m *Manifest) Defines() (kind schema.GroupKind, ok bool) {
	if !m.Is("apiextensions.k8s.io", "CustomResourceDefinition") {
		return schema.GroupKind{}, false
	}
	kind.Group, _, _ = unstructured.NestedString(m.Object.Object, "spec", "group")
	kind.Kind, _, _ = unstructured.NestedString(m.Object.Object, "spec", "names", "kind")
	return kind, true
}

// DefinedVersion is an entry in spec.versions of a CustomResourceDefinition.
type DefinedVersion struct {
	Name            string
	Served, Storage bool
	// Fields is the whole entry.
	Fields map[string]any
}

// DefinedVersions returns the versions of a CustomResourceDefinition in their order. It skips entries that are not objects.
func DefinedVersions(crd map[string]any) iter.Seq[DefinedVersion] {
	return func(yield func(DefinedVersion) bool) {
		spec, _ := crd["spec"].(map[string]any)
		versions, _ := spec["versions"].([]any)
		for _, entry := range versions {
			fields, ok := entry.(map[string]any)
			if !ok {
				continue
			}
			name, _ := fields["name"].(string)
			if !yield(DefinedVersion{name, fields["served"] == true, fields["storage"] == true, fields}) {
				return
			}
		}
	}
}

// Schema returns the version's schema; nil if it has none.
func (v DefinedVersion) Schema() map[string]any {
	schema, _ := v.Fields["schema"].(map[string]any)
	root, _ := schema["openAPIV3Schema"].(map[string]any)
	return root
}
