package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// CanRelease reports whether a node may release its slot as far as refusals decide. Budgets may prevent that another one starts.
func (p *Pool) CanRelease() bool {
	return len(p.Blocked) > 0 && slices.ContainsFunc(p.Candidates, func(n *corev1.Node) bool { return p.Refused[n.Name] == "" })
}

// Releases returns for each pool the nodes of Pool.Blocked that release their slot, so that another node starts. plans are those of a planner for pools. Usually
// no other node could start, which one more plan shows, in which all of them release it.
func Releases(pools []Pool, plans []Plan, planner func([]Pool) []Plan) [][]*corev1.Node {
	pools, plans = slices.Clone(pools), slices.Clone(plans)
	releases := make([][]*corev1.Node, len(pools))
	all := slices.Clone(pools)
	for i := range pools {
		if pools[i].CanRelease() {
			for _, n := range pools[i].Blocked {
				all[i] = all[i].without(n)
			}
		}
	}
	var most []Plan
	for i := range pools {
		if !pools[i].CanRelease() {
			continue
		}
		if most == nil {
			most = planner(all)
		}
		for _, n := range pools[i].Blocked {
			if len(most[i].Start) <= len(plans[i].Start) {
				break
			}
			next := slices.Clone(pools)
			next[i] = pools[i].without(n)
			if result := planner(next); len(result[i].Start) > len(plans[i].Start) {
				pools, plans = next, result
				releases[i] = append(releases[i], n)
			}
		}
	}
	return releases
}

// without returns the pool as it is after a draining node has released its slot.
func (p *Pool) without(n *corev1.Node) Pool {
	next := *p
	next.isRelease = true
	next.Used--
	next.Limit++ // the node was one of the started ones
	next.Draining = slices.DeleteFunc(slices.Clone(p.Draining), func(other *corev1.Node) bool { return other.Name == n.Name })
	next.UsedByZone = maps.Clone(p.UsedByZone)
	if next.PerZone > 0 {
		next.UsedByZone[n.Labels[corev1.LabelTopologyZone]]--
	}
	return next
}
