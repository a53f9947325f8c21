package update

import (
	"context"
	"fmt"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

const (
	// planShare limits the time spent on plans: after a plan, the next one waits for this multiple of its duration. Without it, each change of
	// a budget would cause a plan while a slot is empty.
	planShare = 9
	// idleRetry is the delay before another plan while a slot is empty, unless a budget changes earlier.
	idleRetry = 30 * time.Second
	// syncRetry is the delay before a plan is tried again after the start of the process, while the planner does not know all pods.
	syncRetry = 50 * time.Millisecond
)

// rollout is a pool during a reconcile.
type rollout struct {
	pool  *mcfgv1.MachineConfigPool
	nodes []*corev1.Node
	// renderError says why the pool's MachineConfigs cannot be rendered; empty if they can.
	renderError string
	// targeted are the nodes that get the pool's config now, in order.
	targeted []*corev1.Node
	// specError explains why no node can be targeted because of a field of the pool; empty if none prevents it.
	specError string
	// waiting explains why nodes wait although slots are free; empty if none does.
	waiting string
	// wait is the time after which the pool must be reconciled again; 0 if only a change of an object requires that.
	wait time.Duration
	err  error
}

// plan finds the nodes that start now. wait is the time after which it must run again; 0 if only a change of an object requires that.
func (r *pools) plan(ctx context.Context, rollouts []*rollout) (wait time.Duration, err error) {
	inputs := make([]plan.Pool, len(rollouts))
	isNeeded := false
	for i, o := range rollouts {
		inputs[i] = o.prepare()
		isNeeded = isNeeded || inputs[i].Free > 0 && len(inputs[i].Candidates) > 0
	}
	if !isNeeded {
		r.hasIdle.Store(false)
		return 0, nil
	}
	for _, o := range rollouts {
		o.waiting = pool.Message(o.pool, pool.NodesWaiting) // it stays until the next plan
	}
	begun := r.clock.Now()
	if wait := r.nextPlan.Sub(begun); wait > 0 {
		return wait, nil
	}
	if !r.planner.hasSynced() {
		return syncRetry, nil
	}
	var budgets policyv1.PodDisruptionBudgetList
	if err := r.client.List(ctx, &budgets, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	hasIdle := false
	for i, p := range r.planner.plan(budgets.Items, inputs, begun) {
		rollouts[i].targeted = append(rollouts[i].targeted, p.Start...)
		hasIdle = hasIdle || p.Idle > 0
		rollouts[i].waiting = explain(p)
	}
	r.hasIdle.Store(hasIdle)
	r.nextPlan = begun.Add((planShare + 1) * r.clock.Since(begun))
	if hasIdle {
		return idleRetry, nil // beside the changes of budgets
	}
	return 0, nil
}

// explain returns a sentence about the first node that waits although slots are free, and the number of the others; empty if none does.
func explain(p plan.Plan) string {
	if p.Idle == 0 {
		return ""
	}
	first := p.Waiting[0]
	return printable.AndOthers(fmt.Sprintf("Node %s %s", first.Node.Name, first), len(p.Waiting), "node")
}

// prepare returns the nodes of a pool for the planner, and targets those that keep their slots.
func (o *rollout) prepare() plan.Pool {
	input := plan.Pool{Name: o.pool.Name, Undrained: map[string]bool{}}
	for _, n := range o.nodes {
		if n.Annotations[api.CurrentConfigAnnotation] == "" && !strings.HasPrefix(n.Annotations[api.DesiredDrainAnnotation], "drain-") {
			input.Undrained[n.Name] = true // the daemon drains a host without a config only if it differs from the requested content
		}
		if pool.IsDraining(n) {
			input.Draining = append(input.Draining, n)
		}
	}
	if o.err != nil || o.pool.DeletionTimestamp != nil {
		return input
	}
	var err error
	if input.Slots, err = pool.MaxUnavailable(o.pool, len(o.nodes)); err != nil {
		o.specError = err.Error()
		return input
	}
	if o.pool.Spec.Paused || o.pool.Spec.Configuration.Name == "" {
		return input
	}
	candidates := pool.Select(o.pool, o.nodes, input.Slots)
	o.targeted = candidates.Retarget
	input.Candidates, input.Free = candidates.Start, candidates.Capacity
	return input
}

// budgetChanged requests another plan if a slot is empty.
func (r *pools) budgetChanged(context.Context, client.Object) []reconcile.Request {
	if !r.hasIdle.Load() {
		return nil
	}
	return []reconcile.Request{{}}
}
