package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
)

// MaxUnavailable returns how many of a pool's nodes may be unavailable at the same time: at least 1, and 1 in a pool of the control plane. A
// percentage is rounded down.
func MaxUnavailable(p *mcfgv1.MachineConfigPool, nodes int) (int, error) {
	if p.Spec.MaxUnavailable == nil || p.Name == api.ArbiterPool {
		return 1, nil
	}
	most, err := intstr.GetScaledValueFromIntOrPercent(p.Spec.MaxUnavailable, nodes, false)
	if err != nil || strings.HasPrefix(p.Spec.MaxUnavailable.String(), "-") {
		return 0, fmt.Errorf("spec.maxUnavailable is %q, so no node starts its update: set a number such as 2 or a percentage such as 10%%",
			p.Spec.MaxUnavailable.String())
	}
	if IsControlPlanePool(p.Name) {
		return 1, nil
	}
	return max(most, 1), nil
}

// Candidates are the nodes of a pool that need its config.
type Candidates struct {
	// Retarget are nodes whose update to another config is in progress. They keep their slots.
	Retarget []*corev1.Node
	// Start are the other ready nodes, in the order in which they get slots.
	Start []*corev1.Node
	// Capacity is the number of free slots.
	Capacity int
}

// Used returns the number of nodes that use a slot of the pool. A node that failed to apply the pool's config does, so a broken config stops
// after maxUnavailable nodes. A node that runs it does until the Job after its update has succeeded.
func Used(p *mcfgv1.MachineConfigPool, nodes []*corev1.Node) int {
	used := 0
	for _, n := range nodes {
		if usesSlot(p, n) {
			used++
		}
	}
	return used
}

func usesSlot(p *mcfgv1.MachineConfigPool, n *corev1.Node) bool {
	return IsUnavailable(n) || hasFailed(p, n) || AwaitsJob(n) && hasTarget(n, p.Spec.Configuration.Name)
}

// UsedByZone is like Used, for each zone. Nodes without a zone have the empty one.
func UsedByZone(p *mcfgv1.MachineConfigPool, nodes []*corev1.Node) map[string]int {
	used := map[string]int{}
	for _, n := range nodes {
		if usesSlot(p, n) {
			used[n.Labels[corev1.LabelTopologyZone]]++
		}
	}
	return used
}

// SlotRefusal returns why the drain of a node of a pool must not begin now, as a sentence without subject and period; empty if it may. Only some drains
// need a slot first: any number of nodes may differ from their config, or may have failed with a config that the pool no longer has, and serve. nodes
// are the pool's. perZone is the maximum number of unavailable nodes in a zone; 0 is no limit.
func SlotRefusal(p *mcfgv1.MachineConfigPool, nodes []*corev1.Node, n *corev1.Node, perZone int) string {
	if !needsSlot(p, n) {
		return ""
	}
	most, err := MaxUnavailable(p, len(nodes))
	if err != nil {
		return "waits: " + err.Error()
	}
	var busy, inZone []string
	for _, other := range nodes {
		isBusy := IsBusy(other) || AwaitsJob(other) && hasTarget(other, p.Spec.Configuration.Name)
		if other.Name == n.Name || !isBusy || awaitsSlot(p, other) {
			continue
		}
		busy = append(busy, other.Name)
		if zone := n.Labels[corev1.LabelTopologyZone]; zone != "" && zone == other.Labels[corev1.LabelTopologyZone] {
			inZone = append(inZone, other.Name)
		}
	}
	switch {
	case len(busy) >= most:
		return fmt.Sprintf("waits for a slot: %s of MachineConfigPool %s may be unavailable at the same time, and %s is",
			printable.Count(most, "node"), p.Name, printable.AndOthers(busy[0], len(busy), "node"))
	case perZone > 0 && len(inZone) >= perZone:
		return fmt.Sprintf("waits for a slot in its zone: %s of MachineConfigPool %s may be unavailable in a zone, and %s is",
			printable.Count(perZone, "node"), p.Name, printable.AndOthers(inZone[0], len(inZone), "node"))
	}
	return ""
}

// needsSlot reports whether the daemon requests a drain for which the node has no slot yet.
func needsSlot(p *mcfgv1.MachineConfigPool, n *corev1.Node) bool {
	return IsRestoring(n) || drain.IsPending(n) && IsRetry(n) && !hasTarget(n, p.Spec.Configuration.Name)
}

// awaitsSlot reports whether the node serves until it gets the slot that its drain needs.
func awaitsSlot(p *mcfgv1.MachineConfigPool, n *corev1.Node) bool {
	_, isCordoned := n.Annotations[api.CordonAnnotation]
	return needsSlot(p, n) && !isCordoned && IsReady(n)
}

// Failed returns the number of nodes that run another config than the pool's because they failed to stage or to apply it, also while they try again.
func Failed(p *mcfgv1.MachineConfigPool, nodes []*corev1.Node, machines map[string]*mcfgv1.MachineConfigNode) int {
	failed := 0
	config := p.Spec.Configuration.Name
	for _, n := range nodes {
		_, failure := IsStaged(machines[n.Name], config)
		if hasFailed(p, n) || isRetrying(p, n) || failure != "" && !hasTarget(n, config) {
			failed++
		}
	}
	return failed
}

func hasFailed(p *mcfgv1.MachineConfigPool, n *corev1.Node) bool {
	return hasTarget(n, p.Spec.Configuration.Name) && isFailing(n)
}

// isRetrying reports whether the daemon tries the pool's config again after a failure.
func isRetrying(p *mcfgv1.MachineConfigPool, n *corev1.Node) bool {
	return hasTarget(n, p.Spec.Configuration.Name) && IsRetry(n)
}

// IsUpdated reports whether all of a pool's nodes run the pool's config, and no Job must still succeed after that.
func IsUpdated(p *mcfgv1.MachineConfigPool, nodes []*corev1.Node) bool {
	return !slices.ContainsFunc(nodes, func(n *corev1.Node) bool {
		return !IsDone(n) || AwaitsJob(n) || !hasTarget(n, p.Spec.Configuration.Name)
	})
}

// Select returns the candidates of a pool with at most maxUnavailable used slots.
func Select(p *mcfgv1.MachineConfigPool, nodes []*corev1.Node, maxUnavailable int) Candidates {
	c := Candidates{Capacity: max(maxUnavailable-Used(p, nodes), 0)}
	for _, n := range nodes {
		switch {
		case hasTarget(n, p.Spec.Configuration.Name), HoldsSlot(n) && isSettled(n): // the latter returns to its config or restores its content first
		case HoldsSlot(n) && !awaitsSlot(p, n):
			c.Retarget = append(c.Retarget, n)
		case IsReady(n) && !Differs(n): // its daemon would refuse, which would count as a failure of the config
			c.Start = append(c.Start, n)
		}
	}
	slices.SortStableFunc(c.Start, func(a, b *corev1.Node) int {
		return cmp.Or(strings.Compare(slotReleased(a), slotReleased(b)), compareByZoneAndAge(a, b)) // the value begins with the time
	})
	return c
}

// compareByZoneAndAge orders nodes by zone, nodes without a zone last, and in a zone by age, the oldest first.
func compareByZoneAndAge(a, b *corev1.Node) int {
	zoneOfA, zoneOfB := a.Labels[corev1.LabelTopologyZone], b.Labels[corev1.LabelTopologyZone]
	if (zoneOfA == "") != (zoneOfB == "") {
		return strings.Compare(zoneOfB, zoneOfA)
	}
	return cmp.Or(strings.Compare(zoneOfA, zoneOfB), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
}
