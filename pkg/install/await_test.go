package install

import (
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
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
