package actor

import (
	"context"
	"encoding/json"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// reconcileWorkload reports a workload as done, WorkloadDelay after its spec was first seen.
func (a *actor) reconcileWorkload(ctx context.Context, k key) (again time.Duration, err error) {
	obj, found, err := a.caches.workloads[k.kind].GetByKey(k.namespace + "/" + k.name)
	if err != nil || !found {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.workloads, k)
		return 0, err
	}
	now := time.Now()
	status := done(obj, now)
	if status == nil {
		return 0, nil
	}
	meta := obj.(metav1.Object) // all four kinds implement it
	if left := a.seenSince(k, meta.GetUID(), meta.GetGeneration(), now).Add(a.options.WorkloadDelay).Sub(now); left > 0 {
		return left, nil
	}
	if a.wroteFrom(k) == meta.GetResourceVersion() {
		return 0, nil // the cache is behind our own write
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": meta.GetUID()}, "status": status})
	if err != nil {
		return 0, err
	}
	if err := a.writeWorkload(ctx, k, patch); err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.workloads[k]
	s.wrote = meta.GetResourceVersion()
	a.workloads[k] = s
	return 0, nil
}

// wroteFrom returns the last replaced resource version of a workload.
func (a *actor) wroteFrom(k key) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.workloads[k].wrote
}

// seenSince returns the time when this generation of a workload was first seen.
func (a *actor) seenSince(k key, uid types.UID, generation int64, now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.workloads[k]
	if s.uid != uid || s.generation != generation {
		s = seen{uid: uid, generation: generation, since: now}
		a.workloads[k] = s
	}
	return s.since
}

func (a *actor) writeWorkload(ctx context.Context, k key, patch []byte) error {
	o := metav1.PatchOptions{FieldManager: UserAgent}
	var err error
	switch k.kind {
	case deploymentKind:
		_, err = a.client.AppsV1().Deployments(k.namespace).Patch(ctx, k.name, types.MergePatchType, patch, o, "status")
	case daemonSetKind:
		_, err = a.client.AppsV1().DaemonSets(k.namespace).Patch(ctx, k.name, types.MergePatchType, patch, o, "status")
	case statefulSetKind:
		_, err = a.client.AppsV1().StatefulSets(k.namespace).Patch(ctx, k.name, types.MergePatchType, patch, o, "status")
	case jobKind:
		_, err = a.client.BatchV1().Jobs(k.namespace).Patch(ctx, k.name, types.MergePatchType, patch, o, "status")
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// done returns the status of a workload whose controller and pods have finished. It returns nil if the workload already has that status or
// is being deleted.
func done(obj any, now time.Time) any {
	if o, ok := obj.(metav1.Object); ok && o.GetDeletionTimestamp() != nil {
		return nil
	}
	at := metav1.NewTime(now.Truncate(time.Second))
	switch o := obj.(type) {
	case *appsv1.Deployment:
		want := deploymentDone(o, at)
		return unless(equality.Semantic.DeepEqual(want, o.Status), want)
	case *appsv1.DaemonSet:
		want := daemonSetDone(o)
		return unless(equality.Semantic.DeepEqual(want, o.Status), want)
	case *appsv1.StatefulSet:
		want := statefulSetDone(o)
		return unless(equality.Semantic.DeepEqual(want, o.Status), want)
	case *batchv1.Job:
		if ptr.Deref(o.Spec.Suspend, false) || o.Status.CompletionTime != nil {
			return nil
		}
		return jobDone(o, at)
	}
	return nil
}

func unless(condition bool, status any) any {
	if condition {
		return nil
	}
	return status
}

func deploymentDone(d *appsv1.Deployment, at metav1.Time) appsv1.DeploymentStatus {
	status := *d.Status.DeepCopy()
	n := ptr.Deref(d.Spec.Replicas, 1)
	status.ObservedGeneration = d.Generation
	status.Replicas, status.UpdatedReplicas, status.ReadyReplicas, status.AvailableReplicas = n, n, n, n
	status.UnavailableReplicas = 0
	status.Conditions = nil
	for _, c := range []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable", Message: "Deployment has minimum availability."},
		{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable", Message: "All replicas are updated and available."},
	} {
		c.LastUpdateTime, c.LastTransitionTime = at, at
		for _, old := range d.Status.Conditions {
			if old.Type == c.Type && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
				if d.Status.ObservedGeneration == d.Generation {
					c.LastUpdateTime = old.LastUpdateTime
				}
			}
		}
		status.Conditions = append(status.Conditions, c)
	}
	return status
}

// daemonSetDone returns the status in a cluster with one node.
func daemonSetDone(d *appsv1.DaemonSet) appsv1.DaemonSetStatus {
	const nodes = 1
	status := *d.Status.DeepCopy()
	status.ObservedGeneration = d.Generation
	status.DesiredNumberScheduled, status.CurrentNumberScheduled, status.UpdatedNumberScheduled = nodes, nodes, nodes
	status.NumberReady, status.NumberAvailable = nodes, nodes
	status.NumberMisscheduled, status.NumberUnavailable = 0, 0
	return status
}

func statefulSetDone(s *appsv1.StatefulSet) appsv1.StatefulSetStatus {
	status := *s.Status.DeepCopy()
	n := ptr.Deref(s.Spec.Replicas, 1)
	status.ObservedGeneration = s.Generation
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas = n, n, n
	status.CurrentReplicas, status.UpdatedReplicas = n, n
	if s.Status.ObservedGeneration != s.Generation || s.Status.UpdateRevision == "" {
		status.UpdateRevision = s.Name + "-" + string(s.UID)[:8]
		status.CurrentRevision = status.UpdateRevision
	}
	return status
}

// jobDone follows the API server's rules: a Job completes only with SuccessCriteriaMet before Complete, with a start and a completion time,
// and without active or uncounted pods.
func jobDone(j *batchv1.Job, at metav1.Time) batchv1.JobStatus {
	status := *j.Status.DeepCopy()
	if status.StartTime == nil {
		status.StartTime = &at
	}
	status.CompletionTime = &at
	status.Active, status.Ready, status.Terminating = 0, ptr.To[int32](0), ptr.To[int32](0)
	status.Succeeded = max(1, ptr.Deref(j.Spec.Completions, 1))
	status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		status.Conditions = append(status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonCompletionsReached,
			Message: "Reached expected number of succeeded pods", LastProbeTime: at, LastTransitionTime: at,
		})
	}
	return status
}
