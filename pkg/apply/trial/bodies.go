package trial

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// bodies returns the body of a new object under a generated name, unless the names of its kind depend on the content, and under its own name.
// They omit addresses and ports that the live Service holds, because the new one gets them only after the old one is deleted.
func bodies(gk schema.GroupKind, body map[string]any, live *unstructured.Unstructured) []map[string]any {
	own := maps.Clone(body)
	if gk == (schema.GroupKind{Kind: "Service"}) {
		releaseHeld(own, live)
	}
	if hasFixedName(gk) {
		return []map[string]any{own}
	}
	metadata, _ := body["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	metadata["generateName"] = live.GetName() + "-"
	delete(metadata, "name")
	generated := maps.Clone(own)
	generated["metadata"] = metadata
	return []map[string]any{generated, own}
}

// alone returns the body of an update that removes the values of other writers. It keeps metadata and status of the object that the apply
// would store.
func alone(body, merged map[string]any) map[string]any {
	update := maps.Clone(body)
	for _, kept := range []string{"metadata", "status"} {
		if value, ok := merged[kept]; ok {
			update[kept] = value
		}
	}
	return update
}

// hasFixedName reports whether the names of a kind depend on its content.
func hasFixedName(gk schema.GroupKind) bool {
	return gk == schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"} ||
		gk == schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}
}

// releaseHeld replaces the spec of a Service with a copy without the addresses and ports of the live one.
func releaseHeld(service map[string]any, live *unstructured.Unstructured) {
	spec, ok := service["spec"].(map[string]any)
	held, _ := live.Object["spec"].(map[string]any)
	if !ok || held == nil {
		return
	}
	spec = maps.Clone(spec)
	service["spec"] = spec
	if spec["clusterIP"] != "None" && reflect.DeepEqual(spec["clusterIP"], held["clusterIP"]) {
		delete(spec, "clusterIP")
		delete(spec, "clusterIPs")
	}
	if fmt.Sprint(spec["healthCheckNodePort"]) == fmt.Sprint(held["healthCheckNodePort"]) {
		delete(spec, "healthCheckNodePort")
	}
	ports, _ := spec["ports"].([]any)
	heldPorts, _ := held["ports"].([]any)
	ports = slices.Clone(ports)
	for i, item := range ports {
		port, _ := item.(map[string]any)
		if port["nodePort"] != nil && slices.ContainsFunc(heldPorts, func(other any) bool {
			old, _ := other.(map[string]any)
			return fmt.Sprint(old["nodePort"]) == fmt.Sprint(port["nodePort"])
		}) {
			port = maps.Clone(port)
			delete(port, "nodePort")
			ports[i] = port
		}
	}
	if len(ports) > 0 {
		spec["ports"] = ports
	}
}
