package apply

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cluster-version/cvo/pkg/manifest"
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
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue
	}), nil
}
