package integration_test

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/api"
)

// plain are the manifests of a platform without a ClusterOperator. The image of one does not exist.
const plain = `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: default, name: settings, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
data: {color: blue}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: default, name: web, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: registry.example/web:1}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: default, name: broken, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
spec:
  selector: {matchLabels: {app: broken}}
  template:
    metadata: {labels: {app: broken}}
    spec: {containers: [{name: main, image: registry.example/nope:1}]}
`

// plainRelease returns the files of a release with the operator's own set and the manifests in text.
func plainRelease(t *testing.T, text string) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{
		"release-manifests/release-metadata":      &fstest.MapFile{Data: []byte(`{"kind": "cincinnati-metadata-v0", "version": "1.0.0"}`)},
		"release-manifests/image-references":      &fstest.MapFile{Data: []byte(`{"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": {"name": "1.0.0"}}`)},
		"release-manifests/0000_50_plain_01.yaml": &fstest.MapFile{Data: []byte(text)},
	}
	own, err := fs.Glob(manifests.FS(), "*.yaml")
	require.NoError(t, err)
	for _, name := range own {
		data, err := fs.ReadFile(manifests.FS(), name)
		require.NoError(t, err)
		files["manifests/"+name] = &fstest.MapFile{Data: data}
	}
	return files
}

// brokenPod plays the controllers and the kubelet of Deployment default/broken.
type brokenPod struct {
	*platform
	clients kubernetes.Interface
}

// cannotPull creates the pod, whose image does not exist.
func (b *brokenPod) cannotPull() {
	b.t.Helper()
	var d *appsv1.Deployment
	require.Eventually(b.t, func() (found bool) {
		var err error
		d, err = b.clients.AppsV1().Deployments("default").Get(b.t.Context(), "broken", metav1.GetOptions{})
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	_, err := b.clients.CoreV1().ServiceAccounts("default").Create(b.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(b.t, err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "broken-7d4b-x2x2x", Labels: d.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "broken-7d4b", UID: types.UID("set"), Controller: new(true)}},
		},
		Spec: *d.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = "node-1"
	pod, err = b.clients.CoreV1().Pods("default").Create(b.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(b.t, err)
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: `Back-off pulling image "registry.example/nope:1": ErrImagePull: not found`},
	}}}}
	_, err = b.clients.CoreV1().Pods("default").UpdateStatus(b.t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(b.t, err)
	b.report(0)
}

// report sets the number of available pods of the Deployment.
func (b *brokenPod) report(available int) {
	b.t.Helper()
	patch := fmt.Appendf(nil, `{"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": %d, "availableReplicas": %[1]d}}`, available)
	_, err := b.clients.AppsV1().Deployments("default").Patch(b.t.Context(), "broken", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(b.t, err)
}

// mended lets the pod run.
func (b *brokenPod) mended() {
	b.t.Helper()
	pod, err := b.clients.CoreV1().Pods("default").Get(b.t.Context(), "broken-7d4b-x2x2x", metav1.GetOptions{})
	require.NoError(b.t, err)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	_, err = b.clients.CoreV1().Pods("default").UpdateStatus(b.t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(b.t, err)
	b.report(1)
}

// TestInstallWaitsUntilEverythingRuns installs three plain manifests, one with an image that does not exist, on a cluster with one node. The
// operator shares the network of the node, so only one of its two pods runs.
func TestInstallWaitsUntilEverythingRuns(t *testing.T) {
	t.Parallel()
	h := &hosted{testPlatform: &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}}
	image := h.push(plainRelease(t, plain), "1.0.0", "/cvo").ByDigest()
	h.start("operators", "--ignore", api.OperatorNamespace+"/"+api.OperatorDeployment, "--ignore", "default/broken")
	operator := h.deploy()
	operator.set(func() { operator.oneNode = true })
	broken := &brokenPod{platform: h.platform, clients: operator.clients}
	install := h.start("cvo", "install", "--release-image", image, "--trust", h.trust, "--bring-your-own-network", "--wait", "--timeout", "10m")
	broken.cannotPull()

	const waits = "waiting on default/broken (pod broken-7d4b-x2x2x: ImagePullBackOff)"
	require.Eventually(t, func() bool { return strings.Contains(read(t, install.log), waits) }, patience, 50*time.Millisecond)
	cv := h.await("the workload to be named", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return strings.HasSuffix(condition(cv, configv1.OperatorProgressing), waits)
	})
	assert.Equal(t, "False||", condition(cv, configv1.OperatorAvailable))
	assert.Equal(t, "False||", condition(cv, api.Failing))
	assert.False(t, completed("1.0.0")(cv))
	select {
	case <-install.exited:
		require.FailNow(t, "the command does not wait", read(t, install.log))
	default:
	}

	// The watches detect drift before the install is complete.
	settings := func() (*corev1.ConfigMap, error) {
		return broken.clients.CoreV1().ConfigMaps("default").Get(t.Context(), "settings", metav1.GetOptions{})
	}
	before, err := settings()
	require.NoError(t, err)
	require.NoError(t, broken.clients.CoreV1().ConfigMaps("default").Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		after, err := settings()
		return err == nil && after.UID != before.UID && after.Data["color"] == "blue"
	}, patience, 20*time.Millisecond)
	assert.False(t, completed("1.0.0")(h.get()))

	broken.mended()
	assert.Zero(t, install.awaitExit(t))
	assert.Contains(t, read(t, install.log), "Release 1.0.0 is installed.")
	cv = h.get()
	assert.True(t, completed("1.0.0")(cv))
	assert.Equal(t, "True||Done applying 1.0.0", condition(cv, configv1.OperatorAvailable))
	pods := 0
	for _, pod := range operator.all() {
		if pod.proc != nil {
			pods++
		}
	}
	assert.Equal(t, 1, pods, "the second pod of the operator never fits")
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(data)
}

// TestRealInstallWaitsForOneWorkload installs 4.23.0. All its workloads but the operator's own Deployment belong to components with a
// ClusterOperator, so the install does not wait for them. The operators play both ClusterOperators and workloads.
func TestRealInstallWaitsForOneWorkload(t *testing.T) {
	p, r := newRealPlatform(t)
	const own = api.OperatorNamespace + "/" + api.OperatorDeployment
	p.start("operators", "--ignore", own)
	p.operator(r.to.ByDigest())
	cv := p.await("everything else to settle", time.Minute, func(cv *configv1.ClusterVersion) bool {
		text := condition(cv, configv1.OperatorProgressing)
		var done, total int
		_, err := fmt.Sscanf(text, "True||Working towards 4.23.0: %d of %d done", &done, &total)
		return err == nil && done == total-1 && strings.HasSuffix(text, ", waiting on "+own)
	})
	assert.Equal(t, "False||", condition(cv, api.Failing))
	assert.False(t, completed("4.23.0")(cv))

	clients := kubernetes.NewForConfigOrDie(p.env.Config("kubelet"))
	d, err := clients.AppsV1().Deployments(api.OperatorNamespace).Get(t.Context(), api.OperatorDeployment, metav1.GetOptions{})
	require.NoError(t, err)
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	_, err = clients.AppsV1().Deployments(api.OperatorNamespace).UpdateStatus(t.Context(), d, metav1.UpdateOptions{})
	require.NoError(t, err)
	p.await("4.23.0 to complete", time.Minute, completed("4.23.0"))
}
