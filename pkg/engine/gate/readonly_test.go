package gate_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/release"
)

// TestCheckOnlyReads checks that gates do not change objects: they share them with all other readers of the cache. The lists are unsorted
// to catch code that sorts them.
func TestCheckOnlyReads(t *testing.T) {
	meta := seen("1", 2)
	meta.Labels, meta.Finalizers = map[string]string{"b": "2", "a": "1"}, []string{"example.com/b", "example.com/a"}
	conditioned := gate.Conditioned{ObjectMeta: meta, Status: gate.ConditionedStatus{Conditions: []metav1.Condition{
		{Type: "NamesAccepted", Status: "True", LastTransitionTime: then}, {Type: "Established", Status: "True"}, {Type: "Available", Status: "True"},
	}}}
	operator := func(available, degraded configv1.ConditionStatus) *configv1.ClusterOperator {
		co := &configv1.ClusterOperator{ObjectMeta: meta}
		co.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
			{Type: configv1.OperatorProgressing, Status: configv1.ConditionTrue, LastTransitionTime: then},
			{Type: configv1.OperatorDegraded, Status: degraded},
			{Type: configv1.OperatorAvailable, Status: available},
		}
		co.Status.Versions = []configv1.OperandVersion{{Name: "operator", Version: "1.0.0"}, {Name: "a", Version: "2"}}
		co.Status.RelatedObjects = []configv1.ObjectReference{{Name: "b"}, {Name: "a"}}
		return co
	}
	operators := of("config.openshift.io/v1", "ClusterOperator", "", "b")
	operators.Object.Object["status"] = map[string]any{"versions": []any{
		map[string]any{"name": "operator", "version": "1.1.0"}, map[string]any{"name": "a", "version": "2"},
	}}
	for _, object := range []gate.Object{
		operator(configv1.ConditionTrue, configv1.ConditionFalse), operator(configv1.ConditionFalse, configv1.ConditionTrue),
		operator(configv1.ConditionTrue, configv1.ConditionTrue),
		&gate.CRD{Conditioned: conditioned}, &gate.APIService{Conditioned: conditioned},
		&appsv1.Deployment{ObjectMeta: meta, Status: appsv1.DeploymentStatus{ObservedGeneration: 2, Conditions: []appsv1.DeploymentCondition{
			says(appsv1.DeploymentReplicaFailure, "True", "B"), says(appsv1.DeploymentAvailable, "False", "A"),
		}}},
		&appsv1.DaemonSet{ObjectMeta: meta}, &appsv1.StatefulSet{ObjectMeta: meta},
		&batchv1.Job{ObjectMeta: meta, Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobSuspended, Status: "False"}, {Type: batchv1.JobFailed, Status: "True"},
		}}},
	} {
		deleted, ok := object.DeepCopyObject().(gate.Object)
		assert.True(t, ok)
		deleted.SetDeletionTimestamp(&then)
		for _, cached := range []gate.Object{object, deleted} {
			before, manifestBefore := cached.DeepCopyObject(), operators.Object.DeepCopy()
			for _, mode := range release.Modes() {
				for _, alone := range []bool{false, true} {
					gate.Check(cached, gate.Want{Manifest: operators, Mode: mode, UID: meta.UID, Generation: 2, Alone: alone})
				}
			}
			if co, isOperator := cached.(*configv1.ClusterOperator); isOperator {
				assert.Equal(t, then.Time, gate.ProgressingSince(co))
			}
			assert.Equal(t, before, cached)
			assert.Equal(t, manifestBefore, operators.Object)
		}
	}
}
