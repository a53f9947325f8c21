package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/policy"
)

// parseJobNodes reads nodes such as "a:v0 b:v1+v1": a runs v0, and b runs v1, after which a Job must succeed. One with ! is cordoned.
func parseJobNodes(t *testing.T, text string) (nodes []*corev1.Node) {
	t.Helper()
	for field := range strings.FieldsSeq(text) {
		name, rest, found := strings.Cut(field, ":")
		require.True(t, found, field)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "z"}, Annotations: map[string]string{api.NodeStateAnnotation: api.NodeDone}}}
		rest, n.Spec.Unschedulable = strings.CutSuffix(rest, "!")
		config, pending, _ := strings.Cut(rest, "+")
		for key, value := range map[string]string{api.CurrentConfigAnnotation: config, api.DesiredConfigAnnotation: config, api.NodeJobAnnotation: pending} {
			if value != "" {
				n.Annotations[key] = value
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// parseJobs reads Jobs such as "before:a:v1=Failed": the Job before the update of node a to v1 failed.
func parseJobs(t *testing.T, text string) map[policy.Step]policy.JobSource {
	t.Helper()
	sources := map[policy.Step]policy.JobSource{}
	for _, step := range policy.Steps() {
		source := policy.JobSource{IsKnown: true, Jobs: map[string]*batchv1.Job{}}
		for field := range strings.FieldsSeq(text) {
			key, state, _ := strings.Cut(field, "=")
			parts := strings.Split(key, ":")
			require.Len(t, parts, 3)
			if parts[0] != strings.ToLower(string(step)) {
				continue
			}
			job := policy.NewJob(newCronJob(step), time.Minute, step, parts[1], parts[2])
			if kind := map[string]batchv1.JobConditionType{"Failed": batchv1.JobFailed, "Succeeded": batchv1.JobComplete}[state]; kind != "" {
				job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: "Why"}}
			}
			if state == "Foreign" {
				job.Labels = nil
			}
			source.Jobs[job.Name] = job
		}
		sources[step] = source
	}
	return sources
}

func newCronJob(step policy.Step) *batchv1.CronJob {
	return &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: strings.ToLower(string(step))}}
}

// withJobs returns a policy with Jobs. Each of before and after is the effect of a failed one; empty for no Job.
func withJobs(before, after api.NodeJobFailure) *api.NodeRolloutPolicy {
	p := &api.NodeRolloutPolicy{}
	if before != "" {
		p.Spec.Jobs.Before = &api.NodeJob{Namespace: "jobs", Name: "before", OnFailure: before}
	}
	if after != "" {
		p.Spec.Jobs.After = &api.NodeJob{Namespace: "jobs", Name: "after", OnFailure: after}
	}
	return p
}

func nameOfJob(step policy.Step, node, config string) string {
	return "jobs/" + policy.JobName(strings.ToLower(string(step)), step, node, config)
}

func TestJobsDecideAboutNodes(t *testing.T) {
	const config = "v1"
	for _, tt := range []struct {
		name          string
		before, after api.NodeJobFailure
		nodes, jobs   string
		candidates    string // those that are not refused, in order; * marks those without a Job
		used          int
		waiting       string // nodes
		held          string // candidates
		due, ended    string // nodes
		failed        int
		why           string // node
	}{
		{name: "without Jobs nothing changes", nodes: "a:v0 b:v1+v1", candidates: "a"},
		{name: "a node needs a Job before it starts", before: "Hold", nodes: "a:v0 b:v1", candidates: "a*"},
		{name: "a node without a config needs none", before: "Hold", nodes: "a:", candidates: "a"},
		{name: "a Job that runs uses a slot", before: "Hold", nodes: "a:v0 b:v0", jobs: "before:a:v1", candidates: "b*", used: 1, waiting: "a"},
		{name: "so does a Job for the config before", before: "Hold", nodes: "a:v0", jobs: "before:a:v0.5", used: 1, waiting: "a"},
		{name: "a node that became unavailable uses one slot", before: "Hold", nodes: "a:v0!", jobs: "before:a:v1"},
		{name: "nodes whose Job has succeeded come first", before: "Hold", nodes: "a:v0 b:v0", jobs: "before:b:v1=Succeeded", candidates: "b a*"},
		{name: "a Job for another config does not count", before: "Hold", nodes: "a:v0", jobs: "before:a:v0.5=Failed", candidates: "a*"},
		{name: "a failed Job holds its node", before: "Hold", nodes: "a:v0 b:v0", jobs: "before:a:v1=Failed", candidates: "b*", held: "a", why: "a"},
		{name: "a failed Job counts", before: "Fail", nodes: "a:v0 b:v0", jobs: "before:a:v1=Failed", candidates: "b*", held: "a", failed: 1, why: "a"},
		{name: "it counts although its node is cordoned", before: "Fail", nodes: "a:v0!", jobs: "before:a:v1=Failed", failed: 1, why: "a"},
		{name: "a foreign Job holds its node, and does not count", before: "Fail", nodes: "a:v0 b:v0", jobs: "before:a:v1=Foreign", candidates: "b*", held: "a"},
		{name: "it does not count after the update", before: "Fail", nodes: "a:v1", jobs: "before:a:v1=Failed"},

		{name: "an updated node gets a Job", after: "Hold", nodes: "a:v1+v1 b:v1", waiting: "a", due: "a"},
		{name: "a cordoned one gets it later", after: "Hold", nodes: "a:v1+v1!"},
		{name: "it waits for its Job", after: "Hold", nodes: "a:v1+v1", jobs: "after:a:v1", waiting: "a"},
		{name: "a Job ends its wait", after: "Hold", nodes: "a:v1+v1", jobs: "after:a:v1=Succeeded", ended: "a"},
		{name: "a failed Job keeps its slot", after: "Hold", nodes: "a:v1+v1", jobs: "after:a:v1=Failed", waiting: "a", why: "a"},
		{name: "a foreign Job keeps its slot, and does not count", after: "Fail", nodes: "a:v1+v1", jobs: "after:a:v1=Foreign", waiting: "a"},
		{name: "a failed Job after the update counts", after: "Fail", nodes: "a:v1+v1", jobs: "after:a:v1=Failed", waiting: "a", failed: 1, why: "a"},
		{name: "a new config replaces the wait", after: "Hold", nodes: "a:v0+v0", candidates: "a"},
		{name: "but not while the Job runs", after: "Hold", nodes: "a:v0+v0", jobs: "after:a:v0", used: 1, waiting: "a"},
		{name: "and not if it holds the node", after: "Hold", nodes: "a:v0+v0", jobs: "after:a:v0=Failed", held: "a"},
		{name: "a node that counts as failed gets a new config", after: "Fail", nodes: "a:v0+v0", jobs: "after:a:v0=Failed", candidates: "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nodes := parseJobNodes(t, tt.nodes)
			p := plan.Pool{UsedByZone: map[string]int{}, Refused: map[string]string{}}
			for _, n := range nodes {
				if n.Annotations[api.DesiredConfigAnnotation] != config && !n.Spec.Unschedulable {
					p.Candidates = append(p.Candidates, n)
				}
			}
			jobs := p.RequireJobs(config, nodes, withJobs(tt.before, tt.after), parseJobs(t, tt.jobs))
			var candidates, held, waiting, ended []string
			for _, n := range p.Candidates {
				switch {
				case p.Refused[n.Name] != "":
					assert.Equal(t, p.Refused[n.Name], p.Unstageable[n.Name])
					held = append(held, n.Name)
				case jobs.Unprepared[n.Name]:
					candidates = append(candidates, n.Name+"*")
				default:
					candidates = append(candidates, n.Name)
				}
			}
			for _, w := range jobs.Waiting {
				waiting = append(waiting, w.Node)
			}
			for name := range jobs.Ended {
				ended = append(ended, name)
			}
			assert.Equal(t, tt.candidates, strings.Join(candidates, " "))
			assert.Equal(t, tt.held, strings.Join(held, " "))
			assert.Equal(t, tt.waiting, strings.Join(waiting, " "))
			assert.Equal(t, tt.due, namesOf(jobs.Due))
			assert.Equal(t, tt.ended, strings.Join(ended, " "))
			assert.Equal(t, []int{tt.used, tt.used, tt.used}, []int{p.Used, p.UsedByZone["z"], jobs.Running})
			assert.Equal(t, tt.failed, jobs.State.Failed)
			why := ""
			if tt.why != "" {
				why = "node " + tt.why + " "
			}
			assert.True(t, strings.HasPrefix(jobs.State.Why, why) && (why == "") == (jobs.State.Why == ""), jobs.State.Why)
		})
	}
}

func TestForeignJobIsNamed(t *testing.T) {
	nodes := parseJobNodes(t, "a:v0 b:v1+v1")
	p := plan.Pool{Candidates: nodes[:1], UsedByZone: map[string]int{}, Refused: map[string]string{}}
	jobs := p.RequireJobs("v1", nodes, withJobs(api.NodeJobHold, api.NodeJobHold), parseJobs(t, "before:a:v1=Foreign after:b:v1=Foreign"))
	const why = "waits, because another client has made Job %s, without label cvo.cluster-version.github.io/node-job: delete it, so that the node stage can make its own"
	assert.Equal(t, fmt.Sprintf(why, nameOfJob(policy.Before, "a", "v1")), p.Refused["a"])
	assert.Equal(t, []plan.JobWait{{Node: "b", Why: fmt.Sprintf(why, nameOfJob(policy.After, "b", "v1"))}}, jobs.Waiting)
}

func TestWaitsForJobsAreNamed(t *testing.T) {
	nodes := parseJobNodes(t, "a:v0 b:v0 c:v1+v1 d:v1+v1")
	p := plan.Pool{Candidates: nodes[:2], UsedByZone: map[string]int{}, Refused: map[string]string{}}
	jobs := p.RequireJobs("v1", nodes, withJobs(api.NodeJobHold, api.NodeJobFail), parseJobs(t, "before:a:v1 before:b:v1=Failed after:c:v1=Failed"))
	assert.Equal(t, []plan.JobWait{
		{Node: "a", Why: "waits for Job " + nameOfJob(policy.Before, "a", "v1")},
		{Node: "c", Why: "counts as failed, because Job " + nameOfJob(policy.After, "c", "v1") + " failed: Why: delete the Job to repeat it"},
		{Node: "d", Why: "waits for Job " + nameOfJob(policy.After, "d", "v1")},
	}, jobs.Waiting)
	assert.Equal(t, "is held, because Job "+nameOfJob(policy.Before, "b", "v1")+" failed: Why: delete the Job to repeat it", p.Refused["b"])
	assert.Equal(t, "node b "+p.Refused["b"], jobs.State.Why)
}

// TestWindowMayBeTooShortForAJob has a node that needs a Job, one whose Job has succeeded, and one that gets its first config.
func TestWindowMayBeTooShortForAJob(t *testing.T) {
	nodes := parseJobNodes(t, "a:v0 b:v0 c:")
	for refusal, want := range map[string]map[string]string{
		"": {"a": "no window"}, "closed": {"a": "no window", "b": "closed", "c": "closed"},
	} {
		p := plan.Pool{Candidates: nodes, UsedByZone: map[string]int{}, Refused: map[string]string{}}
		p.RequireJobs("v1", nodes, withJobs(api.NodeJobHold, ""), parseJobs(t, "before:b:v1=Succeeded"))
		p.Restrict(policy.Decision{Refusal: refusal, Unprepared: "no window"})
		assert.Equal(t, want, p.Refused)
	}
}

// TestNodesWaitWhileNoJobCanBeMade has one node that is updated and waits for a Job, and one that could start.
func TestNodesWaitWhileNoJobCanBeMade(t *testing.T) {
	const refusal = "waits for CronJob jobs/after"
	nodes := parseJobNodes(t, "a:v1+v1 b:v0")
	rules := withJobs("", api.NodeJobFail)
	rules.Status.FailedJobs = 1
	rules.Status.Conditions = []metav1.Condition{{Type: api.PolicyJobsFailed, Status: metav1.ConditionTrue, Message: "node a counts as failed"}}
	for _, tt := range []struct {
		name      string
		source    policy.JobSource
		state     policy.Jobs
		isUnknown bool
	}{
		{"the CronJob does not exist", policy.JobSource{IsKnown: true, Refusal: refusal}, policy.Jobs{Refusal: refusal}, false},
		{"the CronJob cannot be read", policy.JobSource{Refusal: refusal}, policy.Jobs{Failed: 1, Why: "node a counts as failed", Refusal: refusal}, false},
		{
			"the Jobs are not known yet",
			policy.JobSource{},
			policy.Jobs{Failed: 1, Why: "node a counts as failed", Refusal: "waits until the controller knows the Jobs of CronJob jobs/after"},
			true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := plan.Pool{Candidates: nodes[1:], UsedByZone: map[string]int{}, Refused: map[string]string{}}
			jobs := p.RequireJobs("v1", nodes, rules, map[policy.Step]policy.JobSource{policy.After: tt.source})
			assert.Equal(t, tt.state, jobs.State)
			assert.Equal(t, tt.isUnknown, jobs.IsUnknown)
			assert.Equal(t, []plan.JobWait{{Node: "a", Why: tt.state.Refusal}}, jobs.Waiting)
			assert.Empty(t, jobs.Due)
			assert.Equal(t, "v1", jobs.Awaited(nodes[0], ""))
		})
	}
}

func TestAwaitedJobs(t *testing.T) {
	for _, tt := range []struct {
		name         string
		after        api.NodeJobFailure
		node, config string
		want         string
	}{
		{"a node that gets a config waits for a Job later", "Hold", "a:v0", "v1", "v1"},
		{"its first config needs none", "Hold", "a:", "v1", ""},
		{"the config that it runs needs none", "Hold", "a:v1", "v1", ""},
		{"a node that returns needs the one of its update", "Hold", "a:v0+v1", "v0", "v0"},
		{"a node without a new config keeps its Job", "Hold", "a:v1+v1", "", "v1"},
		{"a policy without Jobs ends the wait", "", "a:v1+v1", "", ""},
		{"a policy without Jobs requires none", "", "a:v0", "v1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nodes := parseJobNodes(t, tt.node)
			p := plan.Pool{UsedByZone: map[string]int{}, Refused: map[string]string{}}
			jobs := p.RequireJobs("v1", nodes, withJobs("", tt.after), parseJobs(t, ""))
			assert.Equal(t, tt.want, jobs.Awaited(nodes[0], tt.config))
		})
	}
	nodes := parseJobNodes(t, "a:v1+v1")
	p := plan.Pool{UsedByZone: map[string]int{}, Refused: map[string]string{}}
	jobs := p.RequireJobs("v1", nodes, withJobs("", api.NodeJobHold), parseJobs(t, "after:a:v1=Succeeded"))
	assert.Empty(t, jobs.Awaited(nodes[0], ""))
	assert.Equal(t, "v2", jobs.Awaited(nodes[0], "v2"))
	jobs = p.RequireJobs("v1", nodes, nil, nil)
	assert.Empty(t, jobs.Awaited(nodes[0], ""), "the pool has no policy any more")
}
