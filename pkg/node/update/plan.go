package update

import (
	"context"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// planShare limits the time spent on plans: after a plan, the next one waits for this multiple of its duration. A plan for 2,000 nodes with
// 60,000 pods lasts less than 0.1 s, so a free slot waits for less than a second.
const planShare = 9

// rollout is a pool during a reconcile.
type rollout struct {
	pool  *mcfgv1.MachineConfigPool
	nodes []*corev1.Node
	// renderError says why the pool's MachineConfigs cannot be rendered; empty if they can.
	renderError string
	// targeted are the nodes that get the pool's config now, in order.
	targeted []*corev1.Node
	// unplanned is the reason why no node can be targeted, or nil.
	unplanned error
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
	begun := r.clock.Now()
	if wait := r.nextPlan.Sub(begun); wait > 0 {
		return wait, nil
	}
	index, err := r.index(ctx, inputs)
	if err != nil {
		return 0, err
	}
	hasIdle := false
	for i, p := range index.Plan(inputs, begun) {
		rollouts[i].targeted = append(rollouts[i].targeted, p.Start...)
		hasIdle = hasIdle || p.Idle > 0
	}
	r.hasIdle.Store(hasIdle)
	r.nextPlan = begun.Add((planShare + 1) * r.clock.Since(begun))
	if hasIdle {
		return r.options.Retry, nil // beside the changes of budgets
	}
	return 0, nil
}

// prepare returns the nodes of a pool for the planner, and targets those that keep their slots.
func (o *rollout) prepare() plan.Pool {
	input := plan.Pool{Name: o.pool.Name}
	for _, n := range o.nodes {
		if pool.IsDraining(n) {
			input.Draining = append(input.Draining, n)
		}
	}
	if o.err != nil || o.pool.DeletionTimestamp != nil {
		return input
	}
	if input.Slots, o.unplanned = pool.MaxUnavailable(o.pool, len(o.nodes)); o.unplanned != nil {
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

// index reads the budgets, and the pods on the nodes that matter for the plan.
func (r *pools) index(ctx context.Context, inputs []plan.Pool) (*plan.Index, error) {
	var budgets policyv1.PodDisruptionBudgetList
	if err := r.client.List(ctx, &budgets, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	index := plan.NewIndex(budgets.Items)
	if len(budgets.Items) == 0 {
		return index, nil
	}
	known := map[types.NamespacedName]bool{}
	hasDaemonSet := func(namespace, name string) bool {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		exists, ok := known[key]
		if !ok {
			exists = !apierrors.IsNotFound(r.client.Get(ctx, key, &appsv1.DaemonSet{}))
			known[key] = exists
		}
		return exists
	}
	add := func(nodes []*corev1.Node) error {
		for _, n := range nodes {
			var pods corev1.PodList
			if err := r.client.List(ctx, &pods, client.MatchingFields{nodeName: n.Name}, client.UnsafeDisableDeepCopy); err != nil {
				return fmt.Errorf("listing the pods of node %s: %w", n.Name, err)
			}
			for i := range pods.Items {
				if drain.ActionFor(&pods.Items[i], hasDaemonSet) == drain.Evict {
					index.AddPod(&pods.Items[i])
				}
			}
		}
		return nil
	}
	for _, p := range inputs {
		if err := add(p.Draining); err != nil {
			return nil, err
		}
		if p.Free == 0 {
			continue
		}
		if err := add(p.Candidates); err != nil {
			return nil, err
		}
	}
	return index, nil
}

// budgetChanged requests another plan if a slot is empty.
func (r *pools) budgetChanged(context.Context, client.Object) []reconcile.Request {
	if !r.hasIdle.Load() {
		return nil
	}
	return []reconcile.Request{{}}
}
