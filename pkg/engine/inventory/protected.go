package inventory

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Protected reports whether deleting an object would delete more than objects of releases: data of users, all objects in a namespace, or
// all objects of a kind. Only a manifest can request the deletion of such an object. The exception is a CustomResourceDefinition, which can be
// pruned once no objects of its kind exist. The reason continues a sentence like the reason of manifest.Irreplaceable.
func Protected(id manifest.ID) (reason string, ok bool) {
	gk := schema.GroupKind{Group: id.Group, Kind: id.Kind}
	if gk == (schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}) {
		return "kept while objects of its kind exist", true
	}
	return manifest.Irreplaceable(gk)
}
