package operator

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/upgradeable"
)

// listening are voices on a real cluster, and what they have had reconciled.
type listening struct {
	*voices
	client client.Client
	cache  cache.Cache
	queue  workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func newListening(t *testing.T, clk clock.WithTicker) *listening {
	t.Helper()
	cfg := controlPlane.Config("voices")
	serveKind(t, "0000_00_cluster-version-operator_01_clusteroperators.crd.yaml")
	scheme, err := NewScheme()
	require.NoError(t, err)
	l := &listening{queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
	l.client, err = client.New(cfg, client.Options{Scheme: scheme})
	require.NoError(t, err)
	for _, name := range []string{"openshift-config", "openshift-config-managed"} {
		if err := l.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
	}
	l.cache, err = cache.New(cfg, cache.Options{Scheme: scheme})
	require.NoError(t, err)
	core, err := corev1client.NewForConfig(cfg)
	require.NoError(t, err)
	l.voices, err = newVoices(t.Context(), clk, l.cache, core, "version")
	require.NoError(t, err)
	return l
}

func (l *listening) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.cache.Start(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		l.queue.ShutDown()
	})
	require.NoError(t, l.Start(ctx, l.queue))
}

// heard takes what is to be reconciled until the voices say something.
func (l *listening) heard(t *testing.T, what string, said func(upgradeable.Cluster) bool) {
	t.Helper()
	deadline := time.AfterFunc(30*time.Second, l.queue.ShutDown)
	defer deadline.Stop()
	for !said(l.cluster()) {
		request, shutdown := l.queue.Get()
		require.False(t, shutdown, "waiting for %s", what)
		assert.Equal(t, "version", request.Name)
		l.queue.Done(request)
	}
}

func TestVoices(t *testing.T) {
	l := newListening(t, clock.RealClock{})
	l.start(t)
	l.heard(t, "everything to be read", func(c upgradeable.Cluster) bool {
		return errors.Join(c.OperatorsErr, c.Gates.Err, c.Acks.Err) == nil
	})
	assert.Equal(t, upgradeable.Cluster{Operators: []configv1.ClusterOperator{}}, l.cluster(), "there is nothing yet")

	gates := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config-managed", Name: "admin-gates"}, Data: map[string]string{"ack-1.1-a": "A"}}
	acks := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config", Name: "admin-acks"}}
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config", Name: "other"}, Data: map[string]string{"ack-1.1-a": "true"}}
	for _, cm := range []*corev1.ConfigMap{other, gates, acks} {
		require.NoError(t, l.client.Create(t.Context(), cm))
		t.Cleanup(func() { _ = l.client.Delete(context.WithoutCancel(t.Context()), cm) })
	}
	l.heard(t, "the ConfigMaps", func(c upgradeable.Cluster) bool { return c.Gates.Found && c.Acks.Found })
	assert.Equal(t, map[string]string{"ack-1.1-a": "A"}, l.cluster().Gates.Data)
	assert.Empty(t, l.cluster().Acks.Data, "the ConfigMap beside it is none of ours")
	acks.Data = map[string]string{"ack-1.1-a": "true"}
	require.NoError(t, l.client.Update(t.Context(), acks))
	l.heard(t, "the acknowledgement", func(c upgradeable.Cluster) bool { return c.Acks.Data["ack-1.1-a"] == "true" })
	require.NoError(t, l.client.Delete(t.Context(), gates))
	l.heard(t, "the gates to be gone", func(c upgradeable.Cluster) bool { return !c.Gates.Found })

	co := &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: "dns"}}
	require.NoError(t, l.client.Create(t.Context(), co))
	t.Cleanup(func() { _ = l.client.Delete(context.WithoutCancel(t.Context()), co) })
	l.heard(t, "an operator", func(c upgradeable.Cluster) bool { return len(c.Operators) == 1 })
	co.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
		{Type: configv1.OperatorUpgradeable, Status: configv1.ConditionFalse, Reason: "No", LastTransitionTime: metav1.Now()},
	}
	require.NoError(t, l.client.Status().Update(t.Context(), co))
	l.heard(t, "its objection", func(c upgradeable.Cluster) bool { return len(c.Operators[0].Status.Conditions) == 1 })
}

// TestVoicesDoNotWait asks before anything can have been read: the cache does not run.
func TestVoicesDoNotWait(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	l := newListening(t, clk)
	c := l.cluster()
	for _, err := range []error{c.OperatorsErr, c.Gates.Err, c.Acks.Err} {
		require.ErrorIs(t, err, upgradeable.ErrPending)
	}
	clk.Step(time.Minute)
	c = l.cluster()
	require.EqualError(t, c.OperatorsErr, "the API server does not let ClusterOperators be watched: see the operator's log")
	require.EqualError(t, c.Gates.Err, "the API server does not let the ConfigMap be watched: see the operator's log")
	assert.NotErrorIs(t, c.Acks.Err, upgradeable.ErrPending)
}

func TestServer(t *testing.T) {
	cfg := controlPlane.Config("server")
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	require.NoError(t, err)
	c, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	broken := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.broken.example.com"},
		"spec": map[string]any{
			"group": "broken.example.com", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "nobody"},
		},
	}}
	require.NoError(t, c.Create(t.Context(), broken))
	t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), broken) })
	gv := schema.GroupVersion{Group: "broken.example.com", Version: "v1"}
	assert.Eventually(t, func() bool { return server(t.Context(), d).Unknown[gv] }, 30*time.Second, 100*time.Millisecond, "an API that does not answer is unknown")
	s := server(t.Context(), d)
	require.NoError(t, s.Err)
	assert.Regexp(t, `^v1\.\d+\.\d+`, s.Version)
	assert.True(t, s.Kinds[schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}], "the others are told all the same")
	assert.False(t, s.Kinds[schema.GroupVersionKind{Version: "v1", Kind: "Eviction"}], "what is no kind of its own is not")
	assert.False(t, s.Kinds[schema.GroupVersionKind{Group: "policy", Version: "v1beta1", Kind: "PodDisruptionBudget"}])
}

func TestServerThatDoesNotAnswer(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			_, _ = w.Write([]byte(`{"gitVersion": "v1.36.3"}`))
			return
		}
		http.Error(w, "no", http.StatusServiceUnavailable)
	}))
	d, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: web.URL})
	require.NoError(t, err)
	s := server(t.Context(), d)
	require.ErrorContains(t, s.Err, "asking for its APIs: ")
	assert.Empty(t, s.Kinds)
	web.Close()
	require.ErrorContains(t, server(t.Context(), d).Err, "asking for its version: ")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, server(ctx, d).Err)
}
