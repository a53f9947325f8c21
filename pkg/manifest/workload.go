package manifest

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// PodSpecPath returns the path of an object's pod spec, or nil if it has none.
func PodSpecPath(u *unstructured.Unstructured) []string {
	gvk := u.GroupVersionKind()
	switch gvk.Group + "/" + gvk.Kind {
	case "apps/Deployment", "apps/DaemonSet", "apps/StatefulSet", "apps/ReplicaSet", "batch/Job":
		return []string{"spec", "template", "spec"}
	case "batch/CronJob":
		return []string{"spec", "jobTemplate", "spec", "template", "spec"}
	}
	return nil
}
