package plan

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
)

// candidate is a node that can start.
type candidate struct {
	node *corev1.Node
	load load
	// position is the node's index in Pool.Candidates.
	position int
	cost     cost
	// pressure is high for a node with many pods of tight budgets. The mean of the candidates is 1, or 0 if no pod has a budget.
	pressure float64
}

// pressureWeight is the additional wait, in units of cost.wait, that a node with the mean pressure is worth. A node with much pressure must not
// be among the last, because the pods that wait then delay the pool. Values from 0.5 to 0.8 do equally well in the simulation of test/nodesim.
const pressureWeight = 0.5

// cost says how long the pods of a node wait for budgets.
type cost struct {
	// wait is the longest wait. Its unit is the time in which evicted pods are replaced.
	wait float64
	// pods is the number of pods that wait. It is 0 if all evictions fit.
	pods int32
	// overdrawn is a budget for which more pods would wait than it allows to be disrupted at the same time, or -1. If the node alone has more
	// pods than that, it is a budget for which pods of other nodes wait already.
	overdrawn int32
}

// cost returns the cost of a node after the nodes that have started. A budget that never allows a disruption has no cost.
func (r *round) cost(l load) cost {
	c := cost{overdrawn: -1}
	for _, d := range l.demands {
		b := &r.budgets[d.budget]
		needs := d.needs(b)
		excess := needs - r.spare[d.budget]
		if excess <= 0 || needs == 0 || b.neverAllows() {
			continue
		}
		c.pods += min(needs, excess)
		c.wait = max(c.wait, float64(excess)/float64(b.most+1)) // the first of b.most replacements is ready after 1/(b.most+1)
		if excess > max(b.most, needs) {
			c.overdrawn = d.budget
		}
	}
	return c
}

// pressure returns the pressure on the budgets of a node. left has the pods of each budget that have to be evicted.
func (r *round) pressure(l load, left []int32) float64 {
	var sum float64
	for _, d := range l.demands {
		if b := &r.budgets[d.budget]; b.most > 0 {
			turns := float64(left[d.budget]) / float64(b.most)
			sum += float64(d.ready) * turns * turns
		}
	}
	return sum
}

// compare returns a negative number if c starts before d.
func (c *candidate) compare(d *candidate) int {
	switch {
	case c.cost.pods == 0 && d.cost.pods == 0:
		return cmp.Compare(c.position, d.position)
	case c.cost.pods == 0:
		return -1
	case d.cost.pods == 0:
		return 1
	}
	return cmp.Or(
		cmp.Compare(c.cost.wait-pressureWeight*c.pressure, d.cost.wait-pressureWeight*d.pressure),
		cmp.Compare(c.cost.pods, d.cost.pods),
		cmp.Compare(c.position, d.position),
	)
}

// queue implements heap.Interface. The best candidate is the first.
type queue []*candidate

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].compare(q[j]) < 0 }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push is not used: the queue only shrinks.
func (q *queue) Push(any) {}

func (q *queue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	*q = (*q)[:last]
	return c
}
