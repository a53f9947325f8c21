package pods_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/engine/pods"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/test/env"
)

var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{}, func(e *env.Env) { controlPlane = e })
}

const patience = 60 * time.Second

// workload returns the manifest of a workload whose pods have label app with the workload's name.
func workload(t *testing.T, kind, namespace, name string) *manifest.Manifest {
	t.Helper()
	list, err := manifest.Parse("0000_10_a_01.yaml", fmt.Appendf(nil,
		"{apiVersion: apps/v1, kind: %s, metadata: {namespace: %s, name: %s}, spec: {selector: {matchLabels: {app: %[3]s}}}}", kind, namespace, name), manifest.Limits{})
	require.NoError(t, err)
	return list[0]
}

// cluster is a namespace with a running Watcher.
type cluster struct {
	*pods.Watcher
	t         *testing.T
	core      corev1client.CoreV1Interface
	namespace string
	changes   *atomic.Int64
}

func newCluster(t *testing.T, config *rest.Config, namespace string) *cluster {
	t.Helper()
	core := kubernetes.NewForConfigOrDie(controlPlane.Config("test")).CoreV1()
	_, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = core.ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	var changes atomic.Int64
	c := &cluster{t: t, core: core, namespace: namespace, changes: &changes}
	c.Watcher = pods.NewWatcher(corev1client.NewForConfigOrDie(config), func() { changes.Add(1) })
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return c
}

// pull creates a pod of a workload, or changes its status, so that it cannot pull its image.
func (c *cluster) pull(app, name, ownerKind, owner, message string) {
	c.t.Helper()
	controller := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: ownerKind, Name: owner, UID: types.UID(owner), Controller: &controller,
		}}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "main", Image: "registry.example/web:nope"}}},
	}
	found, err := c.core.Pods(c.namespace).Create(c.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		found, err = c.core.Pods(c.namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	}
	require.NoError(c.t, err)
	found.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "ImagePullBackOff", Message: message,
	}}}}
	_, err = c.core.Pods(c.namespace).UpdateStatus(c.t.Context(), found, metav1.UpdateOptions{})
	require.NoError(c.t, err)
}

// finds waits for the summary of what is known about a workload's pods.
func (c *cluster) finds(m *manifest.Manifest, summary string) report.PodFinding {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return c.Find(m.ID()).Summary == summary }, patience, 5*time.Millisecond, "%s: %+v", summary, c.Find(m.ID()))
	return c.Find(m.ID())
}

// calls waits until changed has been called so many times. A finding may be visible slightly before its call.
func (c *cluster) calls(n int64) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return c.changes.Load() >= n }, patience, 5*time.Millisecond)
}

func TestWatcherFindsThePodInTrouble(t *testing.T) {
	t.Parallel()
	c := newCluster(t, controlPlane.For(t).Config("watcher"), "troubles")
	web, agent := workload(t, "Deployment", c.namespace, "web"), workload(t, "DaemonSet", c.namespace, "agent")
	c.pull("web", "web-1-a", "ReplicaSet", "web-1", "registry says no")
	assert.Zero(t, c.Find(web.ID()), "no one has asked for it")

	c.Follow([]*manifest.Manifest{web, agent})
	found := c.finds(web, "pod web-1-a: ImagePullBackOff")
	assert.Equal(t, "pod web-1-a (image registry.example/web:nope, node node-1) cannot pull its image: ImagePullBackOff: registry says no", found.Text)
	assert.Zero(t, c.Find(agent.ID()))

	c.pull("agent", "agent-x", "DaemonSet", "agent", "no")
	c.finds(agent, "pod agent-x: ImagePullBackOff")
	c.calls(2)
	c.pull("web", "foreign", "ReplicaSet", "other-1", "the pod of another workload with the same label")
	c.pull("web", "web-1-a", "ReplicaSet", "web-1", "Back-off pulling image: ErrImagePull: registry says no")
	c.pull("agent", "agent-x", "DaemonSet", "agent", "still no")
	c.calls(3)
	assert.Equal(t, found, c.Find(web.ID()), "neither the pod of another workload nor the next attempt of the kubelet changes anything")
	assert.EqualValues(t, 3, c.changes.Load())

	require.NoError(t, c.core.Pods(c.namespace).Delete(t.Context(), "web-1-a", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	c.finds(web, "")

	c.Follow([]*manifest.Manifest{web})
	assert.Zero(t, c.Find(agent.ID()), "no one asks for it any more")
	c.Follow([]*manifest.Manifest{web, agent})
	c.finds(agent, "pod agent-x: ImagePullBackOff")
}

func TestWatcherReportsThatItMayNotReadPods(t *testing.T) {
	t.Parallel()
	config := controlPlane.For(t).Config("stranger")
	config.Impersonate = rest.ImpersonationConfig{UserName: "stranger"}
	c := newCluster(t, config, "forbidden")
	web := workload(t, "Deployment", c.namespace, "web")
	c.Follow([]*manifest.Manifest{web})
	c.calls(1)
	assert.Contains(t, c.Find(web.ID()).Text, `the operator's role does not allow it to read the pods: pods is forbidden: User "stranger" cannot watch`)
	assert.Empty(t, c.Find(web.ID()).Summary)
	assert.EqualValues(t, 1, c.changes.Load())
}

func TestWatcherFollowsALimitedNumberOfWorkloads(t *testing.T) {
	t.Parallel()
	c := newCluster(t, controlPlane.For(t).Config("many"), "many")
	var all []*manifest.Manifest
	for i := range 20 {
		name := fmt.Sprintf("web%02d", i)
		all = append(all, workload(t, "Deployment", c.namespace, name))
		c.pull(name, name+"-1-a", "ReplicaSet", name+"-1", "no")
	}
	all = append([]*manifest.Manifest{{File: "0000_10_a_02.yaml", Object: workload(t, "Deployment", c.namespace, "no-selector").Object}}, all...)
	delete(all[0].Object.Object, "spec")
	c.Follow(all)
	for _, m := range all[1:17] {
		c.finds(m, "pod "+m.Object.GetName()+"-1-a: ImagePullBackOff")
	}
	for _, m := range all[17:] {
		assert.Zero(t, c.Find(m.ID()))
	}
}

// counter is the transport to a server that does not answer.
type counter struct{ requests atomic.Int64 }

func (c *counter) RoundTrip(*http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return nil, errors.New("no server")
}

func TestShortWaitsNeedNoRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var server counter
		w := pods.NewWatcher(corev1client.NewForConfigOrDie(&rest.Config{Host: "http://cluster.example", Transport: &server}), func() {})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		web := []*manifest.Manifest{workload(t, "Deployment", "shop", "web")}
		w.Follow(web)
		time.Sleep(time.Second)
		w.Follow(nil)
		time.Sleep(time.Minute)
		assert.Zero(t, server.requests.Load())

		w.Follow(web)
		time.Sleep(time.Minute)
		assert.NotZero(t, server.requests.Load())
		cancel()
		require.NoError(t, <-ended)
	})
}
