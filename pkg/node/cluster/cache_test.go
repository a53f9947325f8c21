package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/node/drain"
)

// TestCachedPodsKeepWhatDecidesTheirEviction compares decisions about a pod and about its cached form.
func TestCachedPodsKeepWhatDecidesTheirEviction(t *testing.T) {
	now := metav1.Now()
	for name, pod := range map[string]*corev1.Pod{
		"it runs":         {Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		"it is static":    {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x", "large": "y"}}},
		"it has finished": {Status: corev1.PodStatus{Phase: corev1.PodFailed}},
		"it is of a set":  {ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: new(true)}}}},
		"it has local data": {Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}, {VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}}},
		"it has other data": {Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}}}},
		"it is terminated":  {ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now, Finalizers: []string{"example.com/a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			pod.Spec = corev1.PodSpec{NodeName: "n1", Volumes: pod.Spec.Volumes, Containers: []corev1.Container{{Name: "app", Image: "large"}}}
			pod.Labels = map[string]string{"app": "web"}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			pod.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			reduced := reducePod(pod, client.ObjectKey{Name: "own"}).(*corev1.Pod)
			hasAgent := func(_, name string) bool { return name == "agent" }

			assert.Equal(t, drain.ActionFor(pod, hasAgent), drain.ActionFor(reduced, hasAgent))
			assert.Equal(t, pod.Spec.NodeName, reduced.Spec.NodeName)
			assert.Equal(t, pod.Labels, reduced.Labels)
			assert.Equal(t, pod.Finalizers, reduced.Finalizers)
			assert.Equal(t, pod.Status.Conditions[1:], reduced.Status.Conditions)
			assert.Equal(t, drain.IsUnmanaged(pod), drain.IsUnmanaged(reduced))
			assert.Equal(t, drain.HasLocalData(pod), drain.HasLocalData(reduced))
			reduced.Spec.Volumes = nil
			assert.Equal(t, corev1.PodSpec{NodeName: "n1"}, reduced.Spec)
		})
	}
	tombstone := toolscache.DeletedFinalStateUnknown{Key: "default/app"}
	assert.Equal(t, tombstone, reducePod(tombstone, client.ObjectKey{}))
	own := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "stage", Name: "controller"}}
	own.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	own.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	own.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	assert.Equal(t, own.Spec, reducePod(own, client.ObjectKeyFromObject(own)).(*corev1.Pod).Spec)
}
