package install

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
)

// clusterVersion deletes the ClusterVersion, and leaves what it owned where it is.
func (u *remover) clusterVersion(ctx context.Context) error {
	if u.version == nil {
		return nil
	}
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: u.version.Name, UID: u.version.UID}}
	object.SetGroupVersionKind(configv1.GroupVersion.WithKind("ClusterVersion"))
	return u.remove(ctx, object, metav1.DeletePropagationOrphan)
}

// allowDeletion is the annotation that the deletion guard looks for.
const allowDeletion = "cvo.cluster-version.github.io/allow-deletion"

// remove deletes one object and waits until it is gone. Finalizers are for whoever set them.
func (u *remover) remove(ctx context.Context, object *metav1.PartialObjectMetadata, propagation metav1.DeletionPropagation) error {
	if err := u.startRemoval(ctx, object, propagation); err != nil {
		return err
	}
	return u.gone(ctx, []*metav1.PartialObjectMetadata{object})
}

// startRemoval asks for the deletion of the object that was seen, and of no other that has taken its name.
func (u *remover) startRemoval(ctx context.Context, object *metav1.PartialObjectMetadata, propagation metav1.DeletionPropagation) error {
	if u.removal.DryRun {
		return nil
	}
	if err := u.renew(ctx); err != nil {
		return err
	}
	if guarded(object) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+allowDeletion+`":"true"}}}`))
		if err := u.Patch(ctx, object.DeepCopy(), patch, client.FieldOwner(Manager)); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	options := []client.DeleteOption{client.PropagationPolicy(propagation)}
	if object.UID != "" {
		options = append(options, client.Preconditions{UID: &object.UID})
	}
	// The answer holds the object if a finalizer keeps it, and must be readable whatever its kind.
	named := &unstructured.Unstructured{}
	named.SetGroupVersionKind(object.GroupVersionKind())
	named.SetNamespace(object.Namespace)
	named.SetName(object.Name)
	err := u.Delete(ctx, named, options...)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or another one has its name
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", describe(object), err)
	}
	return nil
}

func guarded(object *metav1.PartialObjectMetadata) bool {
	return object.Kind == "ClusterVersion" || object.Kind == crdKind && object.Name == neededCRDs()[0]
}

const crdKind = "CustomResourceDefinition"

// gone waits until objects are gone, and says which finalizers hold them.
func (u *remover) gone(ctx context.Context, objects []*metav1.PartialObjectMetadata) error {
	said := ""
	var stuck []string
	err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if u.removal.DryRun {
			return true, nil
		}
		if err := u.renew(ctx); err != nil {
			return false, err
		}
		stuck = nil
		for _, object := range objects {
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
			stuck = append(stuck, strings.TrimSuffix(fmt.Sprintf("%s (finalizers %s)", describe(object), strings.Join(live.Finalizers, ", ")), " (finalizers )"))
		}
		if text := listed(stuck); text != said && text != "" {
			u.say("waiting for the end of " + text)
			said = text
		}
		return len(stuck) == 0, nil
	})
	if err != nil {
		if len(stuck) > 0 {
			return fmt.Errorf("%w: still there: %s; finalizers are never removed by force: mend what has to remove them, and do this again", err, listed(stuck))
		}
		return err
	}
	for _, object := range objects {
		u.tell(outcomeOf(object, Deleted))
	}
	return nil
}

func listed(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func (u *remover) tell(result Result) {
	u.results = append(u.results, result)
	u.done(result)
}

func describe(object *metav1.PartialObjectMetadata) string {
	return outcomeOf(object, "").String()
}

func outcomeOf(object *metav1.PartialObjectMetadata, outcome Outcome) Result {
	gvk := object.GroupVersionKind()
	return Result{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: object.Namespace, Name: object.Name, Outcome: outcome}
}
