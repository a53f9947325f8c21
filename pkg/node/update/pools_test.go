package update

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// TestNodesKeepTheConfigThatTheCacheDoesNotShowYet has a cache of pools that shows no write. Another change of the MachineConfigs settles when
// the next reconcile runs.
func TestNodesKeepTheConfigThatTheCacheDoesNotShowYet(t *testing.T) {
	m := newMemory(2)
	m.pools[1].Spec.Paused = false
	m.pools[1].Spec.Configuration.Name = "rendered-worker-old"
	for i := range m.nodes {
		for _, key := range []string{api.CurrentConfigAnnotation, api.DesiredConfigAnnotation} {
			m.nodes[i].Annotations[key] = "rendered-worker-old"
		}
	}
	before := []mcfgv1.MachineConfigPool{*m.pools[0].DeepCopy(), *m.pools[1].DeepCopy()}
	r := m.controller()
	_, err := r.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	config := m.nodes[0].Annotations[api.DesiredConfigAnnotation]
	require.NotEqual(t, "rendered-worker-old", config)

	for i := range before {
		before[i].ResourceVersion = "1"
	}
	m.pools, m.configs[0].ResourceVersion = before, "2"
	r.options.Settle = time.Minute
	_, err = r.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	assert.Equal(t, config, m.nodes[0].Annotations[api.DesiredConfigAnnotation])
}

// TestInvalidNodeSelectorStopsAllPoolsButTheControlPlane has a node of a custom pool that the worker pool selects, too, and a worker whose update
// to another config is in progress.
func TestInvalidNodeSelectorStopsAllPoolsButTheControlPlane(t *testing.T) {
	m := newMemory(4)
	m.pools[1].Spec.Paused = false
	infra := *m.pools[1].DeepCopy()
	infra.Name, infra.Labels = "infra", nil
	infra.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "infra", Operator: "Bogus"}}}
	m.pools = append(m.pools, infra)
	m.configs = append(m.configs, newConfig("00-master", "/etc/example", "x"))
	m.configs[len(m.configs)-1].Labels[api.MachineConfigRoleLabel] = api.ControlPlanePool
	m.nodes[0].Labels = map[string]string{"node-role.kubernetes.io/master": ""}
	m.nodes[1].Labels["infra"] = ""
	m.nodes[2].Annotations[api.DesiredConfigAnnotation] = "rendered-worker-old"
	r := m.controller()
	r.guard = newServer(t).guard(m, r.clock)
	reconcilePools := func() {
		_, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
	}
	desired := func(i int) string { return m.nodes[i].Annotations[api.DesiredConfigAnnotation] }

	reconcilePools()

	assert.NotEmpty(t, desired(0), "the control-plane pool has precedence over custom pools")
	assert.Empty(t, desired(1))
	assert.Equal(t, "rendered-worker-old", desired(2))
	assert.Empty(t, desired(3))
	for _, n := range m.nodes {
		assert.Empty(t, n.Spec.Taints, n.Name)
	}
	assert.Equal(t, `spec.nodeSelector is invalid: "Bogus" is not a valid label selector operator. Correct it: until then, no node outside pool master starts its update`,
		pool.Message(&m.pools[2], mcfgv1.MachineConfigPoolDegraded))
	assert.Empty(t, pool.Message(&m.pools[1], mcfgv1.MachineConfigPoolDegraded))
	require.NotEmpty(t, m.pools[2].Spec.Configuration.Name)
	assert.False(t, pool.IsTrue(&m.pools[2], mcfgv1.MachineConfigPoolUpdated), "its nodes are not known")
	assert.Empty(t, m.pools[2].Status.Configuration.Name)
	assert.Equal(t, "Node n2 waits because it may belong to MachineConfigPool infra, whose spec.nodeSelector is invalid", pool.Message(&m.pools[1], pool.NodesWaiting))
	// The other slot is free.
	m.nodes[2].Annotations = m.nodes[3].Annotations
	reconcilePools()
	assert.Equal(t, "Node n1 waits because it may belong to MachineConfigPool infra, whose spec.nodeSelector is invalid (and 2 other nodes)",
		pool.Message(&m.pools[1], pool.NodesWaiting))

	m.pools[2].Spec.NodeSelector.MatchExpressions[0].Operator = metav1.LabelSelectorOpExists
	r.nextPlan = r.clock.Now()
	reconcilePools()
	assert.Equal(t, m.pools[2].Spec.Configuration.Name, desired(1))
	assert.Equal(t, m.pools[1].Spec.Configuration.Name, desired(2))
	for i := range m.pools {
		assert.Empty(t, pool.Message(&m.pools[i], mcfgv1.MachineConfigPoolDegraded))
		assert.Empty(t, pool.Message(&m.pools[i], pool.NodesWaiting))
	}
}

// TestRefusedWriteOfAReleasedNodeStopsNoPool has a released node whose write the API server refuses, perhaps by a webhook, and one that changes meanwhile.
func TestRefusedWriteOfAReleasedNodeStopsNoPool(t *testing.T) {
	for _, refusal := range []error{
		apierrors.NewForbidden(corev1.Resource("nodes"), "n0", errors.New("denied by a webhook")), apierrors.NewConflict(corev1.Resource("nodes"), "n0", errors.New("changed")),
	} {
		m := newMemory(2)
		m.pools[1].Spec.Paused = false
		m.nodes[0].Annotations[api.NodeReleasedAnnotation] = ""
		m.nodes[0].Spec.Taints = []corev1.Taint{{Key: api.UpdateInProgressTaint, Effect: corev1.TaintEffectPreferNoSchedule}}
		m.refused = refusal
		r := m.controller()

		result, err := r.Reconcile(t.Context(), reconcile.Request{})

		if apierrors.IsConflict(refusal) {
			require.NoError(t, err)
			assert.Equal(t, cluster.ConflictRetry, result.RequeueAfter)
		} else {
			require.ErrorIs(t, err, refusal)
			assert.ErrorContains(t, err, "writing the released node n0")
		}
		assert.NotEmpty(t, m.nodes[0].Spec.Taints)
		assert.NotEmpty(t, m.nodes[1].Annotations[api.DesiredConfigAnnotation])
	}
}

// TestPolicyLimitsTheNodesOfAZone has three nodes of two zones, and a pool that three may leave at a time.
func TestPolicyLimitsTheNodesOfAZone(t *testing.T) {
	m := newMemory(3)
	m.pools[1].Spec.Paused = false
	m.pools[1].Spec.MaxUnavailable = new(intstr.FromInt32(3))
	for i, zone := range []string{"a", "a", "b"} {
		m.nodes[i].Labels[corev1.LabelTopologyZone] = zone
	}
	m.policies = []api.NodeRolloutPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: api.NodeRolloutPolicySpec{MaxUnavailablePerZone: 1}}}
	r := m.controller()
	for range 2 {
		_, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
		assert.NotEmpty(t, m.nodes[0].Annotations[api.DesiredConfigAnnotation])
		assert.Empty(t, m.nodes[1].Annotations[api.DesiredConfigAnnotation])
		assert.NotEmpty(t, m.nodes[2].Annotations[api.DesiredConfigAnnotation])
		assert.Equal(t, "Node n1 waits for zone a, of which at most 1 node may be unavailable or failed", pool.Message(&m.pools[1], pool.NodesWaiting))
	}
}

func TestRefusedWriteOfANodeStopsNoOtherNode(t *testing.T) {
	m := newMemory(3)
	m.pools[1].Spec.Paused = false
	m.pools[1].Spec.MaxUnavailable = new(intstr.FromInt32(2))
	refusal := apierrors.NewForbidden(corev1.Resource("nodes"), "n0", errors.New("denied by a webhook"))
	r := m.controller()
	for range 3 {
		m.refused, r.nextPlan = refusal, r.clock.Now()
		_, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.ErrorIs(t, err, refusal)
		assert.Equal(t, `Node n0 cannot be written: nodes "n0" is forbidden: denied by a webhook`, pool.Message(&m.pools[1], pool.NodesWaiting))
	}
	assert.NotEmpty(t, m.nodes[1].Annotations[api.DesiredConfigAnnotation])

	r.nextPlan = r.clock.Now()
	_, err := r.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	assert.Empty(t, pool.Message(&m.pools[1], pool.NodesWaiting))
}

func TestRefusalIsNoFailureOfTheServer(t *testing.T) {
	nodes := corev1.Resource("nodes")
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusBadRequest, Message: `admission webhook "nodes.example.com" denied the request`}}
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"forbidden":                  {apierrors.NewForbidden(nodes, "n0", errors.New("no permission")), true},
		"invalid":                    {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), "n0", nil), true},
		"denied by a webhook":        {denied, true},
		"wrapped":                    {fmt.Errorf("writing: %w", denied), true},
		"too many requests":          {apierrors.NewTooManyRequests("the server is busy", 1), false},
		"a webhook without answer":   {apierrors.NewInternalError(errors.New("failed calling webhook")), false},
		"unavailable":                {apierrors.NewServiceUnavailable("the server stops"), false},
		"no answer of an API server": {errors.New("connection refused"), false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, isRefusal(tt.err)) })
	}
}

// TestRefusedWriteIsListedOnce has a node that keeps its slot, so each reconcile writes it, and another one that waits for the next plan.
func TestRefusedWriteIsListedOnce(t *testing.T) {
	m := newMemory(2)
	m.pools[1].Spec.Paused = false
	m.pools[1].Spec.MaxUnavailable = new(intstr.FromInt32(2))
	m.nodes[0].Annotations[api.DesiredConfigAnnotation] = "rendered-worker-old"
	r := m.controller()
	r.nextPlan = r.clock.Now().Add(time.Minute)
	for range 3 {
		m.refused = apierrors.NewForbidden(corev1.Resource("nodes"), "n0", errors.New("denied by a webhook"))
		_, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.Error(t, err)
		assert.Equal(t, `Node n0 cannot be written: nodes "n0" is forbidden: denied by a webhook`, pool.Message(&m.pools[1], pool.NodesWaiting))
	}
}

// TestNodesThatRestoreTheirContentStartNoUpdate has daemons that wait for the drain of their node, and would refuse another config until then.
func TestNodesThatRestoreTheirContentStartNoUpdate(t *testing.T) {
	m := newMemory(6)
	m.pools[1].Spec.Paused = false
	m.pools[1].Spec.Configuration.Name = "rendered-worker-old"
	for i := range m.nodes {
		m.nodes[i].Annotations = map[string]string{
			api.CurrentConfigAnnotation: "rendered-worker-old", api.DesiredConfigAnnotation: "rendered-worker-old", api.NodeStateAnnotation: api.NodeWorking,
			api.DesiredDrainAnnotation: "drain-rendered-worker-old", api.AppliedDrainAnnotation: "uncordon-rendered-worker-old",
		}
	}
	r := m.controller()
	targeted := func() (nodes []string) {
		r.nextPlan = r.clock.Now()
		_, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
		for _, n := range m.nodes {
			if n.Annotations[api.DesiredConfigAnnotation] == m.pools[1].Spec.Configuration.Name {
				nodes = append(nodes, n.Name)
			}
		}
		return nodes
	}
	assert.Empty(t, targeted())

	for i := range m.nodes {
		m.nodes[i].Annotations[api.NodeStateAnnotation] = api.NodeDone
		m.nodes[i].Annotations[api.DesiredDrainAnnotation] = "uncordon-rendered-worker-old"
	}
	assert.Equal(t, []string{"n0"}, targeted(), "the pool has one slot")
}

// TestFailureDelaysNoOtherPool has a failure of the control plane that lasts, and a pool whose MachineConfigs settle meanwhile.
func TestFailureDelaysNoOtherPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(1)
		m.refusedRoles = map[string]error{api.ControlPlaneConfigReader: errors.New("denied by a webhook")}
		r := m.controller()
		r.clock, r.options.Settle = clock.RealClock{}, 30*time.Minute
		options := watch.Retries()
		var mu sync.Mutex // for the race detector, which does not know synctest's order of goroutines
		options.SkipNameValidation = new(true)
		options.Reconciler = reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			return r.Reconcile(ctx, request)
		})
		config := func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return m.pools[1].Spec.Configuration.Name
		}
		c, err := controller.NewUnmanaged("node-pools", options)
		require.NoError(t, err)
		require.NoError(t, c.Watch(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(reconcile.Request{})
			return nil
		})))
		go func() { assert.NoError(t, c.Start(t.Context())) }()

		time.Sleep(r.options.Settle - time.Second)
		assert.Empty(t, config())
		time.Sleep(watch.RetryMost + time.Second)
		assert.NotEmpty(t, config())
	})
}
