package sources

import (
	"context"
	"errors"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/engine/cluster"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

// listening is an Obstacles on a real cluster with a queue of the requested reconciles.
type listening struct {
	*Obstacles
	client client.Client
	cache  cache.Cache
	queue  workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func newListening(t *testing.T, clk clock.WithTicker) *listening {
	t.Helper()
	cfg := controlPlane.For(t).Config("voices")
	controlPlane.For(t).Serve(t, "0000_00_cluster-version-operator_01_clusteroperators.crd.yaml")
	scheme, err := cluster.NewScheme()
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
	l.Obstacles, err = newObstacles(t.Context(), clk, l.cache, core, "version")
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

// await receives requested reconciles until the obstacles have the expected state.
func (l *listening) await(t *testing.T, what string, said func(upgradeable.Cluster) bool) {
	t.Helper()
	deadline := time.AfterFunc(2*time.Minute, l.queue.ShutDown)
	defer deadline.Stop()
	for !said(l.Cluster()) {
		request, shutdown := l.queue.Get()
		require.False(t, shutdown, "waiting for %s", what)
		assert.Equal(t, "version", request.Name)
		l.queue.Done(request)
	}
}

func TestObstaclesAreReadFromTheCluster(t *testing.T) {
	l := newListening(t, clock.RealClock{})
	l.start(t)
	l.await(t, "everything to be read", func(c upgradeable.Cluster) bool {
		return errors.Join(c.OperatorsErr, c.Gates.Err, c.Acks.Err) == nil
	})
	assert.Equal(t, upgradeable.Cluster{Operators: []configv1.ClusterOperator{}}, l.Cluster(), "no objects exist yet")

	gates := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config-managed", Name: "admin-gates"}, Data: map[string]string{"ack-1.1-a": "A"}}
	acks := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config", Name: "admin-acks"}}
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config", Name: "other"}, Data: map[string]string{"ack-1.1-a": "true"}}
	for _, cm := range []*corev1.ConfigMap{other, gates, acks} {
		require.NoError(t, l.client.Create(t.Context(), cm))
		t.Cleanup(func() { _ = l.client.Delete(context.WithoutCancel(t.Context()), cm) })
	}
	l.await(t, "both ConfigMaps", func(c upgradeable.Cluster) bool { return c.Gates.Found && c.Acks.Found })
	assert.Equal(t, map[string]string{"ack-1.1-a": "A"}, l.Cluster().Gates.Data)
	assert.Empty(t, l.Cluster().Acks.Data, "another ConfigMap of the namespace is ignored")
	acks.Data = map[string]string{"ack-1.1-a": "true"}
	require.NoError(t, l.client.Update(t.Context(), acks))
	l.await(t, "the acknowledgement", func(c upgradeable.Cluster) bool { return c.Acks.Data["ack-1.1-a"] == "true" })
	require.NoError(t, l.client.Delete(t.Context(), gates))
	l.await(t, "the deletion of the gates", func(c upgradeable.Cluster) bool { return !c.Gates.Found })

	co := &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: "dns"}}
	require.NoError(t, l.client.Create(t.Context(), co))
	t.Cleanup(func() { _ = l.client.Delete(context.WithoutCancel(t.Context()), co) })
	l.await(t, "an operator", func(c upgradeable.Cluster) bool { return len(c.Operators) == 1 })
	co.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
		{Type: configv1.OperatorUpgradeable, Status: configv1.ConditionFalse, Reason: "No", LastTransitionTime: metav1.Now()},
	}
	require.NoError(t, l.client.Status().Update(t.Context(), co))
	l.await(t, "its condition", func(c upgradeable.Cluster) bool { return len(c.Operators[0].Status.Conditions) == 1 })
}

// TestUnreadObstaclesArePending queries before anything can be read, because the cache does not run.
func TestUnreadObstaclesArePending(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	l := newListening(t, clk)
	c := l.Cluster()
	for _, err := range []error{c.OperatorsErr, c.Gates.Err, c.Acks.Err} {
		require.ErrorIs(t, err, upgradeable.ErrPending)
	}
	clk.Step(time.Minute)
	c = l.Cluster()
	require.EqualError(t, c.OperatorsErr, "the operator cannot watch ClusterOperators: see its log")
	require.EqualError(t, c.Gates.Err, "the operator cannot watch the ConfigMap: see its log")
	assert.NotErrorIs(t, c.Acks.Err, upgradeable.ErrPending)
}
