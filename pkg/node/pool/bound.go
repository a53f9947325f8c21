package pool

import (
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
)

// Bound is what limits the update of a pool.
type Bound string

// Bounds of pools.
const (
	// BoundNone is the bound of a pool that is updated, or whose next nodes are about to start.
	BoundNone Bound = "None"
	// BoundConfig means that the pool's MachineConfigs cannot be rendered.
	BoundConfig Bound = "InvalidConfig"
	// BoundSpec means that a field of the pool prevents updates.
	BoundSpec Bound = "InvalidPool"
	// BoundPaused means that the pool is paused and nodes need its config.
	BoundPaused Bound = "Paused"
	// BoundNodes means that each remaining node is being updated, failed or is not ready.
	BoundNodes Bound = "Nodes"
	// BoundMaxUnavailable means that nodes wait because all slots are in use.
	BoundMaxUnavailable Bound = "MaxUnavailable"
	// BoundBudgets means that nodes wait for PodDisruptionBudgets, or for another reason in NodesWaiting such as another control-plane pool,
	// although slots are free.
	BoundBudgets Bound = "Budgets"
)

// Bounds returns all bounds.
func Bounds() []Bound {
	return []Bound{BoundNone, BoundConfig, BoundSpec, BoundPaused, BoundNodes, BoundMaxUnavailable, BoundBudgets}
}

// BoundOf returns what limits the update of a pool now. m has its nodes.
func BoundOf(p *mcfgv1.MachineConfigPool, m Membership) Bound {
	nodes, target := m.Nodes[p.Name], p.Spec.Configuration.Name
	slots, err := MaxUnavailable(p, len(nodes))
	candidates := Select(p, nodes, slots)
	isWaiting := func(n *corev1.Node) bool { return !hasTarget(n, target) }
	isPending := func(n *corev1.Node) bool { return isWaiting(n) || !IsDone(n) }
	switch {
	case IsTrue(p, mcfgv1.MachineConfigPoolRenderDegraded):
		return BoundConfig
	case m.Invalid[p.Name] != "":
		return BoundSpec
	case target == "" || !slices.ContainsFunc(nodes, isPending):
		return BoundNone
	case p.Spec.Paused && slices.ContainsFunc(nodes, isWaiting):
		return BoundPaused
	case err != nil:
		return BoundSpec
	case len(candidates.Start) == 0:
		return BoundNodes
	case candidates.Capacity == 0:
		return BoundMaxUnavailable
	case IsTrue(p, NodesWaiting):
		return BoundBudgets
	default:
		return BoundNone
	}
}
