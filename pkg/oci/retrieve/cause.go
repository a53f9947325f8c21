package retrieve

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cluster-version/cvo/internal/printable"
)

// Limits, in bytes, for reasons and messages written by other programs.
const (
	maxReason  = 100
	maxMessage = 1000
)

// Error is the reason why a Job did not deliver a release.
type Error struct {
	// Reason is one word: the reason of the container, the pod or the Job, or one of the constants below.
	Reason string
	// Message has details, in the words of the program that reported the failure.
	Message string
	// Remedy is advice for the administrator; may be empty.
	Remedy string
}

// Reasons that this package adds.
const (
	// reasonImageVolumes: the cluster, the container runtime or its kernel cannot mount images as volumes.
	reasonImageVolumes = "ImageVolumesUnsupported"
	// reasonDeadline: the retrieval exceeded its deadline.
	reasonDeadline = "DeadlineExceeded"
	// reasonGone: another client deleted the Job.
	reasonGone = "JobGone"
)

// Error implements error.
func (e *Error) Error() string {
	text := e.Reason
	if e.Message != "" {
		text += ": " + strings.TrimRight(e.Message, ". \n")
	}
	if e.Remedy != "" {
		text += ": " + e.Remedy
	}
	return text
}

const imageVolumesRemedy = "retrieval by Job needs Kubernetes 1.35 (or the feature gate ImageVolume on the API server and the kubelets) and a container runtime with image volumes (CRI-O 1.31, containerd 2.1): if the operator can reach the registry, use --payload-retrieval=registry"

// waitingFailures returns the waiting reasons of a container that count as failures. They include transient reasons, because the
// reconciler retries and reports the reason meanwhile.
func waitingFailures() []string {
	return []string{
		"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable",
		"SignatureValidationFailed", "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CreatePodSandboxError",
	}
}

const schedulingRemedy = "without NODE_NAME, the operator needs a control-plane node for the pod: if there is none, set NODE_NAME to a trusted node"

// schedulingPatience is how long a pod may wait for a node before the retrieval fails.
const schedulingPatience = 30 * time.Second

// failure returns the reason why the Job will not succeed, or nil if it still may. A Job has several pods only if one was lost. Then the
// first failed pod by name determines the reason.
func failure(job *batchv1.Job, pods []*corev1.Pod, now time.Time) *Error {
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for _, pod := range pods {
		if e := podFailure(pod, now); e != nil {
			return e
		}
	}
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobFailed || c.Type == batchv1.JobFailureTarget) && c.Status == corev1.ConditionTrue {
			return &Error{Reason: c.Reason, Message: c.Message}
		}
	}
	return nil
}

func podFailure(pod *corev1.Pod, now time.Time) *Error {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && slices.Contains(waitingFailures(), w.Reason) {
			return describe(w.Reason, w.Message)
		}
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			return describe(t.Reason, fmt.Sprintf("the pod exited with code %d: %s", t.ExitCode, t.Message))
		}
	}
	for _, c := range pod.Status.Conditions {
		waits := c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		if waits && now.Sub(pod.CreationTimestamp.Time) >= schedulingPatience {
			e := describe(c.Reason, c.Message)
			e.Remedy = schedulingRemedy
			return e
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return describe(pod.Status.Reason, pod.Status.Message)
	}
	return nil
}

// progress describes why a running or pending pod has not finished; empty if unknown.
func progress(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "" {
			e := describe(w.Reason, w.Message)
			return strings.TrimRight("is waiting: "+e.Reason+": "+e.Message, ": ")
		}
		if c.State.Running != nil {
			return "is running, but has not sent all files to the operator: check for a NetworkPolicy that blocks it"
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "is waiting for a node: " + printable.Excerpt(c.Message, maxMessage)
		}
	}
	return ""
}

// describe truncates a foreign reason and message. If support for image volumes is missing, it replaces the reason and adds a remedy.
func describe(reason, message string) *Error {
	e := &Error{Reason: printable.Excerpt(reason, maxReason), Message: printable.Excerpt(message, maxMessage)}
	if e.Reason == "" {
		e.Reason = "PodFailed"
	}
	if missingImageVolumes(message) {
		e.Reason, e.Message, e.Remedy = reasonImageVolumes, e.Reason+": "+e.Message, imageVolumesRemedy
	}
	return e
}

// missingImageVolumes recognizes the messages of kubelets and runtimes. A runtime that ignores the field gets a mount without a source. A
// runtime that supports the field may lack the necessary snapshotter or kernel.
func missingImageVolumes(message string) bool {
	text := strings.ToLower(message)
	about := strings.Contains(text, "image volume") || strings.Contains(text, "image mount") || strings.Contains(text, "imagevolume")
	lacking := strings.Contains(text, "support") || strings.Contains(text, "not implemented") || strings.Contains(text, "disabled") || strings.Contains(text, "unknown")
	return about && lacking || strings.Contains(text, "mkdir : no such file or directory") || strings.Contains(text, `mount "" to`) ||
		strings.Contains(text, "failed to eval symlinks") && strings.Contains(text, "lstat : no such file")
}

// refused explains why the API server rejected a Job. A server without image volumes drops the field and then rejects the volume, because
// it has no source.
func refused(err error) error {
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "volumes[0]") {
		return &Error{Reason: reasonImageVolumes, Message: printable.Excerpt(err.Error(), maxMessage), Remedy: imageVolumesRemedy}
	}
	return err
}
