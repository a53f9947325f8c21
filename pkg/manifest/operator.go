package manifest

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// OperatorContainer returns the container of the operator in its Deployment: the one that is called like the Deployment,
// else the first. It is nil for anything else.
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

// OperatorImage returns the image of the operator in its Deployment, empty if there is none.
func OperatorImage(deployment map[string]any) string {
	image, _ := OperatorContainer(deployment)["image"].(string)
	return image
}
