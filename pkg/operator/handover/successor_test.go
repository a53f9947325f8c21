package handover

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/engine/rollout"
)

const (
	releaseA = "registry.example/release@sha256:aaaa"
	releaseB = "registry.example/release@sha256:bbbb"
)

func TestSuccessorIsFoundAmongPods(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pod := func(name, image string, age time.Duration, status corev1.PodStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age))},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "operator", Image: image}}},
			Status:     status,
		}
	}
	container := func(s corev1.ContainerStatus) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{s}}
	}
	waits := func(reason, message string) corev1.PodStatus {
		return container(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}})
	}
	crashed := &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "error: no trust\n"}
	isReady := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	failing := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": "ReplicaFailure", "status": "True", "message": `pods "x" is forbidden: exceeded quota`, "lastTransitionTime": "2026-01-02T03:04:00Z",
	}}}}}
	const trouble = "pod new cannot pull its image: ImagePullBackOff: registry says no"
	for _, tt := range []struct {
		name       string
		deployment *unstructured.Unstructured
		pods       []*corev1.Pod
		want       rollout.Successor
		again      time.Duration
	}{
		{"waits for a pod", nil, []*corev1.Pod{pod("old", releaseA, time.Hour, isReady)}, rollout.Successor{Trouble: "its Deployment has no pod yet"}, 0},
		{"reports why no pod can be created", failing, nil, rollout.Successor{Trouble: `cannot create its pod: pods "x" is forbidden: exceeded quota`}, 25 * time.Second},
		{"reports nothing for a starting pod", nil, []*corev1.Pod{pod("new", releaseB, time.Hour, waits("ContainerCreating", ""))}, rollout.Successor{}, 0},
		{"reports a first failed pull", nil, []*corev1.Pod{pod("new", releaseB, 10*time.Second, waits("ErrImagePull", "registry says no"))}, rollout.Successor{Trouble: trouble}, 20 * time.Second},
		{
			"reports a later failed pull with the same text", nil,
			[]*corev1.Pod{pod("new", releaseB, 30*time.Second, waits("ImagePullBackOff", `Back-off pulling image "x": ErrImagePull: registry says no`))},
			rollout.Successor{Trouble: trouble, Lasting: true},
			0,
		},
		{
			"reports a crash while the container waits", nil,
			[]*corev1.Pod{pod("new", releaseB, time.Minute, container(corev1.ContainerStatus{
				RestartCount: 3, LastTerminationState: corev1.ContainerState{Terminated: crashed},
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 20s"}},
			}))},
			rollout.Successor{Trouble: "pod new keeps stopping: its container ended with exit code 1: Error: error: no trust", Lasting: true},
			0,
		},
		{
			"reports a crash while the container runs again", nil,
			[]*corev1.Pod{pod("new", releaseB, time.Minute, container(corev1.ContainerStatus{
				RestartCount: 3, LastTerminationState: corev1.ContainerState{Terminated: crashed},
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}))},
			rollout.Successor{Trouble: "pod new keeps stopping: its container ended with exit code 1: Error: error: no trust", Lasting: true},
			0,
		},
		{
			"reports a pod that cannot be scheduled", nil,
			[]*corev1.Pod{pod("new", releaseB, time.Minute, corev1.PodStatus{Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available",
			}}})},
			rollout.Successor{Trouble: "pod new is not scheduled: Unschedulable: 0/3 nodes are available", Lasting: true},
			0,
		},
		{
			"reports nothing when a pod is ready", nil,
			[]*corev1.Pod{pod("a", releaseB, time.Hour, waits("ImagePullBackOff", "")), pod("b", releaseB, 2*time.Hour, isReady)},
			rollout.Successor{},
			0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, again := successorOf(tt.deployment, tt.pods, releaseB, now)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.again, again)
		})
	}
	long, _ := successorOf(nil, []*corev1.Pod{pod("new", releaseB, 0, waits("CreateContainerError", strings.Repeat("x", 1<<20)))}, releaseB, now)
	assert.Less(t, len(long.Trouble), 2*maxTrouble)
}
