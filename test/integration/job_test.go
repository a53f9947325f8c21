package integration_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cluster-version/cvo/pkg/api"
)

// jobNode plays the Job controller and the kubelet for Jobs that retrieve releases. It creates the pod, with a folder instead of the
// mounted image, and runs the pod's command.
type jobNode struct {
	*platform
	cluster kubernetes.Interface
	// images are folders by the reference of the image volume. An image without a folder cannot be pulled.
	images map[string]string
}

func (n *jobNode) run(ctx context.Context) {
	for served := map[string]bool{}; ctx.Err() == nil; {
		jobs, err := n.cluster.BatchV1().Jobs(api.OperatorNamespace).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=retrieve-openshift-release"})
		if err != nil {
			continue
		}
		for _, job := range jobs.Items {
			if !served[job.Name] {
				served[job.Name] = true
				n.pod(ctx, &job)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (n *jobNode) pod(ctx context.Context, job *batchv1.Job) {
	pods := n.cluster.CoreV1().Pods(api.OperatorNamespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: job.Name + "-x", Labels: job.Spec.Template.Labels},
		Spec:       job.Spec.Template.Spec,
	}
	pod.Labels[batchv1.JobNameLabel] = job.Name
	pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		n.t.Errorf("creating the pod of Job %s: %v", job.Name, err)
		return
	}
	container := pod.Spec.Containers[0]
	folder, ok := n.images[pod.Spec.Volumes[0].Image.Reference]
	if !ok {
		pod.Status.Phase = corev1.PodPending
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container.Name, State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "rpc error: code = NotFound desc = manifest unknown"},
		}}}
		_, _ = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return
	}
	secret, err := n.cluster.CoreV1().Secrets(api.OperatorNamespace).Get(ctx, pod.Spec.Volumes[1].Secret.SecretName, metav1.GetOptions{})
	for apierrors.IsNotFound(err) && ctx.Err() == nil { // as a kubelet does that mounts it
		secret, err = n.cluster.CoreV1().Secrets(api.OperatorNamespace).Get(ctx, pod.Spec.Volumes[1].Secret.SecretName, metav1.GetOptions{})
	}
	if err != nil {
		n.t.Errorf("mounting the token of Job %s: %v", job.Name, err)
		return
	}
	token := filepath.Join(n.dir, job.Name)
	if err := os.WriteFile(token, secret.Data["token"], 0o600); err != nil {
		n.t.Errorf("mounting the token of Job %s: %v", job.Name, err)
		return
	}
	args := slices.Clone(container.Args)
	for i, arg := range args {
		args[i] = strings.NewReplacer("=/release", "="+folder, "=/etc/retrieval/token", "="+token).Replace(arg)
	}
	if out, err := exec.CommandContext(ctx, filepath.Join(binaries, "cvo"), args...).CombinedOutput(); err != nil && ctx.Err() == nil {
		n.t.Errorf("%s: %v\n%s", args, err, out)
	}
}

// TestJobRetrievesARelease updates a cluster whose operator cannot reach a registry. A Job provides the release.
func TestJobRetrievesARelease(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.environment = []string{"POD_IP=127.0.0.1", "NODE_NAME=worker-1"}
	from, to := p.build("../../examples/platform/1.0.0", "1.0.0"), p.build("../../examples/platform/1.1.0", "1.1.0")
	_, err := p.run("install", "--no-operator", "--release-image", from.ByDigest(), "--trust", p.trust)
	require.NoError(t, err)
	folders := map[string]string{}
	for _, img := range []string{from.Pullspec, to.Pullspec} {
		folders[img] = filepath.Join(t.TempDir(), "release")
		_, err = p.run("release", "extract", img, "--layout", "image", "--to", folders[img])
		require.NoError(t, err)
	}
	cluster := kubernetes.NewForConfigOrDie(p.env.Config("integration"))
	restricted := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	_, err = cluster.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.OperatorNamespace, Labels: restricted}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = cluster.CoreV1().Namespaces().Patch(t.Context(), api.OperatorNamespace, "application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
	}
	require.NoError(t, err)

	p.registry.Reset()
	node := &jobNode{platform: p, cluster: cluster, images: map[string]string{to.ByDigest(): folders[to.Pullspec]}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); node.run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	p.start("operators")
	p.operator(from.ByDigest(), "--payload-dir", folders[from.Pullspec], "--payload-retrieval", "job", "--listen", "127.0.0.1:0")
	p.await("1.0.0 to complete", 2*time.Minute, completed("1.0.0"))

	p.update(configv1.Update{Image: to.Pullspec})
	cv := p.await("a tag to be rejected", 2*time.Minute, says(api.ReleaseAccepted, "False|RetrievePayload|"))
	assert.Contains(t, condition(cv, api.ReleaseAccepted), "name the release image by digest (name@sha256:…)")

	gone := p.registry.Host() + "/elsewhere/release@" + string(to.Digest)
	p.update(configv1.Update{Image: gone})
	cv = p.await("the kubelet's error to be reported", 2*time.Minute, func(cv *configv1.ClusterVersion) bool {
		return strings.Contains(condition(cv, api.ReleaseAccepted), "manifest unknown")
	})
	assert.Contains(t, condition(cv, api.ReleaseAccepted), "Unable to download and prepare the update: retrieval Job version-")
	assert.Contains(t, condition(cv, api.ReleaseAccepted), "ErrImagePull: rpc error: code = NotFound desc = manifest unknown")

	p.update(configv1.Update{Image: to.ByDigest()})
	p.await("1.1.0 to complete", 2*time.Minute, completed("1.1.0"))
	assert.Empty(t, p.registry.Requests(), "the registry was not contacted")
	jobs, err := cluster.BatchV1().Jobs(api.OperatorNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=retrieve-openshift-release"})
	require.NoError(t, err)
	for _, job := range jobs.Items {
		assert.NotNil(t, job.DeletionTimestamp, "Job %s is deleted", job.Name) // no garbage collector runs
		assert.Equal(t, "worker-1", job.Spec.Template.Spec.NodeName, "the pod runs on the operator's node")
	}
	secrets, err := cluster.CoreV1().Secrets(api.OperatorNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=retrieve-openshift-release"})
	require.NoError(t, err)
	for _, secret := range secrets.Items {
		require.Len(t, secret.OwnerReferences, 1)
		assert.Equal(t, "Job", secret.OwnerReferences[0].Kind, "the token is deleted with its Job")
	}
}
