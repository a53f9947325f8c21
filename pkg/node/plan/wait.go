package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/internal/printable"
)

// Cause is the cause for which a node waits.
type Cause string

// Causes.
const (
	// Slot is that maxUnavailable nodes are unavailable.
	Slot Cause = "Slot"
	// ControlPlane is that another control-plane node is unavailable or failed.
	ControlPlane Cause = "ControlPlane"
	// ZeroBudget is a budget that has allowed no disruption for Patience.
	ZeroBudget Cause = "ZeroBudget"
	// UsedBudget is a budget that draining nodes use up.
	UsedBudget Cause = "UsedBudget"
	// Leader is that the node has the leading controller.
	Leader Cause = "Leader"
	// Returned is that the node has released its slot, because its drain was blocked.
	Returned Cause = "Returned"
	// Refused is that the node may not get the config yet: Pool.Refused.
	Refused Cause = "Refused"
	// Zone is that as many nodes of the node's zone as Pool.PerZone are unavailable or failed.
	Zone Cause = "Zone"
	// BlockedPod is a pod whose eviction is always refused.
	BlockedPod Cause = "BlockedPod"
)

// Wait says why a candidate does not start.
type Wait struct {
	Node  *corev1.Node
	Cause Cause
	// Budget is the budget for which the node waits; empty if Cause does not involve one.
	Budget types.NamespacedName

	// Slots is the number of slots of the node's pool, with cause Zone that of its zone.
	Slots int
	// OtherPool is the pool of the node for which a control-plane node waits although its own pool has a free slot; empty if it has none.
	OtherPool string
	// healthy and needed are the numbers of pods that are healthy and that must be.
	healthy, needed int32
	// pod is a pod that several budgets select, as namespace/name, or empty.
	pod string
	// refusal is the node's reason in Pool.Refused.
	refusal string
}

// String returns a sentence without subject and period.
func (w Wait) String() string {
	switch w.Cause {
	case ControlPlane:
		if w.OtherPool != "" {
			return fmt.Sprintf("waits for a node of MachineConfigPool %s, which is unavailable or failed: control-plane nodes are updated one at a time", w.OtherPool)
		}
		return "waits for another control-plane node: they are updated one at a time"
	case ZeroBudget:
		return zeroBudget(w.Budget, w.healthy, w.needed)
	case UsedBudget:
		return fmt.Sprintf("waits for PodDisruptionBudget %s: nodes that are being drained use up the disruptions that it allows", w.Budget)
	case Leader:
		return "waits for the other nodes of its pool: it runs the leading controller, which has to move once"
	case Returned:
		return "waits for the other nodes of its pool: its drain was blocked, so it released its slot"
	case Refused:
		return w.refusal
	case Zone:
		return fmt.Sprintf("waits for zone %s, of which at most %s may be unavailable or failed", w.Node.Labels[corev1.LabelTopologyZone], printable.Count(w.Slots, "node"))
	case BlockedPod:
		if w.pod != "" {
			return fmt.Sprintf("waits for other nodes that are drained last: several PodDisruptionBudgets select pod %s, so it cannot be evicted", w.pod)
		}
		return fmt.Sprintf("waits for other nodes that are drained last: PodDisruptionBudget %s never allows a disruption, because %d pods must be healthy",
			w.Budget, w.needed)
	default:
		return fmt.Sprintf("waits for a free slot: at most %s may be unavailable or failed", printable.Count(w.Slots, "node"))
	}
}

func zeroBudget(name types.NamespacedName, healthy, needed int32) string {
	return fmt.Sprintf("waits for PodDisruptionBudget %s, which allows no disruption now: %d pods are healthy, and %d must be", name, healthy, needed)
}

// wait returns the reason why a candidate does not start. hasSlot reports whether a slot stays empty.
func (r *round) wait(p *Pool, n *corev1.Node, hasSlot bool) Wait {
	w := Wait{Node: n, Cause: Slot, Slots: p.Slots}
	if why := p.Unstageable[n.Name]; why != "" {
		w.Cause, w.refusal = Refused, why
		return w
	}
	if !hasSlot && p.Limited != "" && p.Limit < p.Slots-p.Used {
		w.Cause, w.refusal = Refused, p.Limited
		return w
	}
	if !hasSlot {
		if p.UpdatesControlPlane {
			w.Cause = ControlPlane
			if p.Used < p.Slots && r.turn != p.Name {
				w.OtherPool = r.turn
			}
		}
		return w
	}
	if why := p.Refused[n.Name]; why != "" {
		w.Cause, w.refusal = Refused, why
		return w
	}
	if p.isDeferred(n) {
		w.Cause = Leader
		return w
	}
	if r.isReturned(p, n) {
		w.Cause = Returned
		return w
	}
	if p.isZoneFull(n) {
		w.Cause, w.Slots = Zone, p.PerZone
		return w
	}
	l := r.loadIn(p, n)
	id := r.zeroBudget(l)
	if id >= 0 {
		w.Cause = ZeroBudget
	} else if id = r.cost(l).overdrawn; id >= 0 {
		w.Cause = UsedBudget
	} else {
		w.Cause = BlockedPod
		if id = r.find(l, func(_ int32, b *budget) bool { return b.neverAllows() }); id < 0 {
			w.pod = l.contested[0]
			return w
		}
	}
	b := &r.budgets[id]
	w.Budget, w.healthy, w.needed = b.name, b.healthy, b.desired
	return w
}
