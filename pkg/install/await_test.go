package install

import (
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestOneReplicaIsEnough checks the operator's Deployment. On the host network of a cluster with one node, its second pod never starts.
func TestOneReplicaIsEnough(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status appsv1.DeploymentStatus
		want   bool
	}{
		{"waits for the controller", appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}, false},
		{"waits for the first pod", appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2}, false},
		{"runs with one of two pods", appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 1}, true},
		{"runs with both pods", appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}, true},
		{"waits for a pod of the new template", appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 1, AvailableReplicas: 2}, false},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			d := &appsv1.Deployment{}
			d.Generation, d.Spec.Replicas, d.Status = 1, new(int32(2)), tt.status
			assert.Equal(t, tt.want, diagnose([]*appsv1.Deployment{d}, nil, nil).Running)
		})
	}
}

// TestFinishedPodsAreNoTroubleOnceAReplicaIsAvailable has an evicted pod, and one that a kubelet has rejected.
func TestFinishedPodsAreNoTroubleOnceAReplicaIsAvailable(t *testing.T) {
	evicted, rejected := &corev1.Pod{}, &corev1.Pod{}
	evicted.Name, rejected.Name, rejected.UID = "evicted", "rejected", "rejected"
	evicted.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", ContainerStatuses: []corev1.ContainerStatus{{
		Name: "cluster-version-operator", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}},
	}}}
	rejected.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu"}
	warning := &corev1.Event{
		InvolvedObject: corev1.ObjectReference{UID: rejected.UID}, Type: corev1.EventTypeWarning, Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu",
	}
	troubles := func(available int32) []string {
		d := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: available}}
		return diagnose([]*appsv1.Deployment{d}, []*corev1.Pod{evicted, rejected}, []*corev1.Event{warning}).Troubles
	}
	assert.Equal(t, []string{
		"Pod evicted: container cluster-version-operator: terminated: exit code 137 (Error): ",
		"Pod rejected: OutOfcpu: Node didn't have enough resource: cpu",
	}, troubles(0))
	assert.Empty(t, troubles(1))
}
