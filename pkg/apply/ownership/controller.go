package ownership

import (
	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// OtherController returns the owner reference of the object's controller, or nil if it has none or its controller is a ClusterVersion. An
// object can have only one controller (Kubernetes API reference, OwnerReference).
func OtherController(references []metav1.OwnerReference) *metav1.OwnerReference {
	for i := range references {
		r := &references[i]
		if r.Controller != nil && *r.Controller && !isClusterVersion(r) {
			return r
		}
	}
	return nil
}

// ForeignController returns the controller of an object that a release has only written, or nil. The object may belong to that controller.
func ForeignController(m *metav1.PartialObjectMetadata) *metav1.OwnerReference {
	controller := OtherController(m.OwnerReferences)
	if controller != nil && namesOwner(m.ManagedFields, controller.UID) {
		return nil // the release itself names the controller
	}
	return controller
}

// Controlled names the ForeignController of an object, for people; empty if there is none.
func Controlled(m *metav1.PartialObjectMetadata) string {
	if c := ForeignController(m); c != nil {
		return c.Kind + " " + c.Name + " is its controller"
	}
	return ""
}

// namesOwner reports whether our own apply sets the reference to the owner with the given UID. Some manifests contain such a reference.
func namesOwner(entries []metav1.ManagedFieldsEntry, uid types.UID) bool {
	own, _ := Split(entries)
	return own.Has(fieldpath.MakePathOrDie("metadata", "ownerReferences", fieldpath.KeyByFields("uid", string(uid))))
}

func isClusterVersion(r *metav1.OwnerReference) bool {
	kind := schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
	return kind.Group == configv1.GroupName && kind.Kind == "ClusterVersion"
}
