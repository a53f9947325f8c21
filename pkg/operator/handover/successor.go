package handover

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/engine/pods"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/release"
)

const (
	// startPatience is how long a pod may be in trouble before it counts as failed. Within this time, most errors that a kubelet retries
	// have ended.
	startPatience = 30 * time.Second
	// maxTrouble bounds the length of a message from the Deployment's status, in bytes.
	maxTrouble = 600
)

// successorOf returns the state of a Deployment's pods with the given image, and the time after which the result may change without an
// event; 0 for never. It is pure. Alternating messages of a kubelet result in the same text.
func successorOf(deployment *unstructured.Unstructured, all []*corev1.Pod, image string, now time.Time) (rollout.Successor, time.Duration) {
	trouble, since := "its Deployment has no pod yet", time.Time{}
	if text, at := replicaFailure(deployment); text != "" {
		trouble, since = text, at
	}
	replacements := slices.DeleteFunc(slices.Clone(all), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil || !runs(p, image) })
	if slices.ContainsFunc(replacements, ready) {
		return rollout.Successor{}, 0
	}
	slices.SortFunc(replacements, func(a, b *corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, pod := range replacements {
		if text := pods.Of(pod).Text; text != "" {
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

// replicaFailure returns why the Deployment's controller cannot create pods, and since when. The text is empty if it can.
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
		return "cannot create its pod: " + printable.Excerpt(message, maxTrouble), since
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
