package apply

import (
	"fmt"
	"maps"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// body returns what is sent for a manifest: a copy with our label and owner reference (if there is an owner yet),
// without what only the server or another writer may set, and with the fields that the object's schema requires but its
// manifest leaves out. Only the object itself, its metadata and what changes in them is copied: the rest is the
// manifest's. It fails for a manifest that asks for an injection that cannot be done.
func (a *Applier) body(m *manifest.Manifest, namespaced bool) (map[string]any, error) {
	object, err := a.injection.into(m.Object.Object)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	object = maps.Clone(object)
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
	if clientgoscheme.Scheme.Recognizes(m.GVK()) {
		for field, value := range object {
			object[field], _ = emptyListsAsNull(value)
		}
	}
	if !namesOwner(m) {
		delete(metadata, "ownerReferences")
	}
	if a.owner.Name == "" {
		return object, nil
	}
	labels, _ := metadata["labels"].(map[string]any)
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]any{}
	}
	labels[api.OwnedByLabel] = a.owner.Name
	if a.owner.ApplySet != "" {
		labels[api.ApplySetLabel] = a.owner.ApplySet
	}
	metadata["labels"] = labels
	if !namesOwner(m) {
		metadata["ownerReferences"] = []any{a.ownerReference(m)}
	}
	return object, nil
}

// namesOwner reports whether the manifest names an owner that stands. It follows OpenShift's operator: any but a
// ClusterVersion, whose UID no manifest can know.
func namesOwner(m *manifest.Manifest) bool {
	return slices.ContainsFunc(m.Object.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return o.Kind != "ClusterVersion"
	})
}

// ownerReference points to the owner. Create-only objects are owned without being controlled.
func (a *Applier) ownerReference(m *manifest.Manifest) map[string]any {
	owner := map[string]any{
		"apiVersion": configv1.GroupVersion.String(),
		"kind":       "ClusterVersion",
		"name":       a.owner.Name,
		"uid":        string(a.owner.UID),
	}
	if !m.CreateOnly() {
		owner["controller"] = true
	}
	return owner
}

// complete adds required fields that real manifests leave out, because typed clients always send them, and words those
// that the server would take for a change at every apply.
func complete(m *manifest.Manifest, object map[string]any) {
	switch {
	case isClusterOperator(m):
		// Its spec has no fields. Any that a manifest gives are pruned, but the server counts a generation first.
		object["spec"] = map[string]any{}
	case m.Is("security.openshift.io", "SecurityContextConstraints"):
		for field, zero := range sccZeroValues() {
			if _, ok := object[field]; !ok {
				object[field] = zero
			}
		}
	}
}

// emptyListsAsNull words the empty lists of a built-in kind so that they are still ours, but are what the server stores:
// it keeps those kinds in a form that has no empty list, compares what it stored with what is applied to the letter,
// and would count a change at every apply. What has no empty list in it is shared with value.
func emptyListsAsNull(value any) (next any, changed bool) {
	switch v := value.(type) {
	case map[string]any:
		out := v
		for key, item := range v {
			if item, changedItem := emptyListsAsNull(item); changedItem {
				if !changed {
					out, changed = maps.Clone(v), true
				}
				out[key] = item
			}
		}
		return out, changed
	case []any:
		if len(v) == 0 {
			return nil, true
		}
		out := v
		for i, item := range v {
			if item, changedItem := emptyListsAsNull(item); changedItem && item != nil {
				if !changed {
					out, changed = slices.Clone(v), true
				}
				out[i] = item
			}
		}
		return out, changed
	}
	return value, false
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
