package pods_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/engine/pods"
)

func TestOfNamesReasonAndImage(t *testing.T) {
	t.Parallel()
	container := func(state, last corev1.ContainerState, restarts int32) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: state, LastTerminationState: last, RestartCount: restarts}}}
	}
	waits := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	crashed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "no config"}}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	const image = "registry.example/web:1"
	crash := pods.Trouble{Reason: "CrashLoopBackOff", Text: "keeps stopping: its container ended with exit code 1: Error: no config", Image: image}
	pull := pods.Trouble{Reason: "ImagePullBackOff", Text: "cannot pull its image: ImagePullBackOff: not found", Image: image}
	for _, tt := range []struct {
		name   string
		status corev1.PodStatus
		want   pods.Trouble
	}{
		{"nothing for a new pod", corev1.PodStatus{}, pods.Trouble{}},
		{"nothing for a starting container", container(waits("ContainerCreating", ""), corev1.ContainerState{}, 0), pods.Trouble{}},
		{"nothing for a running container", container(running, corev1.ContainerState{}, 0), pods.Trouble{}},
		{"a failed pull", container(waits("ErrImagePull", "not found"), corev1.ContainerState{}, 0), pull},
		{"the next failed pull in the same way", container(waits("ImagePullBackOff", `Back-off pulling image "x": ErrImagePull: not found`), corev1.ContainerState{}, 0), pull},
		{"an invalid configuration", container(waits("CreateContainerConfigError", "secret not found"), corev1.ContainerState{}, 0), pods.Trouble{
			Reason: "CreateContainerConfigError", Text: "cannot start: CreateContainerConfigError: secret not found", Image: image,
		}},
		{"a first crash", container(crashed, corev1.ContainerState{}, 0), pods.Trouble{Reason: "Error", Text: crash.Text, Image: image}},
		{"a crash that ended", container(crashed, crashed, 2), crash},
		{"a crash before the next start", container(waits("CrashLoopBackOff", "back-off"), crashed, 2), crash},
		{"a crash after the next start", container(running, crashed, 3), crash},
		{"an unscheduled pod", corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available",
		}}}, pods.Trouble{Reason: "Unschedulable", Text: "is not scheduled: Unschedulable: 0/1 nodes are available"}},
		{"an evicted pod", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"}, pods.Trouble{
			Reason: "Evicted", Text: "failed: Evicted: low on memory",
		}},
		{"a failed pod without a reason", corev1.PodStatus{Phase: corev1.PodFailed}, pods.Trouble{Reason: "Failed", Text: "failed: no reason given"}},
	} {
		t.Run("reports "+tt.name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}}, Status: tt.status}
			assert.Equal(t, tt.want, pods.Of(pod))
		})
	}
	long := &corev1.Pod{Status: container(waits("CreateContainerError", strings.Repeat("x", 1<<20)), corev1.ContainerState{}, 0)}
	assert.Less(t, len(pods.Of(long).Text), 1000)
}
