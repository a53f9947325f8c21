package manifest

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/api"
)

// RecreateValue is the value of api.OnImmutableAnnotation that allows to delete an object and to create it again.
const RecreateValue = "recreate"

// HoldsMore reports whether the deletion of an object of a kind takes along what no manifest can bring back: data,
// everything in a namespace, the platform.
func HoldsMore(gk schema.GroupKind) bool {
	switch gk {
	case schema.GroupKind{Kind: "Namespace"},
		schema.GroupKind{Kind: "PersistentVolume"},
		schema.GroupKind{Kind: "PersistentVolumeClaim"},
		schema.GroupKind{Group: "cdi.kubevirt.io", Kind: "DataVolume"},
		schema.GroupKind{Group: "config.openshift.io", Kind: "ClusterVersion"}:
		return true
	}
	return false
}

// NeverRecreated reports whether the object is of a kind that is never deleted to be created again, whatever its manifest
// says: one that holds more, or all objects of a kind.
func (m *Manifest) NeverRecreated() bool {
	return HoldsMore(m.GVK().GroupKind()) || m.Is("apiextensions.k8s.io", "CustomResourceDefinition")
}

// Recreated reports whether the manifest allows to delete its object and to create it again where it cannot be changed.
func (m *Manifest) Recreated() bool {
	return strings.EqualFold(m.annotation(api.OnImmutableAnnotation), RecreateValue) && !m.NeverRecreated()
}
