package retrieve

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func waiting(reason, message string) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}}}
}

func TestFailureNamesTheCause(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	unschedulable := func(since time.Duration) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-since))},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient memory.",
			}}},
		}
	}
	for _, c := range []struct {
		name string
		job  batchv1.JobStatus
		pods []*corev1.Pod
		want string // substring of the failure; empty for no failure
	}{
		{name: "a missing pod"},
		{name: "a container being created", pods: []*corev1.Pod{waiting("ContainerCreating", "")}},
		{
			name: "a failed pull", pods: []*corev1.Pod{waiting("ErrImagePull", `failed to pull "registry.example/r@sha256:1": manifest unknown`)},
			want: `ErrImagePull: failed to pull "registry.example/r@sha256:1": manifest unknown`,
		},
		{
			name: "a pull in back-off", pods: []*corev1.Pod{waiting("ImagePullBackOff", "Back-off pulling image: ErrImagePull: 401 Unauthorized.")},
			want: "ImagePullBackOff: Back-off pulling image: ErrImagePull: 401 Unauthorized",
		},
		{
			name: "a rejected signature", pods: []*corev1.Pod{waiting("SignatureValidationFailed", "image pull failed: A signature was required")},
			want: "SignatureValidationFailed: image pull failed: A signature was required",
		},
		{
			name: "a runtime without image volumes", pods: []*corev1.Pod{waiting("CreateContainerError", "image volumes are not supported by this runtime")},
			want: "ImageVolumesUnsupported: CreateContainerError: image volumes are not supported by this runtime: retrieval by Job needs Kubernetes",
		},
		{
			name: "a runtime that ignores image volumes", pods: []*corev1.Pod{waiting("CreateContainerError", `failed to generate spec: failed to mkdir "": mkdir : no such file or directory`)},
			want: "ImageVolumesUnsupported",
		},
		{name: "a new pod", pods: []*corev1.Pod{unschedulable(time.Second)}},
		{name: "an unschedulable pod", pods: []*corev1.Pod{unschedulable(time.Minute)}, want: "Unschedulable: 0/3 nodes are available: 3 Insufficient memory: without NODE_NAME, the operator needs a control-plane node"},
		{
			name: "a failed sender", pods: []*corev1.Pod{{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "error: manifests are empty"}},
			}}}}},
			want: "Error: the pod exited with code 1: error: manifests are empty",
		},
		{
			name: "an evicted pod", pods: []*corev1.Pod{{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: ephemeral-storage."}}},
			want: "Evicted: The node was low on resource: ephemeral-storage",
		},
		{
			name: "a Job past its deadline", job: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{
				Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "DeadlineExceeded", Message: "Job was active longer than specified deadline",
			}}},
			want: "DeadlineExceeded: Job was active longer than specified deadline",
		},
		{name: "a long message", pods: []*corev1.Pod{waiting("ErrImagePull", strings.Repeat("x", 1<<20))}, want: "ErrImagePull: xxx"},
	} {
		t.Run("it recognizes "+c.name, func(t *testing.T) {
			got := failure(&batchv1.Job{Status: c.job}, c.pods, now)
			if c.want == "" {
				assert.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			assert.Contains(t, got.Error(), c.want)
			assert.Less(t, len(got.Error()), 3000)
		})
	}
}

func TestNewNameIsAValidName(t *testing.T) {
	for version, want := range map[string]string{
		"1.1.0":                  `^version-1\.1\.0-[0-9a-f]{10}$`,
		"":                       `^version-[0-9a-f]{10}$`,
		"1.1.0-Rc.1+build.5":     `^version-1\.1\.0-rc\.1-build\.5-[0-9a-f]{10}$`,
		strings.Repeat("1", 300): `^version-1+-[0-9a-f]{10}$`,
		"..-.-../ü\x00":          `^version-[a-z0-9.-]*[0-9a-f]{10}$`,
		"1.-.2":                  `^version-1`,
	} {
		name := newName("version", version)
		assert.Regexp(t, want, name)
		assert.LessOrEqual(t, len(name), maxName)
		assert.Empty(t, validation.IsDNS1123Subdomain(name), name)
		assert.Empty(t, validation.IsValidLabelValue(name), name)
		assert.NotEqual(t, name, newName("version", version), "names are unique")
	}
}

//threat:versions-names-jobs
func FuzzNewName(f *testing.F) {
	for _, version := range []string{"", "1.1.0", "1.0.0-rc.1+x", "-.-", "ü"} {
		f.Add(version)
	}
	f.Fuzz(func(t *testing.T, version string) {
		name := newName("version", version)
		assert.Empty(t, validation.IsDNS1123Subdomain(name), name)
		assert.Empty(t, validation.IsValidLabelValue(name), name)
	})
}
