package gate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/gate"
)

// settled, waits and fails are verdicts on workloads.
var settled = gate.Verdict{State: gate.Settled}

func waits(reason, message string) gate.Verdict {
	return gate.Verdict{State: gate.Waiting, Patience: gate.UntilSlow, Reason: reason, Message: message}
}

func fails(reason, message string) gate.Verdict {
	return gate.Verdict{State: gate.Failed, Reason: reason, Message: message, Since: then.Time}
}

func says(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason string) appsv1.DeploymentCondition {
	return appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, Message: "because", LastTransitionTime: then}
}

func TestDeployment(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	exceeded := says(appsv1.DeploymentProgressing, no, "ProgressDeadlineExceeded")
	unavailable := says(appsv1.DeploymentAvailable, no, "MinimumReplicasUnavailable")
	for _, tt := range []struct {
		name       string
		observed   int64
		conditions []appsv1.DeploymentCondition
		want       gate.Verdict
	}{
		{"settles without conditions", 2, nil, settled},
		{"waits for its controller", 1, nil, waits("WorkloadNotProgressing", "Deployment a/b is not observed by its controller yet")},
		{"does not fail on what its controller said before", 1, []appsv1.DeploymentCondition{exceeded}, waits(
			"WorkloadNotProgressing", "Deployment a/b is not observed by its controller yet")},
		{"settles while it progresses", 2, []appsv1.DeploymentCondition{
			unavailable, says(appsv1.DeploymentProgressing, yes, "ReplicaSetUpdated"),
		}, settled},
		{"settles while not available alone", 2, []appsv1.DeploymentCondition{unavailable}, settled},
		{"settles if not progressing for a harmless reason", 2, []appsv1.DeploymentCondition{
			says(appsv1.DeploymentProgressing, no, "DeploymentPaused"),
		}, settled},
		{"settles if no replica fails", 2, []appsv1.DeploymentCondition{says(appsv1.DeploymentReplicaFailure, no, "")}, settled},
		{"fails on a replica failure", 2, []appsv1.DeploymentCondition{
			exceeded, says(appsv1.DeploymentReplicaFailure, yes, "FailedCreate"),
		}, fails("WorkloadNotProgressing", "Deployment a/b has a replica failure FailedCreate: because")},
		{"fails if neither available nor progressing", 2, []appsv1.DeploymentCondition{
			unavailable, says(appsv1.DeploymentProgressing, no, "Stuck"),
		}, fails("WorkloadNotAvailable",
			"Deployment a/b is not available MinimumReplicasUnavailable: because; it is not progressing Stuck: because")},
		{"fails if its deadline passed", 2, []appsv1.DeploymentCondition{exceeded}, fails(
			"WorkloadNotProgressing", "Deployment a/b is not progressing ProgressDeadlineExceeded: because")},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: seen("1", 2)}
			d.Status.ObservedGeneration, d.Status.Conditions = tt.observed, tt.conditions
			d.Status.Replicas, d.Status.UpdatedReplicas = 3, 1
			assert.Equal(t, tt.want, gate.Deployment(d, gate.Want{}))
		})
	}
}

func TestDeploymentAlone(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		spec                      *int32
		total, updated, available int32
		want                      gate.Verdict
	}{
		{"settles rolled out", new(int32(2)), 2, 2, 2, settled},
		{"settles with one replica by default", nil, 1, 1, 1, settled},
		{"settles scaled to nothing", new(int32(0)), 0, 0, 0, settled},
		{"waits for one replica by default", nil, 0, 0, 0, waits("WorkloadNotAvailable", "Deployment a/b has 0 of 1 replicas updated and 0 available")},
		{"waits for updated replicas", new(int32(2)), 2, 1, 2, waits("WorkloadNotAvailable", "Deployment a/b has 1 of 2 replicas updated and 2 available")},
		{"waits for old replicas to end", new(int32(2)), 3, 2, 2, waits("WorkloadNotAvailable", "Deployment a/b has 2 of 2 replicas updated and 2 available")},
		{"waits for available replicas", new(int32(2)), 2, 2, 1, waits("WorkloadNotAvailable", "Deployment a/b has 2 of 2 replicas updated and 1 available")},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: seen("1", 1)}
			d.Spec.Replicas = tt.spec
			d.Status = appsv1.DeploymentStatus{
				ObservedGeneration: 1, Replicas: tt.total, UpdatedReplicas: tt.updated, AvailableReplicas: tt.available,
			}
			assert.Equal(t, tt.want, gate.Deployment(d, gate.Want{Alone: true}))
			assert.Equal(t, settled, gate.Deployment(d, gate.Want{}), "a ClusterOperator speaks for it")
		})
	}
}

func TestDaemonSet(t *testing.T) {
	for _, tt := range []struct {
		name                        string
		strategy                    appsv1.DaemonSetUpdateStrategyType
		desired, updated, available int32
		want                        gate.Verdict
	}{
		{"settles rolled out", appsv1.RollingUpdateDaemonSetStrategyType, 3, 3, 3, settled},
		{"settles where no node wants it", appsv1.RollingUpdateDaemonSetStrategyType, 0, 0, 0, settled},
		{"waits for updated pods", "", 3, 2, 3, waits("WorkloadNotAvailable", "DaemonSet a/b has 2 of 3 pods updated and 3 of 3 available")},
		{"waits for available pods", "", 3, 3, 2, waits("WorkloadNotAvailable", "DaemonSet a/b has 3 of 3 pods updated and 2 of 3 available")},
		{"waits for no update that nobody makes", appsv1.OnDeleteDaemonSetStrategyType, 3, 0, 3, settled},
		{"waits for available pods with OnDelete too", appsv1.OnDeleteDaemonSetStrategyType, 3, 0, 2, waits(
			"WorkloadNotAvailable", "DaemonSet a/b has 0 of 0 pods updated and 2 of 3 available")},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			d := &appsv1.DaemonSet{ObjectMeta: seen("1", 1)}
			d.Spec.UpdateStrategy.Type = tt.strategy
			d.Status = appsv1.DaemonSetStatus{
				ObservedGeneration: 1, DesiredNumberScheduled: tt.desired, UpdatedNumberScheduled: tt.updated, NumberAvailable: tt.available,
			}
			assert.Equal(t, tt.want, gate.DaemonSet(d, gate.Want{Alone: true}))
			assert.Equal(t, settled, gate.DaemonSet(d, gate.Want{}), "a ClusterOperator speaks for it")
			d.Generation = 2
			assert.Equal(t, waits("WorkloadNotProgressing", "DaemonSet a/b is not observed by its controller yet"),
				gate.DaemonSet(d, gate.Want{}))
		})
	}
}

func TestStatefulSet(t *testing.T) {
	rolling := func(partition *int32) appsv1.StatefulSetUpdateStrategy {
		return appsv1.StatefulSetUpdateStrategy{
			Type:          appsv1.RollingUpdateStatefulSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: partition},
		}
	}
	onDelete := appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	for _, tt := range []struct {
		name               string
		strategy           appsv1.StatefulSetUpdateStrategy
		spec               *int32
		updated, available int32
		want               gate.Verdict
	}{
		{"settles rolled out", rolling(nil), new(int32(3)), 3, 3, settled},
		{"settles with one replica by default", appsv1.StatefulSetUpdateStrategy{}, nil, 1, 1, settled},
		{"waits for updated replicas", rolling(nil), new(int32(3)), 2, 3, waits(
			"WorkloadNotAvailable", "StatefulSet a/b has 2 of 3 replicas updated and 3 of 3 available")},
		{"waits for available replicas", rolling(new(int32(0))), new(int32(3)), 3, 1, waits(
			"WorkloadNotAvailable", "StatefulSet a/b has 3 of 3 replicas updated and 1 of 3 available")},
		{"waits for the replicas above the partition", rolling(new(int32(2))), new(int32(3)), 0, 3, waits(
			"WorkloadNotAvailable", "StatefulSet a/b has 0 of 1 replicas updated and 3 of 3 available")},
		{"settles below the partition", rolling(new(int32(2))), new(int32(3)), 1, 3, settled},
		{"settles with a partition above all", rolling(new(int32(9))), new(int32(3)), 0, 3, settled},
		{"waits for no update that nobody makes", onDelete, new(int32(3)), 0, 3, settled},
		{"waits for available replicas with OnDelete too", onDelete, new(int32(3)), 0, 2, waits(
			"WorkloadNotAvailable", "StatefulSet a/b has 0 of 0 replicas updated and 2 of 3 available")},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			s := &appsv1.StatefulSet{ObjectMeta: seen("1", 1)}
			s.Spec.UpdateStrategy, s.Spec.Replicas = tt.strategy, tt.spec
			s.Status = appsv1.StatefulSetStatus{ObservedGeneration: 1, UpdatedReplicas: tt.updated, AvailableReplicas: tt.available}
			assert.Equal(t, tt.want, gate.StatefulSet(s, gate.Want{Alone: true}))
			assert.Equal(t, settled, gate.StatefulSet(s, gate.Want{}), "a ClusterOperator speaks for it")
			s.Generation = 2
			assert.Equal(t, waits("WorkloadNotProgressing", "StatefulSet a/b is not observed by its controller yet"),
				gate.StatefulSet(s, gate.Want{}))
		})
	}
}

func TestJob(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	condition := func(kind batchv1.JobConditionType, status corev1.ConditionStatus) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: status, Reason: "DeadlineExceeded", Message: "too slow", LastTransitionTime: then}
	}
	waiting := waits("WorkloadNotAvailable", "Job a/b is not complete")
	for _, tt := range []struct {
		name       string
		conditions []batchv1.JobCondition
		want       gate.Verdict
	}{
		{"waits without conditions", nil, waiting},
		{"waits while suspended", []batchv1.JobCondition{condition(batchv1.JobSuspended, yes)}, waiting},
		{"waits for its pods to end", []batchv1.JobCondition{condition(batchv1.JobSuccessCriteriaMet, yes), condition(batchv1.JobFailureTarget, yes)}, waiting},
		{"waits while conditions are false", []batchv1.JobCondition{condition(batchv1.JobFailed, no), condition(batchv1.JobComplete, no)}, waiting},
		{"settles complete", []batchv1.JobCondition{condition(batchv1.JobSuccessCriteriaMet, yes), condition(batchv1.JobComplete, yes)}, settled},
		{"fails when it gave up", []batchv1.JobCondition{condition(batchv1.JobFailureTarget, yes), condition(batchv1.JobFailed, yes)}, fails(
			"WorkloadNotAvailable", "Job a/b failed DeadlineExceeded: too slow; delete it to have it run again")},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}
			j.Status = batchv1.JobStatus{Conditions: tt.conditions, Succeeded: 1, Failed: 1}
			assert.Equal(t, tt.want, gate.Job(j))
		})
	}
}

func TestSinceIsZeroWhereNothingTells(t *testing.T) {
	d := &appsv1.Deployment{}
	d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue}}
	assert.Equal(t, time.Time{}, gate.Deployment(d, gate.Want{}).Since)
}
