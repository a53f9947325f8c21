package uninstall

import (
	"context"
	"fmt"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/install/target"
)

// clusterVersion deletes the ClusterVersion and keeps the objects that it owns.
func (u *remover) clusterVersion(ctx context.Context) error {
	if u.version == nil {
		return nil
	}
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: u.version.Name, UID: u.version.UID}}
	object.SetGroupVersionKind(configv1.GroupVersion.WithKind("ClusterVersion"))
	return u.remove(ctx, object, metav1.DeletePropagationOrphan)
}

// remove deletes one object and waits until it no longer exists. It never removes finalizers itself.
func (u *remover) remove(ctx context.Context, object *metav1.PartialObjectMetadata, propagation metav1.DeletionPropagation) error {
	if err := u.startRemoval(ctx, object, propagation); err != nil {
		return err
	}
	return u.awaitDeletion(ctx, []*metav1.PartialObjectMetadata{object})
}

// startRemoval requests the deletion of the observed object, but not of a newer object with the same name.
func (u *remover) startRemoval(ctx context.Context, object *metav1.PartialObjectMetadata, propagation metav1.DeletionPropagation) error {
	if u.removal.DryRun {
		return nil
	}
	if err := u.lease.Renew(ctx); err != nil {
		return err
	}
	if guarded(object) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+api.AllowDeletionAnnotation+`":"true"}}}`))
		if err := u.Patch(ctx, object.DeepCopy(), patch, client.FieldOwner(target.Manager)); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	options := []client.DeleteOption{client.PropagationPolicy(propagation)}
	if object.UID != "" {
		options = append(options, client.Preconditions{UID: &object.UID})
	}
	// The response contains an object that a finalizer keeps, so its type must accept any kind.
	named := &unstructured.Unstructured{}
	named.SetGroupVersionKind(object.GroupVersionKind())
	named.SetNamespace(object.Namespace)
	named.SetName(object.Name)
	err := u.Delete(ctx, named, options...)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || apierrors.IsConflict(err) {
		return nil // it no longer exists, or a newer object has its name
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", describe(object), err)
	}
	return nil
}

// guarded reports whether the deletion guard protects an object.
func guarded(object *metav1.PartialObjectMetadata) bool {
	return object.Kind == "ClusterVersion" ||
		object.Kind == target.CRDKind && (object.Name == target.NeededCRDs()[0] || object.Name == api.ReleaseStatusDefinition)
}

// awaitDeletion waits until the objects no longer exist, and logs the finalizers that keep them.
func (u *remover) awaitDeletion(ctx context.Context, objects []*metav1.PartialObjectMetadata) error {
	logged := ""
	var remaining []string
	err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if u.removal.DryRun {
			return true, nil
		}
		remaining = nil
		for _, object := range objects {
			if err := u.lease.Renew(ctx); err != nil {
				return false, err
			}
			live := &metav1.PartialObjectMetadata{}
			live.SetGroupVersionKind(object.GroupVersionKind())
			err := u.Get(ctx, client.ObjectKeyFromObject(object), live)
			switch {
			case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
				continue
			case err != nil:
				return false, err
			case object.UID != "" && live.UID != object.UID:
				continue
			}
			remaining = append(remaining, strings.TrimSuffix(fmt.Sprintf("%s (finalizers %s)", describe(object), api.FinalizersText(live.Finalizers)), " (finalizers )"))
		}
		if text := printable.List(remaining, printable.Few); text != logged && text != "" {
			u.log("waiting for the deletion of " + text)
			logged = text
		}
		return len(remaining) == 0, nil
	})
	if err != nil {
		if len(remaining) > 0 {
			return fmt.Errorf("%w: these objects still exist: %s: repair the controllers of their finalizers and run the command again, because 'cvo uninstall' never removes finalizers by force", err, printable.List(remaining, printable.Few))
		}
		return err
	}
	for _, object := range objects {
		result := outcomeOf(object, target.Deleted)
		if u.removal.DryRun && object.GroupVersionKind().GroupKind() == namespaceKind {
			if result.Message, err = u.contentsOf(ctx, object.Name); err != nil {
				return err
			}
		}
		u.record(result)
	}
	return nil
}

func (u *remover) record(result target.Result) {
	u.results = append(u.results, result)
	u.done(result)
}

func describe(object *metav1.PartialObjectMetadata) string {
	return outcomeOf(object, "").String()
}

func outcomeOf(object *metav1.PartialObjectMetadata, outcome target.Outcome) target.Result {
	gvk := object.GroupVersionKind()
	return target.Result{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: object.Namespace, Name: object.Name, Outcome: outcome}
}
