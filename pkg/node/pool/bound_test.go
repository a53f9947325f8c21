package pool_test

import (
	"slices"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

func TestBoundOfAPool(t *testing.T) {
	paused := func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true }
	is := func(kind mcfgv1.MachineConfigPoolConditionType) func(*mcfgv1.MachineConfigPool) {
		return func(p *mcfgv1.MachineConfigPool) {
			p.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: kind, Status: corev1.ConditionTrue}}
		}
	}
	bogus := func(p *mcfgv1.MachineConfigPool) {
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "infra", Operator: "Bogus"}}}
	}
	for _, tt := range []struct {
		name, nodes string
		change      func(*mcfgv1.MachineConfigPool)
		want        pool.Bound
	}{
		{"an empty pool has none", "", nil, pool.BoundNone},
		{"an updated pool has none", "a:v1→v1 b:v1→v1^", nil, pool.BoundNone},
		{"an updated pool that is paused has none", "a:v1→v1", paused, pool.BoundNone},
		{"a pool without a config has none", "a:v0→v0", func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = "" }, pool.BoundNone},
		{"a node is about to start", "a:v0→v0 b:v1→v1", nil, pool.BoundNone},
		{"the slots are in use", "a:v0→v1 b:v0→v0", nil, pool.BoundMaxUnavailable},
		{"a failed node uses the slot", "a:v0→v1/Degraded b:v0→v0", nil, pool.BoundMaxUnavailable},
		{"the last node is being updated", "a:v0→v1 b:v1→v1", nil, pool.BoundNodes},
		{"the last node is not ready", "a:v0→v0! b:v1→v1", nil, pool.BoundNodes},
		{"a paused pool has nodes without the config", "a:v0→v1 b:v0→v0", paused, pool.BoundPaused},
		{"a paused pool completes what it has started", "a:v0→v1 b:v1→v1", paused, pool.BoundNodes},
		{"budgets keep a slot empty", "a:v0→v0", is(pool.NodesWaiting), pool.BoundBudgets},
		{"the config cannot be rendered", "a:v1→v1", is(mcfgv1.MachineConfigPoolRenderDegraded), pool.BoundConfig},
		{"the selector of nodes is invalid", "", bogus, pool.BoundSpec},
		{"a control-plane pool has one slot", "a:v0→v1 b:v0→v0", func(p *mcfgv1.MachineConfigPool) {
			p.Name, p.Spec.MaxUnavailable = api.ControlPlanePool, new(intstr.FromInt(2))
		}, pool.BoundMaxUnavailable},
		{"maxUnavailable is invalid", "a:v0→v0", func(p *mcfgv1.MachineConfigPool) { p.Spec.MaxUnavailable = new(intstr.FromString("many")) }, pool.BoundSpec},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
			p.Spec.Configuration.Name = "v1"
			if tt.change != nil {
				tt.change(p)
			}
			members := pool.Assign([]*mcfgv1.MachineConfigPool{p}, nil)
			members.Nodes[p.Name] = parseNodes(t, tt.nodes)
			got := pool.BoundOf(p, members)
			assert.Equal(t, tt.want, got)
			assert.True(t, slices.Contains(pool.Bounds(), got))
		})
	}
}
