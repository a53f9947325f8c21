package inventory

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Protected reports whether deleting an object would delete more than objects of releases: data of users, all objects in a namespace, or
// all objects of a kind. Such objects are not deleted when a release drops them. Only a manifest can request their deletion. The reason
// continues a sentence like the reason of manifest.Irreplaceable.
//
// Every CustomResourceDefinition counts as protected here, because objects of its kind may exist at the time of deletion.
func Protected(id manifest.ID) (reason string, ok bool) {
	gk := schema.GroupKind{Group: id.Group, Kind: id.Kind}
	if gk == (schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}) {
		return "it is deleted only once no objects of its kind exist", true
	}
	return manifest.Irreplaceable(gk)
}
