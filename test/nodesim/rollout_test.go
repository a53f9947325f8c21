package nodesim_test

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// update updates all nodes and returns the makespan as a multiple of the bound.
func (c *cluster) update() (multiple float64, err error) {
	bound := c.bound()
	for _, p := range c.pools {
		c.start(p)
	}
	c.run()
	last := epoch
	for _, p := range c.pools {
		if p.updated != nodesPerPool {
			return 0, fmt.Errorf("%d of %d nodes of %s are updated: the planner starts no other node", p.updated, nodesPerPool, p.object.Name)
		}
		if p.finished.After(last) {
			last = p.finished
		}
	}
	return float64(last.Sub(epoch)) / float64(bound), nil
}

// start starts nodes of a pool.
func (c *cluster) start(p *nodePool) {
	most, err := pool.MaxUnavailable(p.object, len(p.objects))
	if err != nil {
		c.violations = append(c.violations, err.Error())
		return
	}
	candidates := pool.Select(p.object, p.objects, most)
	input := plan.Pool{Name: p.object.Name, Candidates: candidates.Start, Slots: most, Used: pool.Used(p.object, p.objects)}
	for _, n := range p.nodes {
		if n.left > 0 {
			input.Draining = append(input.Draining, n.object)
		}
	}
	c.plans++
	result := c.index.Plan([]plan.Pool{input}, c.now)[0]
	next := result.Start
	p.hasIdle = result.Idle > 0
	if c.byPoolAlone {
		next, p.hasIdle = candidates.Start[:min(candidates.Capacity, len(candidates.Start))], false
	}
	for _, n := range next {
		pool.Change{Node: n, Target: true}.Apply(n, after)
		n.Spec.Unschedulable = true
	}
	if unavailable := p.unavailable(); unavailable > slots {
		c.violations = append(c.violations, fmt.Sprintf("%s has %d unavailable nodes", p.object.Name, unavailable))
	}
	for _, n := range next {
		c.drain(p.byName[n.Name])
	}
}

func (p *nodePool) unavailable() int {
	count := 0
	for _, n := range p.objects {
		if n.Spec.Unschedulable {
			count++
		}
	}
	return count
}

// drain requests the eviction of all pods of a node at once, as far as the limit allows.
func (c *cluster) drain(n *node) {
	n.left = len(n.pods)
	if n.left == 0 {
		c.in(reboot, func() { c.finish(n) })
	}
	for _, q := range n.pods {
		c.request(q)
	}
}

// request requests the eviction of a pod when the limit allows it.
func (c *cluster) request(q *pod) {
	attempt := func() {
		if !c.evict(q) {
			q.app.refused = append(q.app.refused, q)
		}
	}
	if c.perSecond == 0 {
		attempt()
		return
	}
	if c.nextRequest.Before(c.now) {
		c.nextRequest = c.now
	}
	c.in(c.nextRequest.Sub(c.now), attempt)
	c.nextRequest = c.nextRequest.Add(time.Second / time.Duration(c.perSecond))
}

// evict requests the eviction of a pod. It follows the API server: a budget refuses the eviction if it allows no disruption.
func (c *cluster) evict(q *pod) (accepted bool) {
	if q.app.budget != nil && q.app.budget.Status.DisruptionsAllowed == 0 {
		c.refused++
		return false
	}
	c.index.RemovePod(q.object)
	c.setHealthy(q.app, q.app.healthy-1)
	c.in(q.termination, func() {
		if q.node.left--; q.node.left == 0 {
			c.in(reboot, func() { c.finish(q.node) })
		}
		// The replacement runs on an updated node, so it is not evicted again.
		c.in(startup, func() { c.setHealthy(q.app, q.app.healthy+1) })
	})
	return true
}

// setHealthy changes the number of an application's healthy pods, and its budget's status as the controller of budgets does. If the change frees
// evictions by the rule of the stage's controllers, it makes the next attempt for the refused ones due, and the next plan too if a slot is empty.
func (c *cluster) setHealthy(app *application, healthy int) {
	app.healthy = healthy
	if healthy < app.needed {
		c.violations = append(c.violations, fmt.Sprintf("an application has %d healthy pods and needs %d", healthy, app.needed))
	}
	if app.budget == nil {
		return
	}
	earlier := app.budget.DeepCopy()
	s := &app.budget.Status
	s.CurrentHealthy = int32(healthy)
	s.DisruptionsAllowed = max(s.CurrentHealthy-s.DesiredHealthy, 0)
	status := metav1.ConditionTrue
	if s.DisruptionsAllowed == 0 {
		status = metav1.ConditionFalse
	}
	if allowed := &s.Conditions[0]; allowed.Status != status {
		allowed.Status, allowed.LastTransitionTime = status, metav1.NewTime(c.now)
	}
	c.index.SetStatus(app.budget)
	if plan.Frees(earlier, app.budget) {
		c.retry(app)
	}
}

// retry follows a change of an application's budget.
func (c *cluster) retry(app *application) {
	refused := app.refused
	app.refused = nil
	for _, q := range refused {
		c.request(q)
	}
	if p := app.pool; p.hasIdle && !p.isDue {
		p.isDue = true
		c.in(settle, func() {
			p.isDue = false
			if p.hasIdle {
				c.start(p)
			}
		})
	}
}

// finish ends the update of a node.
func (c *cluster) finish(n *node) {
	n.object.Annotations[api.CurrentConfigAnnotation] = after
	n.object.Spec.Unschedulable = false
	n.pool.updated++
	n.pool.finished = c.now
	c.start(n.pool)
}
