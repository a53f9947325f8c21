package inventory

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Protected reports whether an object is of a kind whose deletion takes more with it than a release brought: data of
// users, all that a namespace holds, all objects of a kind. No such object is deleted because a release names it no
// more; a manifest has to ask for it. The reason reads on after the object's name, such as "holds data".
//
// A CustomResourceDefinition counts as protected here. Whether objects of its kind are left is known only at the moment
// of deletion.
func Protected(id manifest.ID) (reason string, ok bool) {
	switch (schema.GroupKind{Group: id.Group, Kind: id.Kind}) {
	case schema.GroupKind{Kind: "PersistentVolume"},
		schema.GroupKind{Kind: "PersistentVolumeClaim"},
		schema.GroupKind{Group: "cdi.kubevirt.io", Kind: "DataVolume"}:
		return "holds data", true
	case schema.GroupKind{Kind: "Namespace"}:
		return "all that is in it would go with it", true
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		return "all objects of its kind would go with it", true
	case schema.GroupKind{Group: "config.openshift.io", Kind: "ClusterVersion"}:
		return "owns everything that releases bring", true
	}
	return "", false
}
