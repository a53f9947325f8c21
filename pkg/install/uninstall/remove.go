package uninstall

import (
	"context"
	"fmt"
	"slices"
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
	u.pending = []*metav1.PartialObjectMetadata{object}
	if err := u.startRemoval(ctx, object, metav1.DeletePropagationOrphan); err != nil {
		return err
	}
	return u.awaitDeletion(ctx, u.pending)
}

// noVersion returns an error if another client has recreated the ClusterVersion. It would be deleted with its definition, and with it
// the objects of an operator that works for it.
func (u *remover) noVersion(ctx context.Context) error {
	if u.removal.DryRun {
		return nil
	}
	if err := u.readVersion(ctx); err != nil || u.version == nil {
		return err
	}
	return fmt.Errorf("ClusterVersion %s exists again: pause the tool that recreates it, such as a GitOps controller, and run the command again", u.version.Name)
}

// startRemoval requests the deletion of the observed object, but not of a newer object with the same name. It never removes finalizers.
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

// awaitDeletion waits until the objects, which are the first pending ones, no longer exist, and logs the reasons why they still exist.
func (u *remover) awaitDeletion(ctx context.Context, objects []*metav1.PartialObjectMetadata) error {
	logged := ""
	left, later := objects, u.pending[len(objects):]
	var remaining []string
	hasFinalizers := false
	err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if u.removal.DryRun {
			return true, nil
		}
		var existing []*metav1.PartialObjectMetadata
		remaining, hasFinalizers = nil, false
		for _, object := range left {
			if err := u.lease.Renew(ctx); err != nil {
				return false, err
			}
			var live client.Object = &metav1.PartialObjectMetadata{}
			if object.GroupVersionKind().GroupKind() == namespaceKind {
				live = &unstructured.Unstructured{} // its status describes its content
			}
			live.GetObjectKind().SetGroupVersionKind(object.GroupVersionKind())
			err := u.Get(ctx, client.ObjectKeyFromObject(object), live)
			switch {
			case apierrors.IsNotFound(err), meta.IsNoMatchError(err), err == nil && object.UID != "" && live.GetUID() != object.UID:
				continue
			case err != nil:
				return false, err
			}
			text := describe(object)
			if reasons := strings.Join(reasonsToExist(live), "; "); reasons != "" {
				text += " (" + reasons + ")"
				hasFinalizers = hasFinalizers || strings.Contains(reasons, "finalizers")
			}
			existing, remaining = append(existing, object), append(remaining, text)
		}
		left, u.pending = existing, slices.Concat(existing, later)
		if text := printable.List(remaining, printable.Few); text != logged && text != "" {
			u.log("waiting for the deletion of " + text)
			logged = text
		}
		return len(remaining) == 0, nil
	})
	if err != nil {
		if len(remaining) > 0 {
			remedy := "run the command again"
			if hasFinalizers {
				remedy = "repair the controllers of these finalizers and run the command again, because 'cvo uninstall' never removes finalizers by force"
			}
			return fmt.Errorf("%w: these objects still exist: %s: %s", err, printable.List(remaining, printable.Few), remedy)
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

// reasonsToExist returns the finalizers of an object, and the remaining content of a namespace with its finalizers.
func reasonsToExist(live client.Object) []string {
	var reasons []string
	if finalizers := live.GetFinalizers(); len(finalizers) > 0 {
		reasons = append(reasons, "finalizers "+api.FinalizersText(finalizers))
	}
	if namespace, ok := live.(*unstructured.Unstructured); ok {
		reasons = append(reasons, api.RemainingContent(namespace.Object)...)
	}
	return reasons
}

// pendingText lists the pending objects for the state that an interruption leaves; empty for none.
func (u *remover) pendingText() string {
	if len(u.pending) == 0 {
		return ""
	}
	names := make([]string, len(u.pending))
	for i, object := range u.pending {
		names[i] = describe(object)
	}
	return "; not deleted yet: " + printable.List(names, mostPending)
}

// mostPending is the maximum number of pending objects that a message names.
const mostPending = 10

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
