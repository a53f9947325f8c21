// Package drain decides which pods a drain evicts, and interprets the answers to evictions. It takes a pod and returns an Action, or takes
// an error and returns an Answer. It follows kubectl drain with the options --force, --ignore-daemonsets and --delete-emptydir-data.
// Package evict reads the pods and sends the evictions.
package drain

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Action is the action of a drain on one pod.
type Action int

// Actions of a drain.
const (
	// Keep leaves the pod on the node: the kubelet or a DaemonSet would start it again at once.
	Keep Action = iota
	// Evict requests the pod's eviction.
	Evict
	// Wait leaves a pod that is being deleted, and waits for its end.
	Wait
)

// ActionFor returns the action for a pod on the node. hasDaemonSet reports whether a DaemonSet exists.
func ActionFor(pod *corev1.Pod, hasDaemonSet func(namespace, name string) bool) Action {
	owner := metav1.GetControllerOf(pod)
	switch {
	case isMirror(pod):
		return Keep
	case owner != nil && owner.Kind == "DaemonSet" && !isFinished(pod) && hasDaemonSet(pod.Namespace, owner.Name):
		return Keep
	case pod.DeletionTimestamp != nil:
		return Wait
	}
	return Evict
}

// Reduce returns the parts of a pod that decide about its eviction, by a drain and by budgets. A cluster has many pods.
func Reduce(pod *corev1.Pod) *corev1.Pod {
	reduced := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: pod.Labels,
			OwnerReferences: pod.OwnerReferences, DeletionTimestamp: pod.DeletionTimestamp, Finalizers: pod.Finalizers,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}
	if mirrored, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		reduced.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: mirrored}
	}
	if HasLocalData(pod) {
		reduced.Spec.Volumes = localData
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			reduced.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return reduced
}

// IsUnmanaged reports whether no controller starts the pod elsewhere.
func IsUnmanaged(pod *corev1.Pod) bool { return metav1.GetControllerOfNoCopy(pod) == nil }

// HasLocalData reports whether the pod has a volume whose data is lost with it.
func HasLocalData(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
}

// localData is the reduced form of all volumes of a pod with local data. All reduced pods share it.
var localData = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}

// IsReplica reports whether two pods have the same controller, such as a ReplicaSet, or are the same pod.
func IsReplica(a, b *corev1.Pod) bool {
	owner, other := metav1.GetControllerOf(a), metav1.GetControllerOf(b)
	return a.UID == b.UID || owner != nil && other != nil && owner.UID == other.UID
}

// isMirror reports whether the pod mirrors a static pod of the kubelet.
func isMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// patience is the time after the end of a pod's grace period in which the kubelet usually removes the pod.
const patience = 5 * time.Second

// Overdue returns why a pod that is being deleted is still there although its grace period has ended, and empty before that. after is the time
// until it is overdue.
func Overdue(pod *corev1.Pod, now time.Time) (why string, after time.Duration) {
	end := pod.DeletionTimestamp.Time
	if after := end.Add(patience).Sub(now); after > 0 {
		return "", after
	}
	if len(pod.Finalizers) > 0 {
		return "its deletion waits for finalizers " + strings.Join(pod.Finalizers, ", "), 0
	}
	return "its grace period ended at " + end.UTC().Format(time.RFC3339) + ", and the kubelet has not removed it", 0
}
