package nodes_test

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/view/nodes"
)

func TestRetryNamesTheFailedConfig(t *testing.T) {
	c := nodes.Cluster{At: now, Pools: []*mcfgv1.MachineConfigPool{newPool("worker")}, Nodes: []*corev1.Node{
		at("done", target), to("failed", api.NodeDegraded, "reason", "a check failed"),
	}}
	got, err := nodes.NewRetry(c, "failed")
	require.NoError(t, err)
	assert.Equal(t, &nodes.Retry{
		Node: "failed", Pool: "worker", Config: target, Failure: "a check failed", Request: target + " 2026-03-01T12:00:00Z",
		Message: "node failed tries " + target + " again; 'cvo nodes status worker' shows the progress",
	}, got)
}

// TestRetryRestoresTheContentOfTheNodesConfig has a node whose host differs from its config, also while its paused pool has another one.
func TestRetryRestoresTheContentOfTheNodesConfig(t *testing.T) {
	for _, config := range []string{target, before} {
		n := newNode("n", "currentConfig", config, "desiredConfig", config, "state", api.NodeDegraded)
		got, err := nodes.NewRetry(nodes.Cluster{At: now, Pools: []*mcfgv1.MachineConfigPool{newPool("worker", paused)}, Nodes: []*corev1.Node{n}}, "n")
		require.NoError(t, err)
		assert.Equal(t, config, got.Config)
		assert.Equal(t, "node n restores the content of "+config+"; 'cvo nodes status worker' shows the progress", got.Message)
	}
}

func TestRetryNeedsAFailureOfThePoolsConfig(t *testing.T) {
	other := newNode("n", "currentConfig", target, "desiredConfig", before, "state", api.NodeDegraded)
	for _, tt := range []struct {
		name string
		pool *mcfgv1.MachineConfigPool
		node *corev1.Node
		want string
	}{
		{"it does not exist", newPool("worker"), at("other", target), `there is no node "n": 'kubectl get nodes' lists the names`},
		{"no pool selects it", newPool("infra"), to("n", api.NodeDegraded), "no MachineConfigPool updates node n: 'cvo nodes status' shows why"},
		{"it is done", newPool("worker"), at("n", target), "no config failed on node n, so there is nothing to retry: 'cvo nodes status worker' shows its state"},
		{"it is working", newPool("worker"), to("n", api.NodeWorking), "no config failed on node n, so there is nothing to retry: 'cvo nodes status worker' shows its state"},
		{
			"its pool has another config", newPool("worker"), other, "MachineConfigPool worker has config " + target + " now instead of " + before +
				", with which node n failed: the node gets it without a retry, see 'cvo nodes plan worker'",
		},
		{
			"its paused pool has another config", newPool("worker", paused), other, "MachineConfigPool worker has config " + target + " now instead of " + before +
				", with which node n failed, and is paused: run 'cvo nodes resume worker' to update the node",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := nodes.NewRetry(nodes.Cluster{At: now, Pools: []*mcfgv1.MachineConfigPool{tt.pool}, Nodes: []*corev1.Node{tt.node}}, "n")
			require.EqualError(t, err, tt.want)
		})
	}
}
