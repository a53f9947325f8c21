package update

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/policy"
)

// jobsOf returns the Jobs that the pools' policies name.
func jobsOf(rollouts []*rollout) (found []*api.NodeJob) {
	for _, o := range rollouts {
		for _, step := range policy.Steps() {
			if j := policy.JobOf(o.policy, step); j != nil {
				found = append(found, j)
			}
		}
	}
	return found
}

// runJobs applies the Jobs of a pool's policy to its candidates, and makes the Jobs of nodes that were updated.
func (r *pools) runJobs(ctx context.Context, o *rollout, input *plan.Pool) {
	o.jobSources = map[policy.Step]policy.JobSource{}
	for _, step := range policy.Steps() {
		if job := policy.JobOf(o.policy, step); job != nil {
			o.jobSources[step] = r.jobs.Source(job)
		}
	}
	o.jobs = input.RequireJobs(o.pool.Spec.Configuration.Name, o.nodes, o.policy, o.jobSources)
	o.isAsking = o.jobs.IsUnknown
	for _, n := range o.jobs.Due {
		r.makeJob(ctx, o, policy.After, n)
	}
}

// start targets nodes, or makes the Jobs that must succeed before.
func (r *pools) start(ctx context.Context, o *rollout, nodes []*corev1.Node) {
	for _, n := range nodes {
		if o.jobs.Unprepared[n.Name] {
			r.makeJob(ctx, o, policy.Before, n)
		} else {
			o.targeted = append(o.targeted, n)
		}
	}
}

// makeJob makes the Job of a node. A failure is reported and tried again.
func (r *pools) makeJob(ctx context.Context, o *rollout, step policy.Step, n *corev1.Node) {
	job := policy.JobOf(o.policy, step)
	next := policy.NewJob(o.jobSources[step].CronJob, job.Deadline.Duration, step, n.Name, o.pool.Spec.Configuration.Name)
	why := fmt.Sprintf("waits for Job %s/%s", next.Namespace, next.Name)
	if isNew, after, err := r.jobs.Create(ctx, job, next); isNew {
		logr.FromContextOrDiscard(ctx).Info("Job created", "namespace", next.Namespace, "job", next.Name, "pool", o.pool.Name, "node", n.Name)
	} else if err != nil {
		why = fmt.Sprintf("waits for a Job of CronJob %s/%s, which cannot be created: %v", job.Namespace, job.Name, err)
		if o.wait == 0 || after < o.wait {
			o.wait = after
		}
	}
	// The node keeps its place, so that the pool's message stays the same.
	if i := slices.IndexFunc(o.jobs.Waiting, func(w plan.JobWait) bool { return w.Node == n.Name }); i >= 0 {
		o.jobs.Waiting[i].Why = why
	} else {
		o.jobs.Waiting = append(o.jobs.Waiting, plan.JobWait{Node: n.Name, Why: why})
	}
}

// awaitedJob returns pool.Change.Job of a node.
func (o *rollout) awaitedJob(n *corev1.Node) string {
	if slices.Contains(o.targeted, n) {
		return o.jobs.Awaited(n, o.pool.Spec.Configuration.Name)
	}
	return o.jobs.Awaited(n, "")
}
