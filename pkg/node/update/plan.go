package update

import (
	"context"
	"fmt"
	"slices"
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
	"github.com/cluster-version/cvo/pkg/node/policy"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

const (
	// planShare limits the time spent on plans: after a plan, the next one waits for this multiple of its duration. Without it, each change of
	// a budget would cause a plan while a slot is empty.
	planShare = 9
	// idleRetry is the delay before another plan while a slot is empty, unless a budget changes earlier.
	idleRetry = 30 * time.Second
	// syncRetry is the delay before another attempt after the start of a leader, while the planner does not know all pods.
	syncRetry = 50 * time.Millisecond
)

// rollout is a pool during a reconcile.
type rollout struct {
	pool  *mcfgv1.MachineConfigPool
	nodes []*corev1.Node
	// policy is the pool's NodeRolloutPolicy, nil if it has none, and decision what it allows.
	policy   *api.NodeRolloutPolicy
	decision policy.Decision
	// health is the health of the nodes that run the pool's config.
	health policy.Health
	// isRendered reports whether the pool's config is what its MachineConfigs result in.
	isRendered bool
	// renderError says why the pool's MachineConfigs cannot be rendered; empty if they can.
	renderError string
	// targeted are the nodes that get the pool's config now, in order.
	targeted []*corev1.Node
	// released are the changes of the nodes that release their slot.
	released []pool.Change
	// staging are the MachineConfigNodes of the nodes that stage the pool's config next.
	staging []*mcfgv1.MachineConfigNode
	// permissions are the MachineConfigNodes whose api.RestoreAnnotation is not what the policy says.
	permissions []*mcfgv1.MachineConfigNode
	// specError explains why no node can be targeted because of a field of the pool; empty if none prevents it.
	specError string
	// waiting explains why nodes wait although slots are free or they hold one; empty if none does.
	waiting string
	// jobs is the effect of the policy's Jobs on the nodes.
	jobs plan.Jobs
	// jobSources are the CronJobs of the policy by step.
	jobSources map[policy.Step]policy.JobSource
	// isAsking reports whether the answer about the pool's health, or the Jobs, are not known yet. They are events.
	isAsking bool
	// wait is the time after which the pool must be reconciled again; 0 if only a change of an object requires that.
	wait time.Duration
	err  error
}

// plan finds the nodes that start now. refusals has for each ClusterRole why no node that reads its config with it may get one. wait is the time
// after which plan must run again; 0 if only a change of an object requires that.
func (r *pools) plan(ctx context.Context, rollouts []*rollout, members pool.Membership, nodes []*corev1.Node, refusals map[string]string) (wait time.Duration, err error) {
	machines, err := r.machines(ctx)
	if err != nil {
		return 0, err
	}
	inputs := make([]plan.Pool, len(rollouts))
	for i, o := range rollouts {
		inputs[i] = o.prepare(members, nodes, machines, r.options.Release, refusals[readerOf(o.pool)])
	}
	r.jobs.Follow(ctx, jobsOf(rollouts))
	for i, o := range rollouts {
		r.runJobs(ctx, o, &inputs[i])
	}
	r.restrict(rollouts, inputs, machines)
	for i, o := range rollouts {
		inputs[i].Blocked = o.blocked(r.clock.Now())
	}
	r.checkMetrics(ctx, rollouts, inputs)
	if !slices.ContainsFunc(inputs, func(p plan.Pool) bool { return p.CanStart() || p.CanRelease() }) {
		r.hasIdle.Store(false)
		for i, p := range plan.NewIndex(nil).Plan(inputs, r.clock.Now()) { // it needs neither pods nor budgets
			rollouts[i].explain(inputs[i], p)
		}
		return 0, nil
	}
	for _, o := range rollouts {
		o.waiting = pool.Message(o.pool, pool.NodesWaiting) // it stays until the next plan
	}
	if wait := r.nextPlan.Sub(r.clock.Now()); wait > 0 {
		return wait, nil
	}
	if !r.planner.hasSynced() {
		return syncRetry, nil
	}
	r.hasIdle.Store(true) // so that a budget that changes from now on causes another plan
	var budgets policyv1.PodDisruptionBudgetList
	if err := r.client.List(ctx, &budgets, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	leader := r.leader(ctx)
	for i := range inputs {
		inputs[i].Leader = leader
	}
	var spent time.Duration // by both plans, if the guard refuses the first one
	r.planner.follow(rollouts)
	planner := func(pools []plan.Pool) []plan.Plan {
		begun := r.clock.Now()
		plans := r.planner.plan(budgets.Items, pools, begun)
		spent += r.clock.Since(begun)
		r.nextPlan = r.clock.Now().Add(planShare * spent)
		return plans
	}
	plans := plan.Guarded(inputs, planner, func(n *corev1.Node) (why string) {
		why, wait = r.guard.Refusal(ctx, n, nodes, budgets.Items)
		return why
	})
	hasIdle := false
	for i, released := range plan.Releases(inputs, plans, planner) {
		for _, n := range released {
			rollouts[i].released = append(rollouts[i].released, pool.ReleaseSlot(n, r.planner.refusal(n), r.clock.Now()))
		}
		hasIdle = hasIdle || inputs[i].CanRelease() && len(released) < len(inputs[i].Blocked)
	}
	for i, p := range plans {
		r.start(ctx, rollouts[i], p.Start)
		hasIdle = hasIdle || p.Idle > 0
		rollouts[i].explain(inputs[i], p)
	}
	r.hasIdle.Store(hasIdle)
	if wait == 0 && hasIdle {
		wait = idleRetry // beside the changes of budgets
	}
	return wait, nil
}

// blocked returns the nodes that release their slot if another node starts then. It requests a reconcile for the time at which there is another one. In the
// control plane, the guard may refuse the other node, so none does.
func (o *rollout) blocked(now time.Time) []*corev1.Node {
	if o.policy == nil || o.policy.Spec.BlockedDrain.ReleaseSlotAfter.Duration == 0 || pool.IsControlPlanePool(o.pool.Name) {
		return nil
	}
	blocked, after := pool.Blocked(o.pool, o.nodes, o.policy.Spec.BlockedDrain.ReleaseSlotAfter.Duration, now)
	if after > 0 && (o.wait == 0 || after < o.wait) {
		o.wait = after
	}
	return blocked
}

// leader returns the node of this process, which leads; empty outside a pod.
func (r *pools) leader(ctx context.Context) string {
	pod := &corev1.Pod{}
	if r.options.Pod.Name == "" || r.client.Get(ctx, r.options.Pod, pod) != nil {
		return ""
	}
	return pod.Spec.NodeName
}

// explain sets waiting, unless the reason becomes known in a moment: two writes would follow each other.
func (o *rollout) explain(input plan.Pool, p plan.Plan) {
	o.waiting = explain(input, p, o.jobs.Waiting)
	if o.isAsking {
		o.waiting = pool.Message(o.pool, pool.NodesWaiting)
	}
}

// explainRefusal adds a sentence about nodes that the API server refuses to write. Between two plans, waiting may contain it already, because it is
// then the pool's last message.
func (o *rollout) explainRefusal(sentence string) {
	switch {
	case o.waiting == "":
		o.waiting = sentence
	case !strings.Contains(o.waiting, sentence):
		o.waiting += "; " + sentence
	}
}

// explain returns a sentence about the first node that cannot stage the config or is held by a failed Job, one about the first that waits for a Job, and one about
// the first that waits although slots are free or it holds one, each with the number of the others; empty if there is none.
func explain(input plan.Pool, p plan.Plan, jobs []plan.JobWait) string {
	var sentences []string
	add := func(name, why string, n int) {
		sentences = append(sentences, printable.AndOthers(fmt.Sprintf("Node %s %s", name, why), n, "node"))
	}
	isUnstageable := func(n *corev1.Node) bool { return input.Unstageable[n.Name] != "" }
	if i := slices.IndexFunc(input.Candidates, isUnstageable); i >= 0 {
		name := input.Candidates[i].Name
		add(name, input.Unstageable[name], len(input.Unstageable))
	}
	if len(jobs) > 0 {
		add(jobs[0].Node, jobs[0].Why, len(jobs))
	}
	waiting := slices.DeleteFunc(slices.Clone(p.Waiting), func(w plan.Wait) bool { return isUnstageable(w.Node) })
	switch {
	case len(waiting) > 0 && (p.Idle > 0 || waiting[0].OtherPool != "" || waiting[0].Cause == plan.Refused || waiting[0].Cause == plan.Zone):
		add(waiting[0].Node.Name, waiting[0].String(), len(waiting))
	case len(input.Held) > 0:
		name := input.Held[0].Name
		add(name, input.Refused[name], len(input.Held))
	}
	return strings.Join(sentences, "; ")
}

// prepare returns the pool for the planner, and targets the nodes that keep their slots. The other arguments are those of plan.NewPool and
// plan.Pool.RequireStaged.
func (o *rollout) prepare(
	members pool.Membership, all []*corev1.Node, machines map[string]*mcfgv1.MachineConfigNode, release, refusal string,
) plan.Pool {
	input, err := plan.NewPool(o.pool, members, all, release, refusal)
	if err != nil {
		o.specError = err.Error()
	}
	for _, n := range o.nodes {
		if m := machines[n.Name]; m != nil && (m.Annotations[api.RestoreAnnotation] == "true") != o.restores() {
			o.permissions = append(o.permissions, m)
		}
	}
	if o.err != nil {
		input.Candidates = nil
		return input
	}
	o.staging = input.RequireStaged(o.pool.Spec.Configuration.Name, len(o.nodes), machines)
	o.targeted = input.Retarget
	return input
}

// restores reports whether the nodes restore the content of their config by themselves.
func (o *rollout) restores() bool { return o.policy != nil && o.policy.Spec.RestoreContent }

// waitEnds requests another plan if a slot is empty, after the change of a budget or of a pod. Of pods only etcd's matter: the budgets' status
// has the others.
func (r *pools) waitEnds(_ context.Context, o client.Object) []reconcile.Request {
	if _, isPod := o.(*corev1.Pod); !r.hasIdle.Load() || isPod && !plan.IsEtcd(o) {
		return nil
	}
	return []reconcile.Request{{}}
}
