package pool

import (
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
)

// Blocked returns the nodes of a pool that would free their slot if they returned to their config, and whose drain is blocked and began at least
// patience ago, the oldest drain first. after is the time until there is another one; 0 if none is known. There is none while the slot that another one has
// released is not free yet, and a node that tries a config again keeps its slot, because its release would hide the failure.
func Blocked(p *mcfgv1.MachineConfigPool, nodes []*corev1.Node, patience time.Duration, now time.Time) (blocked []*corev1.Node, after time.Duration) {
	if slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return slotReleased(n) != "" && HoldsSlot(n) }) {
		return nil, 0 // its return is an event
	}
	begun := map[*corev1.Node]time.Time{}
	for _, n := range nodes {
		since, isBlocked := drain.InProgress(n)
		_, isOurs := n.Annotations[api.CordonAnnotation]
		if !isBlocked || !isOurs || isSettled(n) || !hasTarget(n, p.Spec.Configuration.Name) || drain.IsAnswered(n) || !isHealthy(n) || isRetrying(p, n) {
			continue
		}
		if wait := since.Add(patience).Sub(now); wait <= 0 {
			begun[n] = since
			blocked = append(blocked, n)
		} else if after == 0 || wait < after {
			after = wait
		}
	}
	slices.SortStableFunc(blocked, func(a, b *corev1.Node) int { return begun[a].Compare(begun[b]) })
	return blocked, after
}

// SlotReleased reports whether a node has released its slot because its drain was blocked, and has not started again. budget is the
// PodDisruptionBudget that blocked the drain, as namespace/name; empty if none did.
func SlotReleased(n *corev1.Node) (budget string, is bool) {
	_, budget, _ = strings.Cut(slotReleased(n), " ")
	return budget, slotReleased(n) != ""
}

func slotReleased(n *corev1.Node) string { return n.Annotations[api.SlotReleasedAnnotation] }

// ReleaseSlot returns the change that returns a node to its config. budget blocks its drain; empty if none does.
func ReleaseSlot(n *corev1.Node, budget string, now time.Time) Change {
	c := Change{Node: n, slotReleased: strings.TrimSpace(now.UTC().Format(time.RFC3339) + " " + budget), Taint: true}
	if n.Annotations[api.NodeJobAnnotation] != "" {
		c.Job = n.Annotations[api.CurrentConfigAnnotation] // it may undo what the Job before the update has done
	}
	return c
}

// returnToCurrent requests the config that the node runs, or none.
func returnToCurrent(n *corev1.Node) {
	if current := n.Annotations[api.CurrentConfigAnnotation]; current != "" {
		n.Annotations[api.DesiredConfigAnnotation] = current
	} else {
		delete(n.Annotations, api.DesiredConfigAnnotation)
	}
}
