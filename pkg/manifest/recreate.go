package manifest

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/api"
)

// RecreateValue is the value of api.OnImmutableAnnotation that allows deleting and recreating an object.
const RecreateValue = "recreate"

// HoldsData reports whether objects of a kind hold data.
func HoldsData(gk schema.GroupKind) bool {
	switch gk {
	case schema.GroupKind{Kind: "PersistentVolume"}, schema.GroupKind{Kind: "PersistentVolumeClaim"},
		schema.GroupKind{Group: "cdi.kubevirt.io", Kind: "DataVolume"}:
		return true
	}
	return false
}

// Irreplaceable reports whether deleting an object of a kind also deletes content that no manifest can restore: data, everything in a
// namespace, or the platform itself. The reason continues a sentence that starts with the object's name, such as "holds data".
func Irreplaceable(gk schema.GroupKind) (reason string, ok bool) {
	switch {
	case HoldsData(gk):
		return "holds data", true
	case gk == schema.GroupKind{Kind: "Namespace"}:
		return "its content would be deleted with it", true
	case gk == schema.GroupKind{Group: "config.openshift.io", Kind: "ClusterVersion"}:
		return "owns all objects of the release", true
	}
	return "", false
}

// NeverRecreated reports whether objects of this kind must not be deleted and recreated, even if the manifest allows it. Deleting one would
// lose its content or all objects of a kind.
func (m *Manifest) NeverRecreated() bool {
	_, irreplaceable := Irreplaceable(m.GVK().GroupKind())
	return irreplaceable || m.Is("apiextensions.k8s.io", "CustomResourceDefinition")
}

// Recreated reports whether the manifest allows deleting and recreating its object when it cannot be changed.
func (m *Manifest) Recreated() bool {
	return strings.EqualFold(m.Annotation(api.OnImmutableAnnotation), RecreateValue) && !m.NeverRecreated()
}
