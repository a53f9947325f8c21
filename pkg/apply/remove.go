package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/ownership"
)

// remove deletes the object that a tombstone names, and only the one seen: the UID is a precondition, so an object
// that somebody creates in between survives until the next look.
func (a *Applier) remove(ctx context.Context, t target, m *manifest.Manifest) (Change, error) {
	meta, err := a.client.get(ctx, t)
	if apierrors.IsNotFound(err) {
		return Change{Action: Deleted}, nil
	}
	if err != nil {
		return Change{}, err
	}
	return a.end(ctx, t, meta, m.GVK().GroupKind(), false)
}

// end deletes the object seen, unless it is on its way out already.
func (a *Applier) end(ctx context.Context, t target, meta *metav1.PartialObjectMetadata, gk schema.GroupKind, unchanged bool,
) (Change, error) {
	if meta.DeletionTimestamp == nil {
		var err error
		uid := meta.UID
		meta, err = a.client.delete(ctx, t, meta, unchanged, propagation(gk))
		switch {
		case apierrors.IsNotFound(err), err == nil && meta == nil:
			return Change{Action: Deleted, UID: uid}, nil
		case err != nil:
			return Change{}, err
		}
	}
	change := receipt(Deleting, meta)
	change.Deleting, change.Message = true, waiting(meta)
	return change, nil
}

// waiting says what an object that is being deleted waits for, and since when. It says the same each time.
func waiting(meta *metav1.PartialObjectMetadata) string {
	since := ""
	if meta.DeletionTimestamp != nil {
		since = "deleted at " + meta.DeletionTimestamp.UTC().Format(time.RFC3339) + ", "
	}
	if len(meta.Finalizers) == 0 {
		return since + "waiting for the server to end it"
	}
	return since + "waiting for its finalizers " + strings.Join(slices.Sorted(slices.Values(meta.Finalizers)), ", ")
}

// Prune deletes an orphan: an object that an earlier release brought and that no manifest names any more, known by its
// kind and name, and by its UID if that is not empty. It deletes what is ours alone: the object has the UID, our Apply
// entry and the label of our owner.
// Everything else is Skipped with a Message that says why, and so are, always, the kinds that hold more than a release
// brought: volumes, claims, DataVolumes, namespaces, the ClusterVersion, and CRDs as long as there are objects of their
// kind. Errors name the object.
func (a *Applier) Prune(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string, uid types.UID) (Change, error) {
	change, err := a.prune(ctx, gvk, namespace, name, uid)
	if err != nil {
		return Change{}, fmt.Errorf("pruning %s %s: %w", gvk.GroupKind(), types.NamespacedName{Namespace: namespace, Name: name}, err)
	}
	return change, nil
}

func (a *Applier) prune(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string, uid types.UID) (Change, error) {
	gk := gvk.GroupKind()
	if manifest.HoldsMore(gk) {
		return skipped("a %s is never pruned, since what it holds would go with it: only a manifest that deletes it does that", gvk.Kind), nil
	}
	mapping, err := a.mapper.Mapping(ctx, gvk)
	if IsNoMatch(err) {
		return Change{Action: Deleted, Message: "its kind is not served"}, nil
	}
	if err != nil {
		return Change{}, err
	}
	t := target{resource: mapping.Resource, name: name, custom: mapping.Custom}
	if mapping.Namespaced {
		t.namespace = namespace
	}
	if t.name == "" || (mapping.Namespaced && t.namespace == "") {
		return Change{}, fmt.Errorf("%w: it has no name or no namespace", errManifest)
	}
	meta, err := a.client.get(ctx, t)
	switch {
	case apierrors.IsNotFound(err):
		return Change{Action: Deleted}, nil
	case err != nil:
		return Change{}, err
	case uid != "" && meta.UID != uid:
		return skipped("it is not the object that an earlier release brought, but one that has taken its name"), nil
	case a.owner.Name == "" || meta.Labels[api.OwnedByLabel] != a.owner.Name:
		return skipped("its label %s does not say that it is ours", api.OwnedByLabel), nil
	case ownership.Ours(meta.ManagedFields) == (ownership.Hash{}):
		return skipped("nothing of it was applied by us"), nil
	}
	if gk == crdKind && meta.DeletionTimestamp == nil {
		if reason, err := a.instances(ctx, t); err != nil || reason != "" {
			return skipped("%s", reason), err
		}
	}
	return a.end(ctx, t, meta, gk, true)
}

func skipped(format string, args ...any) Change {
	return Change{Action: Skipped, Message: fmt.Sprintf(format, args...)}
}

// instances says why a CRD must stay: there are objects of its kind, or it cannot be known whether there are any. All
// versions serve the same objects, so one is asked.
func (a *Applier) instances(ctx context.Context, t target) (reason string, err error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := a.client.object(ctx, t, &crd); err != nil {
		return "", err
	}
	version := ""
	for _, v := range crd.Spec.Versions {
		if v.Served && (version == "" || v.Storage) {
			version = v.Name
		}
	}
	if version == "" {
		return "it serves no version, so whether there are objects of its kind cannot be known", nil
	}
	resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: version, Resource: crd.Spec.Names.Plural}
	found, err := a.client.any(ctx, resource)
	switch {
	case apierrors.IsNotFound(err):
		return "its kind is not served yet, so whether there are objects of it cannot be known", nil
	case err != nil:
		return "", fmt.Errorf("looking for %s: %w", resource.GroupResource(), err)
	case found:
		return fmt.Sprintf("there are %s, which would go with it", resource.GroupResource()), nil
	}
	return "", nil
}
