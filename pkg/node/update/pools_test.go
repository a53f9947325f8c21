package update

import (
	"context"
	"fmt"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// server is the API server behind a cache.
type server struct{ *memory }

// List returns the metadata of all objects of a kind.
func (s server) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	partial, ok := list.(*metav1.PartialObjectMetadataList)
	if !ok {
		return s.memory.List(ctx, list, options...)
	}
	for _, kind := range decisive {
		if kind.GroupVersionKind != partial.GroupVersionKind() {
			continue
		}
		typed := kind.list()
		if err := s.memory.List(ctx, typed); err != nil {
			return err
		}
		return meta.EachListItem(typed, func(o runtime.Object) error {
			object, err := meta.Accessor(o)
			partial.Items = append(partial.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name: object.GetName(), ResourceVersion: object.GetResourceVersion(),
			}})
			return err
		})
	}
	return fmt.Errorf("unexpected list of %s", partial.Kind)
}

// TestNewLeaderWaitsForItsCache has a leader before that has updated the workers to another config, and has set a pool's selector.
func TestNewLeaderWaitsForItsCache(t *testing.T) {
	updated := func() *memory {
		m := newMemory(2)
		m.pools[1].Spec.Paused = false
		m.configs = append(m.configs[:1:1], newConfig("rendered-worker-old", "/etc/a", "a"), newConfig("rendered-worker-new", "/etc/a", "b"))
		for i := range m.configs[1:] {
			m.configs[i+1].CreationTimestamp = metav1.Now()
			m.configs[i+1].OwnerReferences = []metav1.OwnerReference{{Kind: "MachineConfigPool", Name: "worker", Controller: new(true)}}
		}
		m.pools[0].ResourceVersion, m.pools[1].ResourceVersion = "1", "100"
		m.pools[1].Spec.Configuration.Name = "rendered-worker-new"
		for i := range m.nodes {
			m.nodes[i].Annotations[api.CurrentConfigAnnotation] = "rendered-worker-old"
			m.nodes[i].Annotations[api.DesiredConfigAnnotation] = "rendered-worker-old"
		}
		m.nodes[0].Annotations[api.DesiredConfigAnnotation] = "rendered-worker-new"
		m.nodes[0].Annotations[api.NodeStateAnnotation], m.nodes[0].ResourceVersion = api.NodeWorking, "101"
		return m
	}
	for _, tt := range []struct {
		name string
		late func(cache *memory)
	}{
		{"a pool has its earlier config", func(cache *memory) {
			cache.pools[1].Spec.Configuration.Name, cache.pools[1].ResourceVersion = "rendered-worker-old", "99"
		}},
		{"a pool is missing", func(cache *memory) { cache.pools = cache.pools[1:] }},
		{"a node has its earlier config", func(cache *memory) {
			cache.nodes[0].Annotations[api.DesiredConfigAnnotation], cache.nodes[0].ResourceVersion = "rendered-worker-old", "1"
		}},
		{"a node is missing", func(cache *memory) { cache.nodes = cache.nodes[1:] }},
		{"a MachineConfig is missing", func(cache *memory) { cache.configs = cache.configs[1:] }},
		{"a deleted KubeletConfig still exists", func(cache *memory) { cache.kubelet = make([]mcfgv1.KubeletConfig, 1) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cache := updated()
			tt.late(cache)
			r := cache.controller()
			r.reader = server{updated()}
			reconcilePools := func() reconcile.Result {
				result, err := r.Reconcile(t.Context(), reconcile.Request{})
				require.NoError(t, err)
				return result
			}
			assert.Equal(t, reconcile.Result{RequeueAfter: syncRetry}, reconcilePools())
			assert.Equal(t, 1000, cache.version, "nothing is written")

			*cache = *updated()
			reconcilePools()
			assert.Greater(t, cache.version, 1000)
			assert.NotEqual(t, "rendered-worker-old", cache.nodes[0].Annotations[api.DesiredConfigAnnotation])
			assert.Nil(t, r.reader, "no further reconcile asks the API server")
		})
	}
}

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
	s := newServers(t)
	r.guard.config, r.guard.reader = s.guard(nil).config, s
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
