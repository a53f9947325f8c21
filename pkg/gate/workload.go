package gate

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// Deployment is settled when its controller has observed the applied generation and does not report it as failing;
// without a ClusterOperator to speak for it, when every replica is updated and available.
func Deployment(d *appsv1.Deployment, want Want) Verdict {
	if d.Status.ObservedGeneration < d.Generation {
		return waiting(api.ReasonWorkloadNotProgressing, "Deployment %s/%s is not observed by its controller yet", d.Namespace, d.Name)
	}
	if c := deploymentCondition(d, appsv1.DeploymentReplicaFailure); c != nil && c.Status == corev1.ConditionTrue {
		return failedSince(c, api.ReasonWorkloadNotProgressing, "Deployment %s/%s has a replica failure %s: %s", d.Namespace, d.Name, c.Reason, c.Message)
	}
	progressing := deploymentCondition(d, appsv1.DeploymentProgressing)
	available := deploymentCondition(d, appsv1.DeploymentAvailable)
	stuck := progressing != nil && progressing.Status == corev1.ConditionFalse
	if stuck && available != nil && available.Status == corev1.ConditionFalse {
		return failedSince(available, api.ReasonWorkloadNotAvailable, "Deployment %s/%s is not available %s: %s; it is not progressing %s: %s",
			d.Namespace, d.Name, available.Reason, available.Message, progressing.Reason, progressing.Message)
	}
	if stuck && progressing.Reason == "ProgressDeadlineExceeded" {
		return failedSince(progressing, api.ReasonWorkloadNotProgressing, "Deployment %s/%s is not progressing %s: %s", d.Namespace, d.Name, progressing.Reason, progressing.Message)
	}
	if !want.Alone {
		return Verdict{State: Settled}
	}
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	s := d.Status
	if s.UpdatedReplicas < replicas || s.Replicas > s.UpdatedReplicas || s.AvailableReplicas < replicas {
		return waiting(api.ReasonWorkloadNotAvailable, "Deployment %s/%s has %d of %d replicas updated and %d available",
			d.Namespace, d.Name, s.UpdatedReplicas, replicas, s.AvailableReplicas)
	}
	return Verdict{State: Settled}
}

// DaemonSet is settled like a Deployment; it reports no failure of its own, so only its rollout can be waited for. With
// the OnDelete strategy nobody updates its pods, so that is not waited for.
func DaemonSet(d *appsv1.DaemonSet, want Want) Verdict {
	if d.Status.ObservedGeneration < d.Generation {
		return waiting(api.ReasonWorkloadNotProgressing, "DaemonSet %s/%s is not observed by its controller yet", d.Namespace, d.Name)
	}
	s := d.Status
	updated := s.DesiredNumberScheduled
	if d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		updated = 0
	}
	if want.Alone && (s.UpdatedNumberScheduled < updated || s.NumberAvailable < s.DesiredNumberScheduled) {
		return waiting(api.ReasonWorkloadNotAvailable, "DaemonSet %s/%s has %d of %d pods updated and %d of %d available",
			d.Namespace, d.Name, s.UpdatedNumberScheduled, updated, s.NumberAvailable, s.DesiredNumberScheduled)
	}
	return Verdict{State: Settled}
}

// StatefulSet is settled like a Deployment. With a partition or the OnDelete strategy, only what the strategy
// updates by itself is waited for.
func StatefulSet(s *appsv1.StatefulSet, want Want) Verdict {
	if s.Status.ObservedGeneration < s.Generation {
		return waiting(api.ReasonWorkloadNotProgressing, "StatefulSet %s/%s is not observed by its controller yet", s.Namespace, s.Name)
	}
	if !want.Alone {
		return Verdict{State: Settled}
	}
	replicas := int32(1)
	if s.Spec.Replicas != nil {
		replicas = *s.Spec.Replicas
	}
	updated := replicas
	if u := s.Spec.UpdateStrategy; u.Type == appsv1.OnDeleteStatefulSetStrategyType {
		updated = 0
	} else if u.RollingUpdate != nil && u.RollingUpdate.Partition != nil {
		updated = max(0, replicas-*u.RollingUpdate.Partition)
	}
	if s.Status.UpdatedReplicas < updated || s.Status.AvailableReplicas < replicas {
		return waiting(api.ReasonWorkloadNotAvailable, "StatefulSet %s/%s has %d of %d replicas updated and %d of %d available",
			s.Namespace, s.Name, s.Status.UpdatedReplicas, updated, s.Status.AvailableReplicas, replicas)
	}
	return Verdict{State: Settled}
}

// Job is settled when it is complete, and failed when it has given up.
func Job(j *batchv1.Job) Verdict {
	for _, c := range j.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		if c.Type == batchv1.JobComplete {
			return Verdict{State: Settled}
		}
		if c.Type == batchv1.JobFailed {
			v := failed(api.ReasonWorkloadNotAvailable, "Job %s/%s failed %s: %s; delete it to have it run again", j.Namespace, j.Name, c.Reason, c.Message)
			v.Since = c.LastTransitionTime.Time
			return v
		}
	}
	return waiting(api.ReasonWorkloadNotAvailable, "Job %s/%s is not complete", j.Namespace, j.Name)
}

func deploymentCondition(d *appsv1.Deployment, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range d.Status.Conditions {
		if d.Status.Conditions[i].Type == kind {
			return &d.Status.Conditions[i]
		}
	}
	return nil
}

func failedSince(c *appsv1.DeploymentCondition, reason, format string, args ...any) Verdict {
	v := failed(reason, format, args...)
	v.Since = c.LastTransitionTime.Time
	return v
}
