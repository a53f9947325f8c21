package apply

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/apply/request"
)

var crdKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// propagation returns the deletion policy for an object's dependents. The dependents of workloads are deleted first, so that no pods remain
// when the workload is gone. Those of other kinds are deleted in the background.
func propagation(gk schema.GroupKind) metav1.DeletionPropagation {
	workloads := map[string][]string{
		"apps":  {"Deployment", "DaemonSet", "StatefulSet", "ReplicaSet"},
		"batch": {"Job", "CronJob"},
		"":      {"ReplicationController"},
	}
	if slices.Contains(workloads[gk.Group], gk.Kind) {
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// recreate deletes the live object and creates it again. If the deletion takes time, it reports Deleting. While the object exists, the
// server rejects the apply of each later pass, which leads back here. Once the object is gone, the apply creates it. Callers must check
// first that the server accepts a new object, see trial.Trial.NewObject.
func (s *submission) recreate(ctx context.Context, live *unstructured.Unstructured, why string) (Change, answer, error) {
	meta := &metav1.PartialObjectMetadata{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, meta); err != nil {
		return Change{}, answer{}, fmt.Errorf("%w: %w", request.ErrAnswer, err)
	}
	seen := meta.UID
	for range attempts {
		switch {
		case meta.DeletionTimestamp != nil:
			return deletingChange(meta, why), answer{}, nil
		case seen != meta.UID:
			return Change{}, answer{}, fmt.Errorf("deleting it to recreate it, because %s: another client has recreated it in the meantime", why)
		}
		left, err := s.applier.client.Delete(ctx, s.target, meta, true, propagation(s.m.GVK().GroupKind()))
		switch {
		case apierrors.IsConflict(err):
		case apierrors.IsNotFound(err), err == nil && left == nil:
			return s.recreateMissing(ctx, why)
		case err != nil:
			return Change{}, answer{}, fmt.Errorf("deleting it to recreate it, because %s: %w", why, err)
		default:
			return deletingChange(left, why), answer{}, nil
		}
		meta, err = s.applier.client.Get(ctx, s.target)
		switch {
		case apierrors.IsNotFound(err):
			return s.recreateMissing(ctx, why)
		case err != nil:
			return Change{}, answer{}, err
		}
	}
	return Change{}, answer{}, fmt.Errorf("deleting it to recreate it: %w",
		apierrors.NewConflict(s.target.Resource.GroupResource(), s.target.Name, fmt.Errorf("it kept changing")))
}

// deletingChange returns the change for an object that must be deleted first.
func deletingChange(meta *metav1.PartialObjectMetadata, why string) Change {
	change := receipt(Deleting, meta)
	change.Deleting = true
	change.Message = waiting(meta) + "; then it will be recreated, because " + why
	return change
}

func (s *submission) recreateMissing(ctx context.Context, why string) (Change, answer, error) {
	s.claimController()
	got, err := s.send(ctx)
	if err != nil {
		return Change{}, answer{}, fmt.Errorf("recreating it: %w", err)
	}
	change := s.receipt(got)
	if got.created {
		change.Action = Recreated
		change.Message = why
	}
	return change, got, nil
}
