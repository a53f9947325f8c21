package apply

import (
	"fmt"
	"maps"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// body returns what is sent for a manifest: a copy with what the cluster injects, our label and owner reference (if there
// is an owner yet), without what only the server or another writer may set, and with the fields that the object's schema
// requires but its manifest leaves out. Only the object itself, its metadata and what changes in them is copied: the
// rest is the manifest's. It fails for a manifest that asks for an injection that cannot be done.
func (a *Applier) body(m *manifest.Manifest, namespaced bool) (map[string]any, error) {
	object, err := a.injection.into(m.Object.Object)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	object = maps.Clone(withoutInjectedCA(object, m.Object.GetAnnotations(), m.Object.GetLabels()))
	delete(object, "status")
	object = bothNames(m.Object, object)
	complete(m, object)
	storedForm(m.GVK(), object)
	metadata, _ := object["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	for _, field := range []string{
		"creationTimestamp", "deletionTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid",
	} {
		delete(metadata, field)
	}
	// Empty lists and maps of metadata say nothing, since all of them are merged entry by entry.
	maps.DeleteFunc(metadata, func(_ string, value any) bool { return isEmpty(value) })
	if !namespaced {
		delete(metadata, "namespace")
	}
	if !namesOwner(m) {
		delete(metadata, "ownerReferences")
	}
	if a.owner.Name != "" {
		a.mark(m, metadata)
	}
	object["metadata"] = metadata
	return object, nil
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// mark labels an object as the owner's, and refers to the owner unless the manifest names one that stands.
func (a *Applier) mark(m *manifest.Manifest, metadata map[string]any) {
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
