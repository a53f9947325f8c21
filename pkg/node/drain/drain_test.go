package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/node/drain"
)

func ownedBy(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}}
}

func TestActionDependsOnThePod(t *testing.T) {
	now := metav1.Now()
	emptyDir := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	for _, tt := range []struct {
		name string
		pod  corev1.Pod
		want drain.Action
	}{
		{"it evicts a pod of a ReplicaSet", corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: ownedBy("ReplicaSet", "web")}}, drain.Evict},
		{"it evicts an unmanaged pod", corev1.Pod{}, drain.Evict},
		{"it evicts a pod with local data", corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{emptyDir}}}, drain.Evict},
		{"it evicts a finished pod", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, drain.Evict},
		{"it keeps a pod of a DaemonSet", corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: ownedBy("DaemonSet", "agent")}}, drain.Keep},
		{
			"it keeps a pod of a DaemonSet that is being deleted",
			corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: ownedBy("DaemonSet", "agent"), DeletionTimestamp: &now}},
			drain.Keep,
		},
		{"it evicts a pod of a deleted DaemonSet", corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: ownedBy("DaemonSet", "gone")}}, drain.Evict},
		{
			"it evicts a finished pod of a DaemonSet",
			corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{OwnerReferences: ownedBy("DaemonSet", "agent")},
				Status:     corev1.PodStatus{Phase: corev1.PodFailed},
			},
			drain.Evict,
		},
		{"it keeps a static pod", corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}}, drain.Keep},
		{"it waits for a pod that is being deleted", corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, drain.Wait},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, drain.ActionFor(&tt.pod, func(_, name string) bool { return name == "agent" }))
		})
	}
}

func TestOverduePodsAreExplained(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.NewTime(epoch))}}
	why, after := drain.Overdue(pod, epoch.Add(time.Second))
	assert.Empty(t, why)
	assert.Equal(t, 4*time.Second, after)
	why, after = drain.Overdue(pod, epoch.Add(5*time.Second))
	assert.Equal(t, "its grace period ended at 2026-01-01T00:00:00Z, and the kubelet has not removed it", why)
	assert.Zero(t, after)
	pod.Finalizers = []string{"example.com/a", "example.com/b"}
	why, _ = drain.Overdue(pod, epoch.Add(time.Minute))
	assert.Equal(t, "its deletion waits for finalizers example.com/a, example.com/b", why)
}
