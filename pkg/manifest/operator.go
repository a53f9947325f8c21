package manifest

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
)

// IsOperatorDeployment reports whether an object in a release is the operator's own Deployment: by convention, the one with its name in its
// default namespace.
func IsOperatorDeployment(u *unstructured.Unstructured) bool {
	gvk := u.GroupVersionKind()
	return gvk.Group == "apps" && gvk.Kind == "Deployment" && u.GetName() == api.OperatorDeployment && u.GetNamespace() == api.OperatorNamespace
}

// OperatorContainer returns the operator's container in its Deployment: the container with the Deployment's name, or else the first one. It
// returns nil if there are no containers.
func OperatorContainer(deployment map[string]any) map[string]any {
	name, _, _ := unstructured.NestedString(deployment, "metadata", "name")
	list, _, _ := unstructured.NestedFieldNoCopy(deployment, "spec", "template", "spec", "containers")
	containers, _ := list.([]any)
	var first map[string]any
	for i, item := range containers {
		container, _ := item.(map[string]any)
		if container["name"] == name {
			return container
		}
		if i == 0 {
			first = container
		}
	}
	return first
}

// OperatorImage returns the image of the operator in its Deployment, or "" if there is none.
func OperatorImage(deployment map[string]any) string {
	image, _ := OperatorContainer(deployment)["image"].(string)
	return image
}
