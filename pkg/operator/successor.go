package operator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

const (
	// startPatience is how long a pod may be in trouble before that counts as a failure: most that a kubelet tries again
	// passes by then.
	startPatience = 30 * time.Second
	// maxTrouble bounds what is told of a pod in its own words.
	maxTrouble = 600
)

// successorOf tells from a Deployment and its pods how those with that image get on, and after how long time alone may
// change the answer. It is pure, and what kubelets say in turns reads the same.
func successorOf(deployment *unstructured.Unstructured, pods []*corev1.Pod, image string, now time.Time) (rollout.Successor, time.Duration) {
	trouble, since := "no pod of it has been made yet", time.Time{}
	if text, at := replicaFailure(deployment); text != "" {
		trouble, since = text, at
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil || !runs(p, image) })
	if slices.ContainsFunc(pods, ready) {
		return rollout.Successor{}, 0
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, pod := range pods {
		if text := troubleOf(pod); text != "" {
			trouble, since = fmt.Sprintf("pod %s %s", pod.Name, text), pod.CreationTimestamp.Time
			break
		}
		trouble, since = "", time.Time{}
	}
	s := rollout.Successor{Trouble: trouble}
	if trouble == "" || since.IsZero() {
		return s, 0
	}
	if left := startPatience - now.Sub(since); left > 0 {
		return s, left
	}
	s.Lasting = true
	return s, 0
}

// replicaFailure is why the Deployment's controller cannot make pods.
func replicaFailure(deployment *unstructured.Unstructured) (string, time.Time) {
	if deployment == nil {
		return "", time.Time{}
	}
	list, _, _ := unstructured.NestedSlice(deployment.Object, "status", "conditions")
	for _, item := range list {
		c, _ := item.(map[string]any)
		if c["type"] != "ReplicaFailure" || c["status"] != "True" {
			continue
		}
		message, _ := c["message"].(string)
		at, _ := c["lastTransitionTime"].(string)
		since, _ := time.Parse(time.RFC3339, at)
		return "its pod cannot be made: " + api.Excerpt(message, maxTrouble), since
	}
	return "", time.Time{}
}

func runs(pod *corev1.Pod, image string) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return release.SameImage(c.Image, image) })
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// troubleOf is what keeps a pod from running; empty while it is only on its way.
func troubleOf(pod *corev1.Pod) string {
	if pod.Status.Phase == corev1.PodFailed {
		return "failed: " + told(pod.Status.Reason, pod.Status.Message)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "is not scheduled: " + told(c.Reason, c.Message)
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if text := containerTrouble(c); text != "" {
			return text
		}
	}
	return ""
}

func containerTrouble(c corev1.ContainerStatus) string {
	ended := c.State.Terminated
	if ended == nil && c.RestartCount > 0 && !c.Ready {
		ended = c.LastTerminationState.Terminated
	}
	if ended != nil && ended.ExitCode != 0 {
		return fmt.Sprintf("does not stay up: its container ended with exit code %d: %s", ended.ExitCode, told(ended.Reason, ended.Message))
	}
	waiting := c.State.Waiting
	if waiting == nil {
		return ""
	}
	switch waiting.Reason {
	case "", "ContainerCreating", "PodInitializing":
		return ""
	case "ErrImagePull", "ImagePullBackOff":
		// A kubelet says the one and the other in turns, and the second with the first in its message.
		_, cause, found := strings.Cut(waiting.Message, "ErrImagePull: ")
		if !found {
			cause = waiting.Message
		}
		return "cannot pull its image: " + told("ImagePullBackOff", cause)
	}
	return "cannot start: " + told(waiting.Reason, waiting.Message)
}

// told reads like `Unschedulable: 0/3 nodes are available`.
func told(reason, message string) string {
	message = api.Excerpt(strings.TrimSpace(message), maxTrouble)
	switch {
	case message == "":
		return cmp.Or(reason, "no reason is given")
	case reason == "":
		return message
	}
	return reason + ": " + message
}
