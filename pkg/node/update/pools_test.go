package update

import (
	"context"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// lister lists one node in one version, as a cache or an API server.
type lister struct {
	client.Client
	version string
	lists   *int
}

func (l lister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	*l.lists++
	list.(*corev1.NodeList).Items = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: l.version}}}
	return nil
}

// TestNewLeaderReadsNodesFromTheAPIServer has a standby's cache that does not show the last write of the leader before.
func TestNewLeaderReadsNodesFromTheAPIServer(t *testing.T) {
	var cached, read int
	r := newPools(lister{version: "9", lists: &cached}, lister{version: "10", lists: &read}, clock.RealClock{}, nil, Options{})
	for range 2 {
		nodes, err := r.nodes(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "10", nodes[0].ResourceVersion)
	}
	assert.Equal(t, 1, read)
	r.client = lister{version: "11", lists: &cached}
	nodes, err := r.nodes(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "11", nodes[0].ResourceVersion)
	assert.Empty(t, r.written)
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
