// Package plan takes the candidates of pools, the pods on nodes and PodDisruptionBudgets as values. It returns the nodes that start their
// update now, in order, and for each other candidate the reason why it waits. Package pool finds candidates and free slots, package drain
// decides which pods leave a node, and package update reads the objects and starts the nodes.
package plan

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/node/policy"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// Patience is the time for which a budget may allow no disruption before its nodes are passed over. Evicted pods are usually replaced within
// this time. A budget that stays at zero belongs to an application with another problem, and a slot must not wait for that.
const Patience = time.Minute

// Pool has the nodes of a pool.
type Pool struct {
	// Name is the pool's name.
	Name string
	// UpdatesControlPlane is pool.UpdatesControlPlane. All nodes of such pools start one at a time.
	UpdatesControlPlane bool
	// Candidates are the nodes that can start, in the order in which they start without budgets: pool.Candidates.Start.
	Candidates []*corev1.Node
	// Draining are the nodes of the pool that have started and whose drain is not complete.
	Draining []*corev1.Node
	// Undrained has the names of nodes that are expected to update without a drain. Budgets do not delay them.
	Undrained map[string]bool
	// Slots is the number of nodes that may be unavailable at the same time, and Used the number of those that use a slot now: pool.Used.
	Slots, Used int
	// Retarget are the nodes that get the pool's config at once: their update to another config is in progress, and they keep their slots. Held
	// are those of them that are refused.
	Retarget, Held []*corev1.Node
	// Refused are the candidates and held nodes that may not get the pool's config now, each with the reason as a sentence without subject and
	// period.
	Refused map[string]string
	// Unstageable are those of the refused candidates that cannot stage the pool's config, or that a failed Job holds, each with the reason. They need an
	// administrator.
	Unstageable map[string]string
	// unprepared is Jobs.Unprepared.
	unprepared map[string]bool
	// Limit is the number of candidates that may start now, and Limited the reason of the others, as a sentence without subject and period. An empty
	// Limited means that only slots limit the number.
	Limit   int
	Limited string
	// PerZone is the number of nodes in a zone that may use a slot at the same time; 0 is no limit. UsedByZone is the number of those that use one
	// now: pool.UsedByZone.
	PerZone    int
	UsedByZone map[string]int
	// Blocked are those of the draining nodes that release their slot if another node starts then: pool.Blocked.
	Blocked []*corev1.Node
	// isRelease reports whether the slot of a blocked node is free only in this plan. Two blocked nodes must not take turns.
	isRelease bool
	// Leader is the node of the leading controller; empty if it is not known. It is the last of a control-plane pool, so that the controller
	// moves once.
	Leader string
}

// Plan is the result for a pool.
type Plan struct {
	// Start are the nodes that start now, in this order.
	Start []*corev1.Node
	// Waiting are the other candidates, in the order of Pool.Candidates, with Pool.Leader last.
	Waiting []Wait
	// Idle is the number of slots that stay empty although nodes wait, for another reason than their zone. A change of a budget may allow another plan
	// to fill them.
	Idle int
}

// Plan returns a plan for each pool, in the same order. All pools share the budgets, so a call needs all pools with draining nodes. The nodes
// of a pool start in this order:
//
//  1. Nodes whose evictions all fit into the budgets, in the order of the pool. The evictions that draining nodes still need, and those of
//     nodes that start in the same call, use up the budgets.
//  2. If a slot would stay empty, nodes whose pods wait. Those with the shortest wait and the tightest budgets are first. At most as many
//     pods may wait for a budget as it allows to be disrupted at the same time: more cordoned nodes would not be faster. A node that has
//     more pods of a budget than that starts if no pod of another node waits for the budget.
//  3. Nodes with a pod whose eviction is always refused: its budget never allows a disruption, or several budgets select it. The pod's
//     operator may move it once the node is cordoned or an eviction was refused, and needs other nodes for that. Therefore nodes with pods of
//     the same budget start one at a time, and at most half of the slots, rounded up, have such nodes.
//
// Control-plane nodes start one at a time, in whatever pool they are. The node of the leading controller starts when no other candidate of its
// pool is left.
//
// A node that has released its slot comes after all other nodes of its pool, unless the budget that blocked its drain allows an eviction. Nodes that
// are held, cannot stage the config or are passed over do not delay it.
//
// A node is passed over while one of its budgets has been at zero for Patience, and while its zone is full. now is the time of the budgets' conditions.
func (x *Index) Plan(pools []Pool, now time.Time) []Plan {
	r := x.newRound(pools, now)
	plans := make([]Plan, len(pools))
	for i := range pools {
		p := pools[i]
		used := make(map[string]int, len(p.UsedByZone)) // the plan counts the nodes that start
		maps.Copy(used, p.UsedByZone)
		p.UsedByZone = used
		if leader := slices.IndexFunc(p.Candidates, p.isLeader); leader >= 0 {
			p.Candidates = slices.Concat(p.Candidates[:leader], p.Candidates[leader+1:], p.Candidates[leader:leader+1])
		}
		plans[i] = r.plan(&p)
	}
	return plans
}

// round is a call of Plan.
type round struct {
	*Index
	now time.Time
	// spare is the number of evictions that each budget still accepts. It is negative if pods wait already.
	spare []int32
	// held has the budgets that never allow a disruption and have pods on a node that has started.
	held map[int32]bool
	// controlPlane is the number of control-plane nodes that may still start: 1 or 0. If it is 0, turn is the pool of the node for which the
	// others wait.
	controlPlane int
	turn         string
}

func (x *Index) newRound(pools []Pool, now time.Time) *round {
	r := &round{Index: x, now: now, spare: make([]int32, len(x.budgets)), held: map[int32]bool{}, controlPlane: 1}
	for i := range x.budgets {
		r.spare[i] = x.budgets[i].allowed
	}
	for i := range pools {
		if pools[i].UpdatesControlPlane && pools[i].Used > 0 {
			r.controlPlane, r.turn = 0, cmp.Or(r.turn, pools[i].Name)
		}
		for _, n := range pools[i].Draining {
			r.start(r.loadIn(&pools[i], n))
		}
	}
	return r
}

// loadIn returns the pods that must leave a node of a pool.
func (r *round) loadIn(p *Pool, n *corev1.Node) load {
	if p.Undrained[n.Name] {
		return load{}
	}
	return r.load(n)
}

// start reserves the evictions that the drain of a node needs.
func (r *round) start(l load) {
	for _, d := range l.demands {
		b := &r.budgets[d.budget]
		needs := d.needs(b)
		r.spare[d.budget] -= needs
		if b.neverAllows() && needs > 0 {
			r.held[d.budget] = true
		}
	}
}

// free returns the number of candidates that may start as far as slots and the limit decide.
func (p *Pool) free() int {
	free := max(p.Slots-p.Used, 0)
	if p.Limited != "" {
		free = max(min(free, p.Limit), 0)
	}
	return free
}

func (r *round) plan(p *Pool) Plan {
	free := p.free()
	if p.UpdatesControlPlane {
		free = min(free, r.controlPlane)
	}
	var result Plan
	var started []bool
	if free > 0 {
		result.Start, started = r.startNodes(p, free)
		free -= len(result.Start)
		if p.UpdatesControlPlane && len(result.Start) > 0 {
			r.controlPlane, r.turn = 0, p.Name
		}
	}
	zoned := 0
	for i, n := range p.Candidates {
		if started == nil || !started[i] {
			w := r.wait(p, n, free > 0)
			result.Waiting = append(result.Waiting, w)
			if w.Cause == Zone {
				zoned++
			}
		}
	}
	result.Idle = min(free, len(result.Waiting)-zoned)
	return result
}

// isZoneFull reports whether no more node of a node's zone may start.
func (p *Pool) isZoneFull(n *corev1.Node) bool {
	zone := n.Labels[corev1.LabelTopologyZone]
	return p.PerZone > 0 && zone != "" && p.UsedByZone[zone] >= p.PerZone
}

func (p *Pool) isLeader(n *corev1.Node) bool {
	return p.UpdatesControlPlane && n.Name == p.Leader
}

// isDeferred reports whether the node of the leading controller has to wait for other nodes.
func (p *Pool) isDeferred(n *corev1.Node) bool {
	return p.isLeader(n) && slices.ContainsFunc(p.Candidates, func(other *corev1.Node) bool {
		return other.Name != n.Name && p.Unstageable[other.Name] == "" && !isSlotReleased(other)
	})
}

func isSlotReleased(n *corev1.Node) bool {
	_, is := pool.SlotReleased(n)
	return is
}

// isReturned reports whether a node has released its slot and has to wait for other nodes.
func (r *round) isReturned(p *Pool, n *corev1.Node) bool {
	budget, is := pool.SlotReleased(n)
	if !is {
		return false
	}
	namespace, name, _ := strings.Cut(budget, "/")
	if id, ok := r.ids[types.NamespacedName{Namespace: namespace, Name: name}]; ok && r.spare[id] > 0 {
		return false
	}
	return p.isRelease || slices.ContainsFunc(p.Candidates, func(other *corev1.Node) bool {
		return !isSlotReleased(other) && p.Unstageable[other.Name] == "" && policy.Hold(other) == "" && r.zeroBudget(r.loadIn(p, other)) < 0
	})
}

// startNodes returns at most free nodes, and for each candidate whether it is among them.
func (r *round) startNodes(p *Pool, free int) (nodes []*corev1.Node, started []bool) {
	started = make([]bool, len(p.Candidates))
	begin := func(c *candidate) {
		r.start(c.load)
		started[c.position] = true
		nodes = append(nodes, c.node)
		if p.PerZone > 0 {
			p.UsedByZone[c.node.Labels[corev1.LabelTopologyZone]]++
		}
	}
	first, last := r.candidates(p)
	for len(nodes) < free && len(first) > 0 {
		// Nodes that start raise the costs of others and never lower them, so a node whose cost has not risen is the best one.
		best := first[0]
		switch c := r.cost(best.load); {
		case c.overdrawn >= 0, p.isZoneFull(best.node):
			heap.Pop(&first)
		case c != best.cost:
			best.cost = c
			heap.Fix(&first, 0)
		default:
			heap.Pop(&first)
			begin(best)
		}
	}
	most := r.mostLast(p)
	for _, c := range last {
		if len(nodes) < free && most > 0 && !p.isZoneFull(c.node) && r.cost(c.load).overdrawn < 0 && r.heldBudget(c.load) < 0 {
			begin(c)
			most--
		}
	}
	return nodes, started
}

// mostLast returns how many nodes with a pod whose eviction is always refused may start.
func (r *round) mostLast(p *Pool) int {
	most := (p.Slots + 1) / 2
	for _, n := range p.Draining {
		if r.comesLast(r.loadIn(p, n)) {
			most--
		}
	}
	return most
}

// candidates returns the nodes that start first and those that start last. It leaves out nodes that are passed over.
func (r *round) candidates(p *Pool) (first queue, last []*candidate) {
	all := make([]candidate, len(p.Candidates))
	left := make([]int32, len(r.budgets)) // the pods of each budget on candidates
	for i, n := range p.Candidates {
		all[i] = candidate{node: n, load: r.loadIn(p, n), position: i}
		for _, d := range all[i].load.demands {
			left[d.budget] += d.ready
		}
	}
	first = make(queue, 0, len(all))
	var sum float64
	for i := range all {
		c := &all[i]
		switch {
		case p.Refused[c.node.Name] != "", p.isDeferred(c.node), r.isReturned(p, c.node), r.zeroBudget(c.load) >= 0:
		case r.comesLast(c.load):
			last = append(last, c)
		default:
			c.cost, c.pressure = r.cost(c.load), r.pressure(c.load, left)
			sum += c.pressure
			first = append(first, c)
		}
	}
	for _, c := range first {
		if sum > 0 {
			c.pressure *= float64(len(first)) / sum
		}
	}
	heap.Init(&first)
	return first, last
}

// comesLast reports whether the eviction of a pod on the node is always refused.
func (r *round) comesLast(l load) bool {
	if len(l.contested) > 0 {
		return true
	}
	return r.find(l, func(_ int32, b *budget) bool { return b.neverAllows() }) >= 0
}

// zeroBudget returns the first budget of a node's pods that has allowed no disruption for Patience, or -1.
func (r *round) zeroBudget(l load) int32 {
	return r.find(l, func(_ int32, b *budget) bool {
		return b.allowed <= 0 && !b.neverAllows() && r.now.Sub(b.zeroSince) >= Patience
	})
}

// heldBudget returns the first budget of a node's pods that never allows a disruption and has pods on a node that has started, or -1.
func (r *round) heldBudget(l load) int32 {
	return r.find(l, func(id int32, _ *budget) bool { return r.held[id] })
}

// find returns the first budget that a drain of the node needs and that matches, or -1.
func (r *round) find(l load, matches func(int32, *budget) bool) int32 {
	for _, d := range l.demands {
		if b := &r.budgets[d.budget]; d.needs(b) > 0 && matches(d.budget, b) {
			return d.budget
		}
	}
	return -1
}
