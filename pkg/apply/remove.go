package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// remove deletes a tombstone's object. The UID is a precondition, so an object that another client creates in between survives until the
// next check.
func (a *Applier) remove(ctx context.Context, t request.Target, m *manifest.Manifest) (Change, error) {
	meta, err := a.client.Get(ctx, t)
	if apierrors.IsNotFound(err) {
		return Change{Action: Deleted}, nil
	}
	if err != nil {
		return Change{}, err
	}
	return a.deleteLive(ctx, t, meta, m.GVK().GroupKind(), false)
}

// deleteLive deletes the observed object unless it is already being deleted.
func (a *Applier) deleteLive(ctx context.Context, t request.Target, meta *metav1.PartialObjectMetadata, gk schema.GroupKind, unchanged bool,
) (Change, error) {
	if meta.DeletionTimestamp == nil {
		var err error
		uid := meta.UID
		meta, err = a.client.Delete(ctx, t, meta, unchanged, propagation(gk))
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

// waiting returns the time of an object's deletion and the reason why it is pending. The text is the same each time.
func waiting(meta *metav1.PartialObjectMetadata) string {
	since := ""
	if meta.DeletionTimestamp != nil {
		since = "deleted at " + meta.DeletionTimestamp.UTC().Format(time.RFC3339) + ", "
	}
	if len(meta.Finalizers) == 0 {
		return since + "waiting for the server to remove it"
	}
	return since + "waiting for its finalizers " + api.FinalizersText(slices.Sorted(slices.Values(meta.Finalizers)))
}

// Prune deletes an orphan: an object of an earlier release without a manifest in the current one. The caller passes its kind and name, and
// its UID if known. Prune deletes only objects of ours, see ownership.KeepsOrphan. It skips all others, with a Message that gives the
// reason. It always skips kinds that hold more than the release shipped: volumes, claims, DataVolumes, namespaces, the ClusterVersion, and
// CRDs while objects of their kind exist. Errors name the object.
func (a *Applier) Prune(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string, uid types.UID) (Change, error) {
	change, err := a.remapped(ctx, func() (Change, error) { return a.prune(ctx, gvk, namespace, name, uid, false) })
	if err != nil {
		return Change{}, fmt.Errorf("pruning %s %s: %w", gvk.GroupKind(), types.NamespacedName{Namespace: namespace, Name: name}, err)
	}
	return change, nil
}

// PredictPrune returns what Prune would do: Deleting, Skipped with the reason or, if there is no object, Deleted without a UID.
func (a *Applier) PredictPrune(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string, uid types.UID) (Change, error) {
	return a.remapped(ctx, func() (Change, error) { return a.prune(ctx, gvk, namespace, name, uid, true) })
}

func (a *Applier) prune(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string, uid types.UID, predict bool) (Change, error) {
	gk := gvk.GroupKind()
	if _, irreplaceable := manifest.Irreplaceable(gk); irreplaceable {
		return Change{Action: Skipped, Message: fmt.Sprintf("the operator never prunes objects of kind %s, because their content would also be "+
			"deleted: use a tombstone to delete it", gvk.Kind)}, nil
	}
	mapping, err := a.mapper.AnyVersion(ctx, gvk)
	if kinds.IsNoMatch(err) {
		return Change{Action: Deleted, Message: "its kind is not served"}, nil
	}
	if err != nil {
		return Change{}, err
	}
	t, err := address(mapping, namespace, name)
	if err != nil {
		return Change{}, err
	}
	meta, err := a.client.Get(ctx, t)
	if apierrors.IsNotFound(err) {
		return Change{Action: Deleted}, nil
	}
	if err != nil {
		return Change{}, err
	}
	reason, temporary := ownership.KeepsOrphan(meta, a.builder.Owner.Name, uid)
	if reason == "" && gk == crdKind && meta.DeletionTimestamp == nil {
		temporary = true
		if reason, err = a.instances(ctx, t); err != nil {
			return Change{}, err
		}
	}
	switch {
	case reason != "":
		return Change{Action: Skipped, Temporary: temporary, Message: reason}, nil
	case predict:
		return Change{Action: Deleting}, nil
	}
	return a.deleteLive(ctx, t, meta, gk, true)
}

// instances returns the reason to keep a CRD: objects of its kind exist, or it is unknown whether they do. All versions serve the same
// objects, so it lists only one.
func (a *Applier) instances(ctx context.Context, t request.Target) (reason string, err error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := a.client.Decode(ctx, t, &crd); err != nil {
		return "", err
	}
	version := ""
	for _, v := range crd.Spec.Versions {
		if v.Served && (version == "" || v.Storage) {
			version = v.Name
		}
	}
	if version == "" {
		return "it serves no version, so its objects cannot be listed", nil
	}
	resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: version, Resource: crd.Spec.Names.Plural}
	found, err := a.client.Any(ctx, resource)
	switch {
	case errors.Is(err, request.ErrUnserved):
		return "its kind is not served yet, so its objects cannot be listed", nil
	case err != nil:
		return "", fmt.Errorf("looking for %s: %w", resource.GroupResource(), err)
	case found:
		return fmt.Sprintf("kept until no %s exist, then deleted", resource.GroupResource()), nil
	}
	return "", nil
}
