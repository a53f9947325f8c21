package manifest

import (
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

// DefinesClusterScoped returns the kind that a CustomResourceDefinition defines. ok is true only if the kind is cluster-scoped.
func (m *Manifest) DefinesClusterScoped() (kind schema.GroupKind, ok bool) {
	kind, ok = m.Defines()
	scope, _, _ := unstructured.NestedString(m.Object.Object, "spec", "scope")
	return kind, ok && scope == "Cluster"
}
