package gate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// settled, waits and fails return verdicts on workloads.
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

//threat:status-objects-lies
func TestDeploymentSettlesWhenRolledOut(t *testing.T) {
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
		{"waits for its controller", 1, nil, waits("WorkloadNotProgressing", "Deployment a/b has not been observed by its controller yet")},
		{"ignores outdated conditions", 1, []appsv1.DeploymentCondition{exceeded}, waits(
			"WorkloadNotProgressing", "Deployment a/b has not been observed by its controller yet")},
		{"settles while it progresses", 2, []appsv1.DeploymentCondition{
			unavailable, says(appsv1.DeploymentProgressing, yes, "ReplicaSetUpdated"),
		}, settled},
		{"settles if only Available is false", 2, []appsv1.DeploymentCondition{unavailable}, settled},
		{"settles if not progressing for a harmless reason", 2, []appsv1.DeploymentCondition{
			says(appsv1.DeploymentProgressing, no, "DeploymentPaused"),
		}, settled},
		{"settles if the replica failure is over", 2, []appsv1.DeploymentCondition{says(appsv1.DeploymentReplicaFailure, no, "")}, settled},
		{"fails on a replica failure", 2, []appsv1.DeploymentCondition{
			exceeded, says(appsv1.DeploymentReplicaFailure, yes, "FailedCreate"),
		}, fails("WorkloadNotProgressing", "Deployment a/b has a replica failure FailedCreate: because")},
		{"fails if neither available nor progressing", 2, []appsv1.DeploymentCondition{
			unavailable, says(appsv1.DeploymentProgressing, no, "Stuck"),
		}, fails("WorkloadNotAvailable",
			"Deployment a/b is not available MinimumReplicasUnavailable: because; it is not progressing Stuck: because")},
		{"fails after its deadline", 2, []appsv1.DeploymentCondition{exceeded}, fails(
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

func TestAloneDeploymentWaitsForAllReplicas(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		spec                      *int32
		total, updated, available int32
		want                      gate.Verdict
	}{
		{"settles when all replicas are rolled out", new(int32(2)), 2, 2, 2, settled},
		{"settles with one replica by default", nil, 1, 1, 1, settled},
		{"settles when scaled to zero", new(int32(0)), 0, 0, 0, settled},
		{"waits for one replica by default", nil, 0, 0, 0, waits("WorkloadNotAvailable", "Deployment a/b has 0 of 1 replicas updated and 0 available")},
		{"waits for updated replicas", new(int32(2)), 2, 1, 2, waits("WorkloadNotAvailable", "Deployment a/b has 1 of 2 replicas updated and 2 available")},
		{"waits for old replicas to terminate", new(int32(2)), 3, 2, 2, waits("WorkloadNotAvailable", "Deployment a/b has 2 of 2 replicas updated and 2 available")},
		{"waits for available replicas", new(int32(2)), 2, 2, 1, waits("WorkloadNotAvailable", "Deployment a/b has 2 of 2 replicas updated and 1 available")},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: seen("1", 1)}
			d.Spec.Replicas = tt.spec
			d.Status = appsv1.DeploymentStatus{
				ObservedGeneration: 1, Replicas: tt.total, UpdatedReplicas: tt.updated, AvailableReplicas: tt.available,
			}
			assert.Equal(t, tt.want, gate.Deployment(d, gate.Want{Alone: true}))
			assert.Equal(t, settled, gate.Deployment(d, gate.Want{}), "its ClusterOperator represents it")
		})
	}
}

func TestDaemonSetSettlesWhenRolledOut(t *testing.T) {
	for _, tt := range []struct {
		name                        string
		strategy                    appsv1.DaemonSetUpdateStrategyType
		desired, updated, available int32
		want                        gate.Verdict
	}{
		{"settles when all pods are rolled out", appsv1.RollingUpdateDaemonSetStrategyType, 3, 3, 3, settled},
		{"counts only the nodes that accept its pods, not the two other nodes of the cluster", "", 1, 1, 1, settled},
		{"settles if no node needs a pod", appsv1.RollingUpdateDaemonSetStrategyType, 0, 0, 0, settled},
		{"waits for updated pods", "", 3, 2, 3, waits("WorkloadNotAvailable", "DaemonSet a/b has 2 of 3 pods updated and 3 of 3 available")},
		{"waits for available pods", "", 3, 3, 2, waits("WorkloadNotAvailable", "DaemonSet a/b has 3 of 3 pods updated and 2 of 3 available")},
		{"does not wait for updated pods with OnDelete", appsv1.OnDeleteDaemonSetStrategyType, 3, 0, 3, settled},
		{"still waits for available pods with OnDelete", appsv1.OnDeleteDaemonSetStrategyType, 3, 0, 2, waits(
			"WorkloadNotAvailable", "DaemonSet a/b has 0 of 0 pods updated and 2 of 3 available")},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			d := &appsv1.DaemonSet{ObjectMeta: seen("1", 1)}
			d.Spec.UpdateStrategy.Type = tt.strategy
			d.Status = appsv1.DaemonSetStatus{
				ObservedGeneration: 1, DesiredNumberScheduled: tt.desired, UpdatedNumberScheduled: tt.updated, NumberAvailable: tt.available,
			}
			assert.Equal(t, tt.want, gate.DaemonSet(d, gate.Want{Alone: true}))
			assert.Equal(t, settled, gate.DaemonSet(d, gate.Want{}), "its ClusterOperator represents it")
			d.Generation = 2
			assert.Equal(t, waits("WorkloadNotProgressing", "DaemonSet a/b has not been observed by its controller yet"),
				gate.DaemonSet(d, gate.Want{}))
		})
	}
}

func TestStatefulSetSettlesWhenRolledOut(t *testing.T) {
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
		{"settles when all replicas are rolled out", rolling(nil), new(int32(3)), 3, 3, settled},
		{"settles with one replica by default", appsv1.StatefulSetUpdateStrategy{}, nil, 1, 1, settled},
		{"waits for updated replicas", rolling(nil), new(int32(3)), 2, 3, waits(
			"WorkloadNotAvailable", "StatefulSet a/b has 2 of 3 replicas updated and 3 of 3 available")},
		{"waits for available replicas", rolling(new(int32(0))), new(int32(3)), 3, 1, waits(
			"WorkloadNotAvailable", "StatefulSet a/b has 3 of 3 replicas updated and 1 of 3 available")},
		{"waits for the replicas above the partition", rolling(new(int32(2))), new(int32(3)), 0, 3, waits(
			"WorkloadNotAvailable", "StatefulSet a/b has 0 of 1 replicas updated and 3 of 3 available")},
		{"ignores the replicas below the partition", rolling(new(int32(2))), new(int32(3)), 1, 3, settled},
		{"settles with a partition above all replicas", rolling(new(int32(9))), new(int32(3)), 0, 3, settled},
		{"does not wait for updated pods with OnDelete", onDelete, new(int32(3)), 0, 3, settled},
		{"still waits for available replicas with OnDelete", onDelete, new(int32(3)), 0, 2, waits(
			"WorkloadNotAvailable", "StatefulSet a/b has 0 of 0 replicas updated and 2 of 3 available")},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			s := &appsv1.StatefulSet{ObjectMeta: seen("1", 1)}
			s.Spec.UpdateStrategy, s.Spec.Replicas = tt.strategy, tt.spec
			s.Status = appsv1.StatefulSetStatus{ObservedGeneration: 1, UpdatedReplicas: tt.updated, AvailableReplicas: tt.available}
			assert.Equal(t, tt.want, gate.StatefulSet(s, gate.Want{Alone: true}))
			assert.Equal(t, settled, gate.StatefulSet(s, gate.Want{}), "its ClusterOperator represents it")
			s.Generation = 2
			assert.Equal(t, waits("WorkloadNotProgressing", "StatefulSet a/b has not been observed by its controller yet"),
				gate.StatefulSet(s, gate.Want{}))
		})
	}
}

func TestJobSettlesWhenComplete(t *testing.T) {
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
		{"waits for its pods to terminate", []batchv1.JobCondition{condition(batchv1.JobSuccessCriteriaMet, yes), condition(batchv1.JobFailureTarget, yes)}, waiting},
		{"waits while conditions are false", []batchv1.JobCondition{condition(batchv1.JobFailed, no), condition(batchv1.JobComplete, no)}, waiting},
		{"settles when the Job is complete", []batchv1.JobCondition{condition(batchv1.JobSuccessCriteriaMet, yes), condition(batchv1.JobComplete, yes)}, settled},
		{"fails when the Job has failed", []batchv1.JobCondition{condition(batchv1.JobFailureTarget, yes), condition(batchv1.JobFailed, yes)}, fails(
			"WorkloadNotAvailable", "Job a/b failed DeadlineExceeded: too slow; delete it to run it again")},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}
			j.Status = batchv1.JobStatus{Conditions: tt.conditions, Succeeded: 1, Failed: 1}
			assert.Equal(t, tt.want, gate.Job(j))
		})
	}
}

func TestSinceIsZeroIfTheConditionHasNoTime(t *testing.T) {
	d := &appsv1.Deployment{}
	d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue}}
	assert.Equal(t, time.Time{}, gate.Deployment(d, gate.Want{}).Since)
}

// TestInstallWaitsForWorkloadsWithoutClusterOperator checks workloads of a new platform, none of which has rolled out.
func TestInstallWaitsForWorkloadsWithoutClusterOperator(t *testing.T) {
	deployment := func(edit func(d *appsv1.Deployment)) gate.Object {
		d := &appsv1.Deployment{ObjectMeta: seen("1", 1)}
		edit(d)
		return d
	}
	unchanged := func(*appsv1.Deployment) {}
	for _, tt := range []struct {
		name     string
		manifest string
		live     gate.Object
		want     gate.State
	}{
		{"waits for a Deployment", "kind: Deployment", deployment(unchanged), gate.Waiting},
		{"waits for a Deployment that no watch has reported", "kind: Deployment", nil, gate.Waiting},
		{"waits for a StatefulSet", "kind: StatefulSet", &appsv1.StatefulSet{ObjectMeta: seen("1", 1)}, gate.Waiting},
		{"waits for a DaemonSet", "kind: DaemonSet", &appsv1.DaemonSet{ObjectMeta: seen("1", 1)}, gate.Waiting},
		{"does not wait without replicas", "kind: Deployment, spec: {replicas: 0}", nil, gate.Settled},
		{"does not wait for a StatefulSet without replicas", "kind: StatefulSet, spec: {replicas: 0}", nil, gate.Settled},
		{"does not wait for a paused Deployment", "kind: Deployment, spec: {paused: true}", nil, gate.Settled},
		{"does not wait for an annotated Deployment", annotated("Deployment", "false"), deployment(unchanged), gate.Settled},
		{"does not wait for an annotated DaemonSet", annotated("DaemonSet", "false"), &appsv1.DaemonSet{ObjectMeta: seen("1", 1)}, gate.Settled},
		{"ignores another value of the annotation", annotated("Deployment", "no"), deployment(unchanged), gate.Waiting},
		{"does not wait if another client scaled it to zero", "kind: Deployment", deployment(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32) }), gate.Settled},
		{"waits if the manifest undoes that", "kind: Deployment, spec: {replicas: 1}", deployment(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32) }), gate.Waiting},
		{"does not wait if another client paused it", "kind: Deployment", deployment(func(d *appsv1.Deployment) { d.Spec.Paused = true }), gate.Settled},
		{"waits if the manifest resumes it", "kind: Deployment, spec: {paused: false}", deployment(func(d *appsv1.Deployment) { d.Spec.Paused = true }), gate.Waiting},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			m := parsed(t, tt.manifest)
			assert.Equal(t, tt.want, gate.Check(tt.live, gate.Want{Manifest: m, Mode: release.Initializing, Alone: true}).State)
			assert.Equal(t, settled, gate.Check(tt.live, gate.Want{Manifest: m, Mode: release.Initializing}), "a ClusterOperator represents it")
		})
	}
}

func TestScaledToZeroIsTheChoiceOfAnotherClient(t *testing.T) {
	for _, tt := range []struct {
		name     string
		manifest string
		live     gate.Object
		want     bool
	}{
		{"reports a Deployment", "kind: Deployment", &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32)}}, true},
		{"reports a StatefulSet", "kind: StatefulSet, spec: {replicas: null}", &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: new(int32)}}, true},
		{"ignores a number of the manifest", "kind: Deployment, spec: {replicas: 0}", &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32)}}, false},
		{"ignores a Deployment with the default", "kind: Deployment", &appsv1.Deployment{}, false},
		{"ignores a DaemonSet", "kind: DaemonSet", &appsv1.DaemonSet{}, false},
	} {
		t.Run("it "+tt.name, func(t *testing.T) { assert.Equal(t, tt.want, gate.ScaledToZero(tt.live, parsed(t, tt.manifest))) })
	}
}

// TestOptingOutAppliesToUpdates checks a Deployment that an update has changed and whose new pods do not start, before and after its deadline.
func TestOptingOutAppliesToUpdates(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: seen("1", 2)}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1}
	for text, want := range map[string]gate.State{
		"kind: Deployment": gate.Waiting, annotated("Deployment", "false"): gate.Settled, "kind: Deployment, spec: {paused: true}": gate.Settled,
	} {
		check := func(d *appsv1.Deployment, alone bool) gate.State {
			return gate.Check(d, gate.Want{Manifest: parsed(t, text), Mode: release.Updating, Alone: alone}).State
		}
		assert.Equal(t, want, check(d, true), text)
		late := d.DeepCopy()
		late.Status.Conditions = []appsv1.DeploymentCondition{says(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded")}
		if want == gate.Waiting {
			want = gate.Failed
		}
		assert.Equal(t, want, check(late, true), text)
		assert.Equal(t, want, check(late, false), text)
	}
}

// TestOwnDeploymentNeedsOneReplica checks the operator's own Deployment. On the host network of a single node, its second pod never starts.
func TestOwnDeploymentNeedsOneReplica(t *testing.T) {
	own := "kind: Deployment, metadata: {namespace: openshift-cluster-version, name: cluster-version-operator}"
	stuck := []appsv1.DeploymentCondition{
		says(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable"),
		says(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded"),
	}
	for _, tt := range []struct {
		name                      string
		manifest                  string
		total, updated, available int32
		conditions                []appsv1.DeploymentCondition
		want                      gate.State
	}{
		{"settles with one of two replicas", own, 2, 2, 1, nil, gate.Settled},
		{"settles after the deadline of the second replica", own, 2, 2, 1, stuck, gate.Settled},
		{"waits for the first replica", own, 2, 2, 0, nil, gate.Waiting},
		{"fails without any replica", own, 2, 2, 0, stuck, gate.Failed},
		{"waits for a new replica during an update", own, 3, 1, 2, nil, gate.Waiting},
		{"settles with a new replica during an update", own, 3, 1, 3, nil, gate.Settled},
		{"waits for all replicas of other Deployments", "kind: Deployment", 2, 2, 1, nil, gate.Waiting},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: seen("1", 1)}
			d.Spec.Replicas = new(int32(2))
			d.Status = appsv1.DeploymentStatus{
				ObservedGeneration: 1, Replicas: tt.total, UpdatedReplicas: tt.updated, AvailableReplicas: tt.available, Conditions: tt.conditions,
			}
			for _, mode := range release.Modes() {
				assert.Equal(t, tt.want, gate.Check(d, gate.Want{Manifest: parsed(t, tt.manifest), Mode: mode, Alone: true}).State, mode)
			}
			d.Status.ObservedGeneration = 0
			assert.Equal(t, gate.Waiting, gate.Check(d, gate.Want{Manifest: parsed(t, tt.manifest), Mode: release.Initializing, Alone: true}).State)
		})
	}
}

// parsed returns the manifest of a workload a/b, unless the text has other metadata.
func parsed(t *testing.T, text string) *manifest.Manifest {
	t.Helper()
	if !strings.Contains(text, "metadata:") {
		text += ", metadata: {namespace: a, name: b}"
	}
	list, err := manifest.Parse("0000_10_a_01.yaml", []byte("{apiVersion: apps/v1, "+text+"}"), manifest.Limits{})
	require.NoError(t, err)
	return list[0]
}

// annotated returns the text of a workload with the annotation that opts out.
func annotated(kind, value string) string {
	return fmt.Sprintf("kind: %s, metadata: {namespace: a, name: b, annotations: {cvo.cluster-version.github.io/wait: %q}}", kind, value)
}
