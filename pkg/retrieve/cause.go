package retrieve

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cluster-version/cvo/pkg/api"
)

// Bounds of what is told in the words of others.
const (
	maxReason  = 100
	maxMessage = 1000
)

// Error says why a Job did not bring a release.
type Error struct {
	// Reason is a word: that of the container, the pod or the Job, or one of the constants below.
	Reason string
	// Message tells more, in the words of whoever noticed.
	Message string
	// Remedy says what to do about it; may be empty.
	Remedy string
}

// Reasons that are ours.
const (
	// ReasonImageVolumes: the cluster, the runtime or its kernel cannot mount images as volumes.
	ReasonImageVolumes = "ImageVolumesUnsupported"
	// ReasonDeadline: it took too long.
	ReasonDeadline = "DeadlineExceeded"
	// ReasonGone: somebody deleted the Job.
	ReasonGone = "JobGone"
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

const imageVolumesRemedy = "retrieval by Job needs Kubernetes 1.35, or the feature gate ImageVolume on the API server and the kubelets, and a container runtime with image volumes (CRI-O 1.31, containerd 2.1): use --payload-retrieval=registry where the operator reaches the registry"

// waitingFailures are reasons of a container that waits in vain. Those that pass by themselves are not worth a wait in
// here either: the reconciler comes back, and says meanwhile what it is.
func waitingFailures() []string {
	return []string{
		"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable",
		"SignatureValidationFailed", "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CreatePodSandboxError",
	}
}

// schedulingPatience is how long a pod may wait for a node before that is told.
const schedulingPatience = 30 * time.Second

// failure is why the Job will not succeed, nil while it may. Of several pods, which only a Job has whose pod was lost,
// the first with a cause counts.
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
			return describe(t.Reason, fmt.Sprintf("the pod ended with exit code %d: %s", t.ExitCode, t.Message))
		}
	}
	for _, c := range pod.Status.Conditions {
		waits := c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		if waits && now.Sub(pod.CreationTimestamp.Time) >= schedulingPatience {
			return describe(c.Reason, c.Message)
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return describe(pod.Status.Reason, pod.Status.Message)
	}
	return nil
}

// progress is what a pod that has not failed waits for.
func progress(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "" {
			e := describe(w.Reason, w.Message)
			return strings.TrimRight("waits: "+e.Reason+": "+e.Message, ": ")
		}
		if c.State.Running != nil {
			return "runs, and has not reached the operator or not sent everything: is there a NetworkPolicy in its way?"
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "waits for a node: " + api.Excerpt(c.Message, maxMessage)
		}
	}
	return ""
}

// describe bounds what others wrote, and finds the cause that has a remedy.
func describe(reason, message string) *Error {
	e := &Error{Reason: api.Excerpt(reason, maxReason), Message: api.Excerpt(message, maxMessage)}
	if e.Reason == "" {
		e.Reason = "PodFailed"
	}
	if missingImageVolumes(message) {
		e.Reason, e.Message, e.Remedy = ReasonImageVolumes, e.Reason+": "+e.Message, imageVolumesRemedy
	}
	return e
}

// missingImageVolumes knows the texts of kubelets and runtimes: a runtime that ignores the field is given a mount without
// a source, one that knows it may lack the snapshotter or the kernel for it.
func missingImageVolumes(message string) bool {
	text := strings.ToLower(message)
	about := strings.Contains(text, "image volume") || strings.Contains(text, "image mount") || strings.Contains(text, "imagevolume")
	lacking := strings.Contains(text, "support") || strings.Contains(text, "not implemented") || strings.Contains(text, "disabled") || strings.Contains(text, "unknown")
	return about && lacking || strings.Contains(text, "mkdir : no such file or directory") || strings.Contains(text, `mount "" to`) ||
		strings.Contains(text, "failed to eval symlinks") && strings.Contains(text, "lstat : no such file")
}

// refused explains why the API server did not take a Job. One without image volumes drops the field, and then misses
// the volume's source.
func refused(err error) error {
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "volumes[0]") {
		return &Error{Reason: ReasonImageVolumes, Message: api.Excerpt(err.Error(), maxMessage), Remedy: imageVolumesRemedy}
	}
	return err
}
