package apply

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/apply/trial"
	"github.com/cluster-version/cvo/pkg/manifest"
)

func isJob(m *manifest.Manifest) bool { return m.Is("batch", "Job") }

// hasFailed reports whether the existing Job has failed permanently. Such a Job never runs its current manifest, so deleting it loses
// nothing.
func hasFailed(live *unstructured.Unstructured) bool {
	var job batchv1.Job
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &job)
	return err == nil && failedAt(&job) != nil
}

// failedAt returns the time of a Job's permanent failure, or nil if it has not failed.
func failedAt(job *batchv1.Job) *metav1.Time {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return &c.LastTransitionTime
		}
	}
	return nil
}

// changedSince is the reason to rerun a failed Job whose manifest the server accepted as a change of the existing Job. The change came
// after the failure, so it has no effect. The server records the time of our last change in seconds. An apply that changes nothing does not
// update it.
const changedSince = "it failed and has been changed since"

// rerun recreates a failed Job if its manifest has changed since the failure. If the manifest has not changed, or the metadata shows that the
// Job never changed, rerun does not read it.
func (s *submission) rerun(ctx context.Context, change Change, got answer) (Change, answer, error) {
	changed := ownership.LastChange(got.meta.ManagedFields)
	if !s.applier.options.Changed || got.created || change.Deleting || !changed.After(got.meta.CreationTimestamp.Time) {
		return change, got, nil
	}
	live, err := s.applier.client.Object(ctx, s.target)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return change, got, nil
		}
		return Change{}, answer{}, err
	}
	var job batchv1.Job
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &job); err != nil {
		return Change{}, answer{}, fmt.Errorf("%w: %w", request.ErrAnswer, err)
	}
	if failed := failedAt(&job); failed == nil || !changed.After(failed.Time) {
		return change, got, nil
	}
	if judgment, err := s.trial().NewObject(ctx, live); err != nil || judgment != trial.Accepted {
		return change, got, err
	}
	return s.recreate(ctx, live, changedSince)
}

// predictRerun is rerun as a dry run.
func (s *submission) predictRerun(ctx context.Context, f Prediction) (Prediction, error) {
	if !s.applier.options.Changed || f.Action != Applied || f.Object == nil || f.Object.GetDeletionTimestamp() != nil {
		return f, nil
	}
	var job batchv1.Job
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(f.Object.Object, &job); err != nil {
		return f, nil //nolint:nilerr // nothing to add if the Job cannot be read
	}
	changed := ownership.LastChange(job.ManagedFields)
	if failed := failedAt(&job); failed == nil || !changed.After(failed.Time) {
		return f, nil
	}
	if judgment, err := s.trial().NewObject(ctx, f.Object); err != nil || judgment != trial.Accepted {
		return f, err
	}
	return Prediction{Action: Recreated, Dropped: s.dropped, Message: changedSince}, nil
}
