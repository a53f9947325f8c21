package apply

import (
	"context"
	"errors"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/ownership"
)

func isJob(m *manifest.Manifest) bool { return m.Is("batch", "Job") }

// jobFailed reports whether the Job that is there has failed for good. Such a one does nothing any more, and will never
// do what its manifest says now, so nothing is lost with it.
func (s *sending) jobFailed(ctx context.Context) (bool, error) {
	var job batchv1.Job
	if err := s.applier.client.object(ctx, s.target, &job); err != nil {
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	}
	return failure(&job) != nil, nil
}

// failure returns since when a Job has failed for good, nil if it has not.
func failure(job *batchv1.Job) *metav1.Time {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return &c.LastTransitionTime
		}
	}
	return nil
}

// changedSince says why a failed Job is to run again, though the server took its manifest as a change of the Job that is
// there: that change came after the failure, and does nothing any more. The server notes the time of our last change, to
// the second; an apply without effect leaves it.
const changedSince = "it failed, and has been changed since"

// runAgain recreates a Job whose manifest has changed since it failed. Of a Job that never changed the metadata tell that
// all is well, any other is read.
func (s *sending) runAgain(ctx context.Context, change Change, got answer) (Change, answer, error) {
	changed := ownership.LastChange(got.meta.ManagedFields)
	if got.created || change.Deleting || !changed.After(got.meta.CreationTimestamp.Time) {
		return change, got, nil
	}
	var job batchv1.Job
	if err := s.applier.client.object(ctx, s.target, &job); err != nil {
		if apierrors.IsNotFound(err) {
			return change, got, nil
		}
		return Change{}, answer{}, err
	}
	if failed := failure(&job); failed == nil || !changed.After(failed.Time) {
		return change, got, nil
	}
	return s.recreate(ctx, errors.New(changedSince), changedSince)
}

// foretellRunAgain is runAgain as a dry run.
func (s *sending) foretellRunAgain(ctx context.Context, f Foretold) (Foretold, error) {
	if f.Action != Applied || f.Object == nil || f.Object.GetDeletionTimestamp() != nil {
		return f, nil
	}
	var job batchv1.Job
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(f.Object.Object, &job); err != nil {
		return f, nil //nolint:nilerr // a Job that cannot be read has nothing to tell
	}
	changed := ownership.LastChange(job.ManagedFields)
	if failed := failure(&job); failed == nil || !changed.After(failed.Time) {
		return f, nil
	}
	return s.foretellRecreated(ctx, errors.New(changedSince), changedSince)
}
