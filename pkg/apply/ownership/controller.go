package ownership

import (
	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

func isClusterVersion(r *metav1.OwnerReference) bool {
	kind := schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
	return kind.Group == configv1.GroupName && kind.Kind == "ClusterVersion"
}
