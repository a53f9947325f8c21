package gate

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

const appsGroup = appsv1.GroupName

// optsOut reports whether no rollout waits for the pods of a workload: its manifest has api.WaitAnnotation, it is paused, or it has no
// replicas. If the manifest leaves pausing or scaling to other clients, the live object decides.
func optsOut(obj Object, m *manifest.Manifest) bool {
	if m.Annotation(api.WaitAnnotation) == "false" {
		return true
	}
	replicas, scaled, _ := unstructured.NestedInt64(m.Object.Object, "spec", "replicas")
	if live := liveReplicas(obj); !scaled && live != nil {
		replicas, scaled = int64(*live), true
	}
	paused, pauses, _ := unstructured.NestedBool(m.Object.Object, "spec", "paused")
	if d, ok := obj.(*appsv1.Deployment); ok && !pauses {
		paused = d.Spec.Paused
	}
	return scaled && replicas == 0 || paused && m.Is(appsGroup, "Deployment")
}

// ScaledToZero reports whether a workload has no replicas although its manifest leaves their number to other clients. Its gate settles
// without any pod.
func ScaledToZero(obj Object, m *manifest.Manifest) bool {
	live := liveReplicas(obj)
	return live != nil && *live == 0 && m.LeavesOut("spec", "replicas")
}

// liveReplicas returns the number of replicas of a Deployment or StatefulSet; nil for other kinds.
func liveReplicas(obj Object) *int32 {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return o.Spec.Replicas
	case *appsv1.StatefulSet:
		return o.Spec.Replicas
	}
	return nil
}

// Deployment settles once its controller has observed the applied generation and reports no failure. If Alone is set, every replica must
// also be updated and available. The operator's own Deployment settles with one available replica of the applied generation, because the
// others are standbys. On the host network of a cluster with one node, they never start.
func Deployment(d *appsv1.Deployment, want Want) Verdict {
	if d.Status.ObservedGeneration < d.Generation {
		return waiting(api.ReasonWorkloadNotProgressing, "Deployment %s/%s has not been observed by its controller yet", d.Namespace, d.Name)
	}
	s := d.Status
	if want.Manifest != nil && manifest.IsOperatorDeployment(want.Manifest.Object) && s.AvailableReplicas > s.Replicas-s.UpdatedReplicas {
		return Verdict{State: Settled} // more are available than there are old ones
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
	if s.UpdatedReplicas < replicas || s.Replicas > s.UpdatedReplicas || s.AvailableReplicas < replicas {
		return waiting(api.ReasonWorkloadNotAvailable, "Deployment %s/%s has %d of %d replicas updated and %d available",
			d.Namespace, d.Name, s.UpdatedReplicas, replicas, s.AvailableReplicas)
	}
	return Verdict{State: Settled}
}

// DaemonSet settles like a Deployment. A DaemonSet reports no failures, so the gate only waits for its rollout. It counts the nodes on which
// the controller can schedule a pod: not those that the DaemonSet does not select, and not those with a taint that it does not tolerate,
// such as a node that is not ready. With the OnDelete strategy the gate does not wait for updated pods, because no controller updates them.
func DaemonSet(d *appsv1.DaemonSet, want Want) Verdict {
	if d.Status.ObservedGeneration < d.Generation {
		return waiting(api.ReasonWorkloadNotProgressing, "DaemonSet %s/%s has not been observed by its controller yet", d.Namespace, d.Name)
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

// StatefulSet settles like a Deployment. With a partition or the OnDelete strategy, the gate waits only for pods that the controller
// updates.
func StatefulSet(s *appsv1.StatefulSet, want Want) Verdict {
	if s.Status.ObservedGeneration < s.Generation {
		return waiting(api.ReasonWorkloadNotProgressing, "StatefulSet %s/%s has not been observed by its controller yet", s.Namespace, s.Name)
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

// Job settles once the Job is complete, and fails once the Job has failed permanently.
func Job(j *batchv1.Job) Verdict {
	for _, c := range j.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		if c.Type == batchv1.JobComplete {
			return Verdict{State: Settled}
		}
		if c.Type == batchv1.JobFailed {
			v := failed(api.ReasonWorkloadNotAvailable, "Job %s/%s failed %s: %s; delete it to run it again", j.Namespace, j.Name, c.Reason, c.Message)
			v.Since = c.LastTransitionTime.Time
			return v
		}
	}
	return waiting(api.ReasonWorkloadNotAvailable, "Job %s/%s is not complete", j.Namespace, j.Name)
}

// isComplete reports whether obj is a complete Job. Its deletion, for example after its TTL, does not undo its work.
func isComplete(obj Object) bool {
	job, ok := obj.(*batchv1.Job)
	return ok && Job(job).State == Settled
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
