package apply

import (
	"maps"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// body returns what is sent for a manifest: a copy with our label and owner reference (if there is an owner yet), without what only the server
// or another writer may set, and with the fields that the object's schema requires but its manifest leaves out.
func (a *Applier) body(m *manifest.Manifest, namespaced bool) map[string]any {
	object := maps.Clone(m.Object.Object)
	delete(object, "status")
	metadata, _ := object["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	for _, field := range []string{
		"creationTimestamp", "deletionTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid",
	} {
		delete(metadata, field)
	}
	if !namespaced {
		delete(metadata, "namespace")
	}
	object["metadata"] = metadata
	complete(m, object)
	if a.owner.Name == "" {
		return object
	}
	labels, _ := metadata["labels"].(map[string]any)
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]any{}
	}
	labels[api.OwnedByLabel] = a.owner.Name
	metadata["labels"] = labels
	if owners := a.ownerReferences(m); owners != nil {
		metadata["ownerReferences"] = owners
	}
	return object
}

// ownerReferences follows OpenShift's operator: an owner that the manifest names itself stands, unless it is a
// ClusterVersion, whose UID no manifest can know; create-only objects are owned without being controlled.
func (a *Applier) ownerReferences(m *manifest.Manifest) []any {
	for _, owner := range m.Object.GetOwnerReferences() {
		if owner.Kind != "ClusterVersion" {
			return nil
		}
	}
	owner := map[string]any{
		"apiVersion": configv1.GroupVersion.String(),
		"kind":       "ClusterVersion",
		"name":       a.owner.Name,
		"uid":        string(a.owner.UID),
	}
	if !m.CreateOnly() {
		owner["controller"] = true
	}
	return []any{owner}
}

// complete adds required fields that real manifests leave out, because typed clients always send them.
func complete(m *manifest.Manifest, object map[string]any) {
	switch {
	case isClusterOperator(m):
		if object["spec"] == nil {
			object["spec"] = map[string]any{}
		}
	case m.Is("security.openshift.io", "SecurityContextConstraints"):
		for field, zero := range sccZeroValues() {
			if _, ok := object[field]; !ok {
				object[field] = zero
			}
		}
	}
}

// sccZeroValues are the required fields of a SecurityContextConstraints as a typed client fills them.
func sccZeroValues() map[string]any {
	return map[string]any{
		"allowHostDirVolumePlugin": false,
		"allowHostIPC":             false,
		"allowHostNetwork":         false,
		"allowHostPID":             false,
		"allowHostPorts":           false,
		"allowPrivilegedContainer": false,
		"allowedCapabilities":      nil,
		"defaultAddCapabilities":   nil,
		"priority":                 nil,
		"readOnlyRootFilesystem":   false,
		"requiredDropCapabilities": nil,
		"volumes":                  nil,
	}
}
