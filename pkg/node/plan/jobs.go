package plan

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/policy"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// Jobs is the effect of the Jobs of a NodeRolloutPolicy on the nodes of a pool.
type Jobs struct {
	// State is the state for the policy's decision.
	State policy.Jobs
	// Running is the number of nodes that would be candidates if no Job ran for them. Like nodes that have started, they use a slot and count as canaries.
	Running int
	// Unprepared are the candidates whose Job before their update does not exist. It must be made instead of their start.
	Unprepared map[string]bool
	// Due are the nodes whose Job after their update must be made now.
	Due []*corev1.Node
	// Ended are the nodes that no longer wait for a Job after their update.
	Ended map[string]bool
	// Waiting are the nodes that wait for a Job, in order. IsUnknown reports whether the Jobs are not known yet. Then State is the reported one.
	Waiting   []JobWait
	IsUnknown bool

	rules *api.NodeRolloutPolicy
}

// JobWait says why a node waits, as a sentence without subject and period.
type JobWait struct{ Node, Why string }

// Awaited returns the config after whose update a Job of a node must succeed, if the node gets a config now or, with an empty one, if it does not; empty for
// none. A node that returns to the config that it runs keeps the Job of the update that failed: it may undo what the Job before the update has done.
func (j *Jobs) Awaited(n *corev1.Node, config string) string {
	pending, current := n.Annotations[api.NodeJobAnnotation], n.Annotations[api.CurrentConfigAnnotation]
	switch {
	case policy.JobOf(j.rules, policy.After) == nil || config == "" && j.Ended[n.Name]:
		return ""
	case config == "":
		return pending
	case pending == "" && (current == "" || current == config):
		return ""
	}
	return config
}

// RequireJobs refuses the candidates that a failed Job of the pool's policy holds. A node whose Job runs is no candidate and uses a slot. Candidates whose Job
// has succeeded come first. rules is the policy, nil if the pool has none. nodes are the pool's, and sources are its CronJobs by step.
func (p *Pool) RequireJobs(config string, nodes []*corev1.Node, rules *api.NodeRolloutPolicy, sources map[policy.Step]policy.JobSource) Jobs {
	r := jobRound{
		Pool: p, config: config, sources: sources, running: map[string]string{}, prepared: map[string]bool{},
		jobs: Jobs{rules: rules, Unprepared: map[string]bool{}, Ended: map[string]bool{}},
	}
	for _, step := range policy.Steps() {
		job := policy.JobOf(rules, step)
		if job == nil {
			continue
		}
		if !sources[step].IsKnown {
			return unknownJobs(nodes, rules, job, sources[step].Refusal)
		}
		r.jobs.State.Refusal = cmp.Or(r.jobs.State.Refusal, sources[step].Refusal)
		for _, made := range sources[step].Jobs {
			if state, _ := policy.StateOf(made); state == policy.JobRunning {
				r.running[made.Annotations[api.NodeJobNodeAnnotation]] = made.Namespace + "/" + made.Name
			}
		}
	}
	p.unprepared = r.jobs.Unprepared
	hasBefore, hasAfter := policy.JobOf(rules, policy.Before) != nil, policy.JobOf(rules, policy.After) != nil
	if !hasBefore && !hasAfter {
		return r.jobs
	}
	candidates := make(map[string]bool, len(p.Candidates))
	for _, n := range p.Candidates {
		candidates[n.Name] = true
	}
	for _, n := range nodes {
		isCandidate := candidates[n.Name]
		hasTarget := n.Annotations[api.DesiredConfigAnnotation] == config
		if isCandidate && r.running[n.Name] != "" {
			r.wait(n, "waits for Job "+r.running[n.Name])
			p.Used++
			p.UsedByZone[n.Labels[corev1.LabelTopologyZone]]++
			r.jobs.Running++
			continue
		}
		if hasAfter && pool.AwaitsJob(n) {
			r.after(n, hasTarget, isCandidate)
		}
		if hasBefore && !hasTarget && n.Annotations[api.CurrentConfigAnnotation] != "" {
			r.before(n, isCandidate)
		}
	}
	p.Candidates = slices.DeleteFunc(slices.Clone(p.Candidates), func(n *corev1.Node) bool { return r.running[n.Name] != "" })
	slices.SortStableFunc(p.Candidates, func(a, b *corev1.Node) int {
		return cmp.Compare(r.rank(a), r.rank(b))
	})
	return r.jobs
}

// unknownJobs returns the state while the Jobs of a CronJob are not known. refusal says why they cannot be read; empty if they become known in a moment.
func unknownJobs(nodes []*corev1.Node, rules *api.NodeRolloutPolicy, job *api.NodeJob, refusal string) Jobs {
	j := Jobs{rules: rules, IsUnknown: refusal == "", State: policy.ReportedJobs(rules, false)}
	j.State.Refusal = cmp.Or(refusal, fmt.Sprintf("waits until the controller knows the Jobs of CronJob %s/%s", job.Namespace, job.Name))
	for _, n := range nodes {
		if pool.AwaitsJob(n) {
			j.Waiting = append(j.Waiting, JobWait{n.Name, j.State.Refusal})
		}
	}
	return j
}

// jobRound is a call of RequireJobs.
type jobRound struct {
	*Pool
	config  string
	sources map[policy.Step]policy.JobSource
	// running are the names of the Jobs that run, by node. prepared are the nodes whose Job before their update has succeeded.
	running  map[string]string
	prepared map[string]bool
	jobs     Jobs
}

func (r *jobRound) rank(n *corev1.Node) int {
	if r.prepared[n.Name] {
		return 0
	}
	return 1
}

func (r *jobRound) wait(n *corev1.Node, why string) {
	r.jobs.Waiting = append(r.jobs.Waiting, JobWait{n.Name, why})
}

// state returns the state of the Job for a node and a config, and its name with the namespace. failure is a sentence without subject and period about a failed
// or a foreign one.
func (r *jobRound) state(step policy.Step, n *corev1.Node, config string) (state policy.JobState, name, failure string) {
	job := policy.JobOf(r.jobs.rules, step)
	name = policy.JobName(job.Name, step, n.Name, config)
	state, why := policy.StateOf(r.sources[step].Jobs[name])
	name = job.Namespace + "/" + name
	if state == policy.JobFailed {
		verb := "is held, because"
		if job.OnFailure == api.NodeJobFail {
			verb = "counts as failed, because"
		}
		failure = fmt.Sprintf("%s Job %s failed: %s: delete the Job to repeat it", verb, name, why)
	}
	if state == policy.JobForeign {
		failure = fmt.Sprintf("waits, because another client has made Job %s, without label %s: delete it, so that the node stage can make its own", name, api.NodeJobLabel)
	}
	return state, name, failure
}

// fail records a failed Job of a node.
func (r *jobRound) fail(step policy.Step, n *corev1.Node, failure string) {
	if policy.JobOf(r.jobs.rules, step).OnFailure == api.NodeJobFail {
		r.jobs.State.Failed++
	}
	r.jobs.State.Why = cmp.Or(r.jobs.State.Why, fmt.Sprintf("node %s %s", n.Name, failure))
}

// before decides about a node that needs a Job before its update.
func (r *jobRound) before(n *corev1.Node, isCandidate bool) {
	switch state, _, failure := r.state(policy.Before, n, r.config); state {
	case policy.JobFailed:
		r.fail(policy.Before, n, failure)
		if isCandidate {
			r.hold(n, failure)
		}
	case policy.JobForeign:
		if isCandidate {
			r.hold(n, failure)
		}
	case policy.JobSucceeded:
		r.prepared[n.Name] = true
	case policy.JobAbsent:
		r.jobs.Unprepared[n.Name] = isCandidate
	case policy.JobRunning: // of a node that is no candidate
	}
}

// hold refuses a candidate until an administrator acts.
func (r *jobRound) hold(n *corev1.Node, why string) {
	if r.Unstageable == nil {
		r.Unstageable = map[string]string{}
	}
	r.Refused[n.Name], r.Unstageable[n.Name] = why, why
}

// after decides about a node that runs a config after which a Job must succeed. A new config of the pool replaces that, unless the node is held.
func (r *jobRound) after(n *corev1.Node, hasTarget, isCandidate bool) {
	state, name, failure := r.state(policy.After, n, n.Annotations[api.NodeJobAnnotation])
	source := r.sources[policy.After]
	switch {
	case state == policy.JobSucceeded:
		r.jobs.Ended[n.Name] = true
	case state == policy.JobFailed && hasTarget:
		r.fail(policy.After, n, failure)
		r.wait(n, failure)
	case state == policy.JobForeign && hasTarget:
		r.wait(n, failure)
	case !hasTarget:
		if isCandidate && state == policy.JobFailed && r.jobs.rules.Spec.Jobs.After.OnFailure != api.NodeJobFail {
			r.hold(n, failure)
		}
	case state == policy.JobRunning:
		r.wait(n, "waits for Job "+name)
	case source.Refusal != "":
		r.wait(n, source.Refusal)
	case pool.IsReady(n):
		r.jobs.Due = append(r.jobs.Due, n)
		r.wait(n, "waits for Job "+name)
	}
}
