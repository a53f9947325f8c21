package ownership

import (
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/api"
)

// OtherController returns the owner reference of the object's controller, or nil if it has none or its controller is a ClusterVersion. An
// object can have only one controller (Kubernetes API reference, OwnerReference).
func OtherController(references []metav1.OwnerReference) *metav1.OwnerReference {
	for i := range references {
		r := &references[i]
		if r.Controller != nil && *r.Controller && !IsClusterVersion(r) {
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

// CreateOnlyReason is the reason not to delete a create-only object of an earlier release.
const CreateOnlyReason = "it is create-only, so it belongs to other clients"

// KeepsOrphan returns the reason not to delete an object of an earlier release: an orphan has the recorded UID if there is one, our owner's
// label and fields of ours, and no foreign controller. Create-only objects belong to other clients after their creation, which was an apply
// of ours if their kind was new. The reason is empty if the object may be deleted. It is temporary if it may end without an administrator.
func KeepsOrphan(m *metav1.PartialObjectMetadata, owner string, recorded types.UID) (reason string, temporary bool) {
	switch {
	case recorded != "" && m.UID != recorded:
		return "it is a newer object with the same name", false
	case owner == "" || m.Labels[api.OwnedByLabel] != owner:
		return "it does not have the version operator's label", false
	case strings.EqualFold(m.Annotations[api.CreateOnlyAnnotation], "true"):
		return CreateOnlyReason, false
	case !Applied(m.ManagedFields):
		return "it has no fields of the version operator", false
	}
	reason = Controlled(m)
	return reason, reason != ""
}

// namesOwner reports whether our own apply sets the reference to the owner with the given UID. Some manifests contain such a reference.
func namesOwner(entries []metav1.ManagedFieldsEntry, uid types.UID) bool {
	own, _ := Split(entries)
	return own.Has(fieldpath.MakePathOrDie("metadata", "ownerReferences", fieldpath.KeyByFields("uid", string(uid))))
}

// IsClusterVersion reports whether an owner reference names a ClusterVersion.
func IsClusterVersion(r *metav1.OwnerReference) bool {
	kind := schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
	return kind.Group == configv1.GroupName && kind.Kind == "ClusterVersion"
}
