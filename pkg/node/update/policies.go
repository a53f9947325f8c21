package update

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/pointers"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/policy"
)

// restrict refuses candidates by the NodeRolloutPolicies. It requests a reconcile for the time at which a window starts or ends.
func (r *pools) restrict(rollouts []*rollout, inputs []plan.Pool, machines map[string]*mcfgv1.MachineConfigNode) {
	for _, o := range rollouts {
		if o.policy != nil {
			r.durations.restore(o.pool.Name, o.policy.Status.RecentDurations)
		}
	}
	r.durations.observe(rollouts, r.clock.Now())
	states, next := make([]policy.Pool, len(rollouts)), checks{}
	for i, o := range rollouts {
		states[i] = inputs[i].State(o.pool, o.nodes, o.isRendered && o.specError == "", machines, o.policy)
		states[i].Paused, states[i].Error = o.pool.Spec.Paused, cmp.Or(o.specError, o.renderError)
		o.health = r.checks.of(o.pool, o.nodes, o.policy, next)
		states[i].Health = o.health
		states[i].Jobs = o.jobs.State
		states[i].Started += o.jobs.Running
	}
	r.checks = next
	r.checksHealth.Store(len(next) > 0)
	now := r.clock.Now()
	for i, d := range policy.Decide(states, now) {
		o := rollouts[i]
		o.decision = d
		inputs[i].Restrict(d)
		if wait := d.Again.Sub(now); wait > 0 && len(inputs[i].Candidates) > 0 && (o.wait == 0 || wait < o.wait) {
			o.wait = wait
		}
	}
}

// policies returns all NodeRolloutPolicies by name, in the newest version that this process knows.
func (r *pools) policies(ctx context.Context) (map[string]*api.NodeRolloutPolicy, error) {
	var list api.NodeRolloutPolicyList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeRolloutPolicies: %w", err)
	}
	byName := make(map[string]*api.NodeRolloutPolicy, len(list.Items))
	for _, p := range r.writtenPolicies.All(pointers.To(list.Items)) {
		byName[p.Name] = p
	}
	return byName, nil
}

// reportPolicies writes the status of all policies. It removes those of a pool from policies.
func (r *pools) reportPolicies(ctx context.Context, rollouts []*rollout, policies map[string]*api.NodeRolloutPolicy) error {
	var failures []error
	for _, o := range rollouts {
		if o.policy != nil {
			delete(policies, o.policy.Name)
			failures = append(failures, r.reportPolicy(ctx, o))
		}
	}
	for _, p := range policies {
		accepted := metav1.Condition{
			Type: api.PolicyAccepted, Status: metav1.ConditionFalse, Reason: api.ReasonPoolNotFound,
			Message: fmt.Sprintf("MachineConfigPool %s does not exist: give the policy the name of a pool", p.Name),
		}
		halted := metav1.Condition{Type: api.PolicyHalted, Status: metav1.ConditionFalse, Reason: api.ReasonPoolNotFound}
		next := p.DeepCopy()
		next.Status.UnhealthyNodes, next.Status.FailedJobs = 0, 0
		meta.RemoveStatusCondition(&next.Status.Conditions, api.PolicyNodesHealthy)
		meta.RemoveStatusCondition(&next.Status.Conditions, api.PolicyJobsFailed)
		failures = append(failures, r.writePolicy(ctx, p, next, p.Status.RecentDurations, accepted, halted))
	}
	return errors.Join(failures...)
}

// reportPolicy writes what the policy of a pool allows, and the durations of the updates of its pool.
func (r *pools) reportPolicy(ctx context.Context, o *rollout) error {
	p, d := o.policy, o.decision
	accepted := metav1.Condition{Type: api.PolicyAccepted, Status: metav1.ConditionTrue, Reason: api.ReasonPolicyAccepted, Message: "The policy is applied"}
	if d.Invalid != "" {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, api.ReasonPolicyInvalid, d.Invalid
	}
	halted := metav1.Condition{Type: api.PolicyHalted, Status: metav1.ConditionFalse, Reason: api.ReasonWithinFailureBudget}
	if d.Halted != "" {
		halted.Status, halted.Reason, halted.Message = metav1.ConditionTrue, api.ReasonFailureBudgetExhausted, d.Halted
	}
	next := p.DeepCopy()
	next.Status.Canary = d.Canary
	if measured := r.durations.of(p.Name); measured > 0 {
		next.Status.NodeDuration = &metav1.Duration{Duration: measured}
	}
	conditions := append([]metav1.Condition{accepted, halted}, o.health.Report(next)...)
	if !o.jobs.IsUnknown {
		conditions = append(conditions, o.jobs.State.Report(next)...)
	}
	return r.writePolicy(ctx, p, next, r.durations.seconds(p.Name), conditions...)
}

// writePolicy writes the status of a copy of a policy. Another list of durations alone is no reason for a write, unless too few are stored: otherwise each update
// of a node would cause one.
func (r *pools) writePolicy(ctx context.Context, p, next *api.NodeRolloutPolicy, seconds []int32, conditions ...metav1.Condition) error {
	next.Status.ObservedGeneration = p.Generation
	for _, c := range conditions {
		c.ObservedGeneration, c.LastTransitionTime = p.Generation, metav1.NewTime(r.clock.Now())
		meta.SetStatusCondition(&next.Status.Conditions, c)
	}
	stored := p.Status.RecentDurations
	if equality.Semantic.DeepEqual(p.Status, next.Status) && (len(stored) >= minSamples || slices.Equal(stored, seconds)) {
		return nil
	}
	next.Status.RecentDurations = seconds
	err := r.client.Status().Patch(ctx, next, client.MergeFrom(p))
	if apierrors.IsNotFound(err) {
		return nil // its deletion is an event
	}
	if err != nil {
		return fmt.Errorf("writing the status of NodeRolloutPolicy %s: %w", p.Name, err)
	}
	r.writtenPolicies.Add(next)
	for _, c := range next.Status.Conditions {
		if before := meta.FindStatusCondition(p.Status.Conditions, c.Type); before == nil || before.Status != c.Status {
			logr.FromContextOrDiscard(ctx).Info("condition changed", "policy", p.Name, "condition", c.Type, "status", c.Status, "message", c.Message)
		}
	}
	return nil
}
