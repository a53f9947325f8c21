// Package body builds the object to send for a manifest. It adds the cluster's values, the operator's label, the owner reference and
// required fields that the manifest lacks. It omits fields that the server or another writer sets, and rewrites values that the server
// would store in another form. It sends nothing.
package body

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// ErrManifest means that the manifest itself causes the error.
var ErrManifest = errors.New("the manifest cannot be sent")

// Owner is the ClusterVersion that owns all objects. The zero value sets no owner, for objects that must exist before the ClusterVersion.
type Owner struct {
	Name string
	UID  types.UID
	// ApplySet is the ID of the ApplySet (KEP-3659) whose label all objects get; empty for none.
	ApplySet string
}

// Builder builds the objects to send for one owner and one cluster's values.
type Builder struct {
	Owner  Owner
	Values inject.Values
}

// Build returns the object to send for a manifest, and the parts that it omits because any server would reject them. The object shares
// unchanged parts with the manifest.
func (b Builder) Build(m *manifest.Manifest, namespaced bool) (body map[string]any, dropped []string, err error) {
	if body, err = b.object(m, namespaced); err != nil {
		return nil, nil, err
	}
	if spec, ok := body["spec"].(map[string]any); ok && m.Is("batch", "Job") && spec["manualSelector"] != true && spec["selector"] != nil {
		// The server generates a Job's selector unless manualSelector is set. It rejects a selector in the manifest.
		spec = maps.Clone(spec)
		delete(spec, "selector")
		body["spec"] = spec
		dropped = []string{".spec.selector"}
	}
	return body, dropped, nil
}

// object returns the object to send for a manifest: a copy with the cluster's values, our label and our owner reference (if there is an
// owner). It omits fields that only the server or another writer may set, and adds fields that the schema requires but the manifest lacks.
// It copies only the object itself, its metadata and changed parts, and shares the rest with the manifest. It fails if the manifest
// requests an impossible injection.
func (b Builder) object(m *manifest.Manifest, namespaced bool) (map[string]any, error) {
	object, err := b.Values.Into(m.Object.Object)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	object = maps.Clone(inject.WithoutCA(object, m.Object.GetAnnotations(), m.Object.GetLabels()))
	delete(object, "status")
	object = mirrorServiceAccount(m.Object, object)
	complete(m, object)
	storedForm(m.GVK(), object)
	metadata, _ := object["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	for _, field := range []string{
		"creationTimestamp", "deletionTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid",
	} {
		delete(metadata, field)
	}
	// Empty lists and maps in metadata have no effect, because the server merges all of them entry by entry.
	maps.DeleteFunc(metadata, func(_ string, value any) bool { return manifest.IsEmpty(value) })
	if !namespaced {
		delete(metadata, "namespace")
	}
	if !NamesOwner(m) {
		delete(metadata, "ownerReferences")
	}
	if b.Owner.Name != "" {
		b.mark(m, metadata)
	}
	object["metadata"] = metadata
	return object, nil
}

// mark adds the owner's label, and the owner reference unless the manifest has a valid one.
func (b Builder) mark(m *manifest.Manifest, metadata map[string]any) {
	labels, _ := metadata["labels"].(map[string]any)
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]any{}
	}
	labels[api.OwnedByLabel] = b.Owner.Name
	if b.Owner.ApplySet != "" {
		labels[api.ApplySetLabel] = b.Owner.ApplySet
	}
	metadata["labels"] = labels
	if !NamesOwner(m) {
		metadata["ownerReferences"] = []any{b.ownerReference(m)}
	}
}

// NamesOwner reports whether the manifest has a valid owner reference. As in OpenShift's operator, a reference to a ClusterVersion is
// invalid, because no manifest can know its UID.
func NamesOwner(m *manifest.Manifest) bool {
	return slices.ContainsFunc(m.Object.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return o.Kind != "ClusterVersion"
	})
}

// ownerReference returns the reference to the owner. The owner is not the controller of create-only objects.
func (b Builder) ownerReference(m *manifest.Manifest) map[string]any {
	owner := map[string]any{
		"apiVersion": configv1.GroupVersion.String(),
		"kind":       "ClusterVersion",
		"name":       b.Owner.Name,
		"uid":        string(b.Owner.UID),
	}
	if !m.CreateOnly() {
		owner["controller"] = true
	}
	return owner
}
