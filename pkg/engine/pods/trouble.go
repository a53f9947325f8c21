// Package pods reports why the pods of workloads do not run. Of is pure: it reads one pod. A Watcher watches the pods of the workloads that
// a rollout waits for, and only of those. It keeps the troubles in memory and nothing else. The caller decides which workloads it waits for.
package pods

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/internal/printable"
)

// maxText bounds the length of a message from a pod's status, in bytes.
const maxText = 600

// Trouble is the reason why a pod does not run. The zero value means that the pod runs or is only starting.
type Trouble struct {
	// Reason is a CamelCase word of Kubernetes, such as ImagePullBackOff.
	Reason string
	// Text is a clause without a period that continues a sentence with the pod as its subject.
	Text string
	// Image is the image of the container in trouble; empty if the whole pod is in trouble.
	Image string
}

// Of returns the trouble of a pod. Alternating messages of a kubelet result in the same trouble.
func Of(pod *corev1.Pod) Trouble {
	if pod.Status.Phase == corev1.PodFailed {
		return Trouble{Reason: cmp.Or(pod.Status.Reason, string(corev1.PodFailed)), Text: "failed: " + joined(pod.Status.Reason, pod.Status.Message)}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return Trouble{Reason: cmp.Or(c.Reason, corev1.PodReasonUnschedulable), Text: "is not scheduled: " + joined(c.Reason, c.Message)}
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if trouble := ofContainer(c); trouble.Text != "" {
			trouble.Image = imageOf(pod, c)
			return trouble
		}
	}
	return Trouble{}
}

func ofContainer(c corev1.ContainerStatus) Trouble {
	ended := c.State.Terminated
	if ended == nil && c.RestartCount > 0 && !c.Ready {
		ended = c.LastTerminationState.Terminated
	}
	if ended != nil && ended.ExitCode != 0 {
		reason := cmp.Or(ended.Reason, "Error")
		if c.RestartCount > 0 {
			reason = "CrashLoopBackOff" // the kubelet alternates between this and the reason of the last end
		}
		return Trouble{Reason: reason, Text: fmt.Sprintf("keeps stopping: its container ended with exit code %d: %s", ended.ExitCode, joined(ended.Reason, ended.Message))}
	}
	waiting := c.State.Waiting
	if waiting == nil {
		return Trouble{}
	}
	switch waiting.Reason {
	case "", "ContainerCreating", "PodInitializing":
		return Trouble{}
	case "ErrImagePull", imagePull:
		// A kubelet alternates between two reasons. The message of the second contains the message of the first.
		_, cause, found := strings.Cut(waiting.Message, "ErrImagePull: ")
		if !found {
			cause = waiting.Message
		}
		return Trouble{Reason: imagePull, Text: "cannot pull its image: " + joined(imagePull, cause)}
	}
	return Trouble{Reason: waiting.Reason, Text: "cannot start: " + joined(waiting.Reason, waiting.Message)}
}

const imagePull = "ImagePullBackOff"

// imageOf returns the image of a container as the pod's spec names it, because the status of a container that never ran may not name it.
func imageOf(pod *corev1.Pod, status corev1.ContainerStatus) string {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == status.Name {
			return c.Image
		}
	}
	return status.Image
}

// joined joins a reason and a message, as in `Unschedulable: 0/3 nodes are available`.
func joined(reason, message string) string {
	message = printable.Excerpt(strings.TrimSpace(message), maxText)
	switch {
	case message == "":
		return cmp.Or(reason, "no reason given")
	case reason == "":
		return message
	}
	return reason + ": " + message
}
