package policy

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cluster-version/cvo/pkg/api"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return parsed
}

func decideFor(spec api.NodeRolloutPolicySpec, now time.Time) Decision {
	p := &api.NodeRolloutPolicy{Spec: spec}
	p.Name = "worker"
	return Decide([]Pool{{Name: "worker", Policy: p, Nodes: 100}}, now)[0]
}

func minutes(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Minute}
}

func TestWindows(t *testing.T) {
	t.Parallel()
	night := []api.UpdateWindow{{Days: []string{"Fri"}, Start: "22:00", End: "04:00", TimeZone: "Europe/Prague"}}
	// In Prague, the clock goes from 02:00 to 03:00 on Sunday 2027-03-28, and from 03:00 to 02:00 on Sunday 2026-10-25.
	saturday := []api.UpdateWindow{{Days: []string{"Sat"}, Start: "22:00", End: "04:00", TimeZone: "Europe/Prague"}}
	for _, tt := range []struct {
		name     string
		windows  []api.UpdateWindow
		expected *metav1.Duration
		now      string
		// opens is the time of the next start; empty if nodes may start now. again is the time of the next decision.
		opens, again string
	}{
		{"before the window", night, nil, "2026-11-27T20:59:59Z", "2026-11-27T22:00:00+01:00", "2026-11-27T22:00:00+01:00"},
		{"at its start", night, nil, "2026-11-27T21:00:00Z", "", "2026-11-28T03:30:01+01:00"},
		{"after midnight", night, nil, "2026-11-28T01:00:00Z", "", "2026-11-28T03:30:01+01:00"},
		{"a node would not be done", night, nil, "2026-11-28T02:31:00Z", "2026-12-04T22:00:00+01:00", "2026-12-04T22:00:00+01:00"},
		{"a node that needs less is done", night, minutes(10), "2026-11-28T02:31:00Z", "", "2026-11-28T03:50:01+01:00"},
		{"the clock decides in a short night", saturday, minutes(300), "2027-03-27T21:00:00Z", "", "2027-03-27T22:00:01+01:00"},
		{"a short night is too short", saturday, minutes(301), "2027-03-27T21:00:00Z", "2027-04-03T22:00:00+02:00", "2027-04-03T22:00:00+02:00"},
		{"the clock decides in a long night", saturday, minutes(420), "2026-10-24T20:00:00Z", "", "2026-10-24T22:00:01+02:00"},
		{"windows that meet are one", []api.UpdateWindow{{Days: []string{"Sat", "Sun"}, Start: "00:00", End: "00:00"}}, minutes(120), "2026-11-28T23:00:00Z", "", "2026-11-29T22:00:01Z"},
		{"the clock skips the start", []api.UpdateWindow{{Start: "02:30", End: "03:30", TimeZone: "America/New_York"}}, minutes(30), "2027-03-14T06:00:00Z", "2027-03-14T03:00:00-04:00", "2027-03-14T03:00:00-04:00"},
		{"the clock skips midnight", []api.UpdateWindow{{Days: []string{"Sun"}, Start: "00:00", End: "04:00", TimeZone: "America/Santiago"}}, nil, "2026-09-06T03:00:00Z", "2026-09-06T01:00:00-03:00", "2026-09-06T01:00:00-03:00"},
		{"the clock skips the end", []api.UpdateWindow{{Days: []string{"Sat"}, Start: "22:00", End: "00:00", TimeZone: "America/Santiago"}}, minutes(120), "2026-09-06T02:00:00Z", "", "2026-09-05T22:00:01-04:00"},
		{"the clock skips the whole window", []api.UpdateWindow{{Start: "02:00", End: "03:00", TimeZone: "Europe/Prague"}}, nil, "2027-03-28T00:00:00Z", "2027-03-29T02:00:00+02:00", "2027-03-29T02:00:00+02:00"},
		{"every day", []api.UpdateWindow{{Start: "10:00", End: "11:00"}}, nil, "2026-11-28T10:31:00Z", "2026-11-29T10:00:00Z", "2026-11-29T10:00:00Z"},
		{"the first of several", []api.UpdateWindow{{Days: []string{"Mon"}, Start: "10:00", End: "11:00"}, {Days: []string{"Sun"}, Start: "12:00", End: "13:00"}}, nil, "2026-11-28T10:00:00Z", "2026-11-29T12:00:00Z", "2026-11-29T12:00:00Z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := decideFor(api.NodeRolloutPolicySpec{Windows: tt.windows, ExpectedDuration: tt.expected}, at(t, tt.now))
			refusal := ""
			if tt.opens != "" {
				refusal = "waits for the next window of NodeRolloutPolicy worker in which it can be done, at " + tt.opens
			}
			assert.Equal(t, refusal, d.Refusal)
			assert.Equal(t, tt.again, d.Again.Format(time.RFC3339))
			assert.Empty(t, d.Invalid)
		})
	}
}

// TestLongWindows has windows of several days, and one that is always open.
func TestLongWindows(t *testing.T) {
	t.Parallel()
	always := []api.UpdateWindow{{Start: "08:00", End: "08:00", TimeZone: "Europe/Prague"}}
	days := []api.UpdateWindow{{Days: []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}, Start: "00:00", End: "00:00"}}
	for _, tt := range []struct {
		windows  []api.UpdateWindow
		expected int
		want     Decision
	}{
		{always, 30, Decision{}},
		{always, 30 * 24 * 60, Decision{}},
		{days, 130 * 60, Decision{
			Refusal: "waits for the next window of NodeRolloutPolicy worker in which it can be done, at 2026-11-30T00:00:00Z", Again: at(t, "2026-11-30T00:00:00Z"),
		}},
		{days, 150 * 60, Decision{
			Invalid: "a node needs 6d6h, and the longest of spec.windows has 6d: extend it, or set spec.expectedDuration",
			Refusal: "waits, because NodeRolloutPolicy worker is invalid: a node needs 6d6h, and the longest of spec.windows has 6d: extend it, or set spec.expectedDuration",
		}},
	} {
		d := decideFor(api.NodeRolloutPolicySpec{Windows: tt.windows, ExpectedDuration: minutes(tt.expected)}, at(t, "2026-11-25T12:00:00Z"))
		assert.Equal(t, tt.want, d)
	}
}

func TestDurationIsTheLongerOne(t *testing.T) {
	t.Parallel()
	p := &api.NodeRolloutPolicy{}
	assert.Equal(t, 30*time.Minute, nodeDuration(p))
	p.Spec.ExpectedDuration = minutes(45)
	assert.Equal(t, 45*time.Minute, nodeDuration(p))
	p.Status.NodeDuration = minutes(7)
	assert.Equal(t, 45*time.Minute, nodeDuration(p), "fast updates do not hide the expected time")
	p.Status.NodeDuration = minutes(70)
	assert.Equal(t, 70*time.Minute, nodeDuration(p))
	p.Spec.ExpectedDuration = nil
	p.Status.NodeDuration = minutes(7)
	assert.Equal(t, 7*time.Minute, nodeDuration(p))
}

// TestSlowUpdateDoesNotEndAllOthers has a measured duration that no window has room for.
func TestSlowUpdateDoesNotEndAllOthers(t *testing.T) {
	t.Parallel()
	p := &api.NodeRolloutPolicy{Spec: api.NodeRolloutPolicySpec{Windows: []api.UpdateWindow{{Start: "10:00", End: "11:00"}}}}
	p.Status.NodeDuration = minutes(90)
	d := Decide([]Pool{{Name: "worker", Policy: p}}, at(t, "2026-11-28T10:00:00Z"))[0]
	assert.Equal(t, Decision{Again: at(t, "2026-11-28T10:30:01Z")}, d, "the expected duration counts")
	p.Spec.ExpectedDuration = minutes(61)
	d = Decide([]Pool{{Name: "worker", Policy: p}}, at(t, "2026-11-28T10:00:00Z"))[0]
	assert.Equal(t, "a node needs 61m, and the longest of spec.windows has 60m: extend it, or set spec.expectedDuration", d.Invalid)
}

// TestJobBeforeAnUpdateNeedsTime has a window of an hour, and a Job and an update that need a part of it each.
func TestJobBeforeAnUpdateNeedsTime(t *testing.T) {
	t.Parallel()
	const waits = "waits for the next window of NodeRolloutPolicy worker in which "
	for _, tt := range []struct {
		name, now        string
		expected, job    int
		want, unprepared string
		again            string
		invalid          string
	}{
		{"both fit", "2026-11-28T10:10:00Z", 20, 30, "", "", "2026-11-28T10:10:01Z", ""},
		{
			"only the update fits", "2026-11-28T10:10:01Z", 20, 30,
			"", waits + "its Job and its update can be done, at 2026-11-29T10:00:00Z", "2026-11-28T10:40:01Z", "",
		},
		{
			"nothing fits", "2026-11-28T10:50:00Z", 20, 30,
			waits + "it can be done, at 2026-11-29T10:00:00Z", waits + "its Job and its update can be done, at 2026-11-29T10:00:00Z", "2026-11-29T10:00:00Z", "",
		},
		{
			"no window is long enough for both", "2026-11-28T10:00:00Z", 45, 30, "", "", "0001-01-01T00:00:00Z",
			"a node needs 45m after a Job of up to 30m, and the longest of spec.windows has 60m: extend it, or set spec.expectedDuration or spec.jobs.before.deadline",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec := api.NodeRolloutPolicySpec{Windows: []api.UpdateWindow{{Start: "10:00", End: "11:00"}}, ExpectedDuration: minutes(tt.expected)}
			spec.Jobs.Before = &api.NodeJob{Deadline: *minutes(tt.job)}
			d := decideFor(spec, at(t, tt.now))
			assert.Equal(t, tt.invalid, d.Invalid)
			if tt.invalid == "" {
				assert.Equal(t, tt.want, d.Refusal)
			}
			assert.Equal(t, tt.unprepared, d.Unprepared)
			assert.Equal(t, tt.again, d.Again.Format(time.RFC3339))
		})
	}
}

// TestInvalidPolicyReportsItsBudget has an invalid field beside an exhausted budget.
func TestInvalidPolicyReportsItsBudget(t *testing.T) {
	t.Parallel()
	p := &api.NodeRolloutPolicy{Spec: api.NodeRolloutPolicySpec{FailureBudget: new(intstr.FromInt32(1)), DependsOn: []string{"infra"}}}
	d := Decide([]Pool{{Name: "worker", Policy: p, Nodes: 3, Failed: 1}}, time.Time{})[0]
	assert.Equal(t, "1 node failed, and the failure budget is 1", d.Halted)
	assert.Contains(t, d.Invalid, "infra")
}

func TestInvalidPoliciesStartNoNode(t *testing.T) {
	t.Parallel()
	window := func(w api.UpdateWindow) api.NodeRolloutPolicySpec {
		return api.NodeRolloutPolicySpec{Windows: []api.UpdateWindow{w}}
	}
	budget := func(b intstr.IntOrString) api.NodeRolloutPolicySpec {
		return api.NodeRolloutPolicySpec{FailureBudget: &b}
	}
	for _, tt := range []struct {
		spec api.NodeRolloutPolicySpec
		want string
	}{
		{window(api.UpdateWindow{Start: "10:00", End: "11:00", TimeZone: "Europe/Praha"}), `spec.windows[0].timeZone is "Europe/Praha": the time zone database here does not have it: use a name such as Europe/Prague`},
		{window(api.UpdateWindow{Start: "10:00", End: "11:00", TimeZone: "local"}), `spec.windows[0].timeZone is "local": the time zone database here does not have it: use a name such as Europe/Prague`},
		{window(api.UpdateWindow{Start: "25:00", End: "11:00"}), `spec.windows[0].start is "25:00": use a time such as 22:00`},
		{window(api.UpdateWindow{Days: []string{"Monday"}, Start: "10:00", End: "11:00"}), `spec.windows[0].days has "Monday": use Mon, Tue, Wed, Thu, Fri, Sat or Sun`},
		{window(api.UpdateWindow{Start: "10:00", End: "10:20"}), "a node needs 30m, and the longest of spec.windows has 20m: extend it, or set spec.expectedDuration"},
		{api.NodeRolloutPolicySpec{ExpectedDuration: minutes(0)}, "spec.expectedDuration is 0s: use a duration such as 45m"},
		{budget(intstr.FromInt32(0)), "spec.failureBudget is 0: use a number such as 2 or a percentage such as 3%"},
		{budget(intstr.FromString("3")), "spec.failureBudget is 3: use a number such as 2 or a percentage such as 3%"},
		{api.NodeRolloutPolicySpec{DependsOn: []string{"infra"}}, "spec.dependsOn names MachineConfigPool infra, which does not exist"},
		{api.NodeRolloutPolicySpec{DependsOn: []string{"worker"}}, "spec.dependsOn has a cycle: worker, worker"},
	} {
		d := decideFor(tt.spec, at(t, "2026-11-28T10:00:00Z"))
		assert.Equal(t, tt.want, d.Invalid)
		assert.Equal(t, "waits, because NodeRolloutPolicy worker is invalid: "+tt.want, d.Refusal)
	}
}

func TestFailureBudgetHaltsThePool(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		budget        intstr.IntOrString
		nodes, failed int
		halted        string
	}{
		{intstr.FromString("3%"), 100, 2, ""},
		{intstr.FromString("3%"), 100, 3, "3 nodes failed, and the failure budget is 3%"},
		{intstr.FromString("3%"), 10, 0, ""},
		{intstr.FromString("3%"), 10, 1, "1 node failed, and the failure budget is 3%"},
		{intstr.FromInt32(2), 10, 1, ""},
		{intstr.FromInt32(2), 10, 3, "3 nodes failed, and the failure budget is 2"},
	} {
		p := &api.NodeRolloutPolicy{Spec: api.NodeRolloutPolicySpec{FailureBudget: &tt.budget}}
		d := Decide([]Pool{{Name: "worker", Policy: p, Nodes: tt.nodes, Failed: tt.failed}}, time.Time{})[0]
		assert.Equal(t, tt.halted, d.Halted)
		refusal := ""
		if tt.halted != "" {
			refusal = "waits, because NodeRolloutPolicy worker halted the pool: " + tt.halted
		}
		assert.Equal(t, refusal, d.Refusal)
	}
}

func TestCanariesStartFirst(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-28T10:00:00Z")
	since := func(config, text string) *api.NodeCanaryStatus {
		return &api.NodeCanaryStatus{Config: config, Since: metav1.NewTime(at(t, text))}
	}
	const soaks = "waits until the canaries of NodeRolloutPolicy worker have run the config for 30m, at 2026-11-28T10:30:00Z"
	for _, tt := range []struct {
		name          string
		nodes         intstr.IntOrString
		started, done int
		status        *api.NodeCanaryStatus
		want          Decision
	}{
		{"none has started", intstr.FromInt32(2), 0, 0, nil, Decision{Limit: 2, Limited: "waits for the canaries of NodeRolloutPolicy worker: 0 of 2 run the config and are ready"}},
		{"of another config they are no canaries", intstr.FromString("3%"), 1, 0, since("old", "2026-11-20T10:00:00Z"), Decision{Limit: 2, Limited: "waits for the canaries of NodeRolloutPolicy worker: 0 of 3 run the config and are ready"}},
		{"all have started", intstr.FromInt32(2), 2, 1, nil, Decision{Limited: "waits for the canaries of NodeRolloutPolicy worker: 1 of 2 run the config and are ready"}},
		{"more have started before there was a policy", intstr.FromInt32(2), 5, 1, nil, Decision{Limit: -3, Limited: "waits for the canaries of NodeRolloutPolicy worker: 1 of 2 run the config and are ready"}},
		{"all are done", intstr.FromInt32(2), 2, 2, nil, Decision{Canary: since("new", "2026-11-28T10:00:00Z"), Refusal: soaks, Again: at(t, "2026-11-28T10:30:00Z")}},
		{"they soak", intstr.FromInt32(2), 2, 2, since("new", "2026-11-28T09:40:00Z"), Decision{
			Canary: since("new", "2026-11-28T09:40:00Z"), Again: at(t, "2026-11-28T10:10:00Z"),
			Refusal: "waits until the canaries of NodeRolloutPolicy worker have run the config for 30m, at 2026-11-28T10:10:00Z",
		}},
		{"they have soaked", intstr.FromInt32(2), 2, 2, since("new", "2026-11-28T09:30:00Z"), Decision{Canary: since("new", "2026-11-28T09:30:00Z")}},
		{"one is lost while they soak", intstr.FromInt32(2), 2, 1, since("new", "2026-11-28T09:40:00Z"), Decision{Limited: "waits for the canaries of NodeRolloutPolicy worker: 1 of 2 run the config and are ready"}},
		{"more are wanted while they soak", intstr.FromInt32(3), 2, 2, since("new", "2026-11-28T09:40:00Z"), Decision{Limit: 1, Limited: "waits for the canaries of NodeRolloutPolicy worker: 2 of 3 run the config and are ready"}},
		{"one fails later", intstr.FromInt32(2), 2, 1, since("new", "2026-11-28T09:30:00Z"), Decision{Canary: since("new", "2026-11-28T09:30:00Z")}},
		{"the pool is smaller", intstr.FromInt32(200), 100, 100, nil, Decision{Canary: since("new", "2026-11-28T10:00:00Z"), Refusal: soaks, Again: at(t, "2026-11-28T10:30:00Z")}},
	} {
		p := &api.NodeRolloutPolicy{Spec: api.NodeRolloutPolicySpec{Canary: &api.NodeCanary{Nodes: tt.nodes, Soak: *minutes(30)}}}
		p.Name, p.Status.Canary = "worker", tt.status
		d := Decide([]Pool{{Name: "worker", Policy: p, Nodes: 100, Config: "new", Started: tt.started, Done: tt.done}}, now)[0]
		assert.Equal(t, tt.want, d, tt.name)
	}
	p := &api.NodeRolloutPolicy{Spec: api.NodeRolloutPolicySpec{Canary: &api.NodeCanary{Nodes: intstr.FromInt32(1), Soak: *minutes(30)}}}
	empty := Decide([]Pool{{Name: "worker", Policy: p, Config: "new"}}, now)[0]
	assert.Nil(t, empty.Canary, "no node has proved anything")
	d := decideFor(api.NodeRolloutPolicySpec{Canary: &api.NodeCanary{Nodes: intstr.FromString("x")}}, now)
	assert.Equal(t, "spec.canary.nodes is x: use a number such as 2 or a percentage such as 3%", d.Invalid)
	d = decideFor(api.NodeRolloutPolicySpec{Canary: &api.NodeCanary{Nodes: intstr.FromInt32(1), Soak: *minutes(-1)}}, now)
	assert.Equal(t, "spec.canary.soak is -1m0s: use a duration such as 30m", d.Invalid)
}

func TestInvalidDrainRuleIsNamed(t *testing.T) {
	t.Parallel()
	d := decideFor(api.NodeRolloutPolicySpec{DrainRules: []api.DrainRule{{PodSelector: metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn}},
	}}}}, time.Time{})
	assert.Contains(t, d.Invalid, "spec.drainRules[0].podSelector is invalid: ")
}

func TestPoolsWaitForThoseTheyDependOn(t *testing.T) {
	t.Parallel()
	dependsOn := func(name string, updated bool, on ...string) Pool {
		return Pool{Name: name, Updated: updated, Policy: &api.NodeRolloutPolicy{Spec: api.NodeRolloutPolicySpec{DependsOn: on}}}
	}
	refusals := func(pools ...Pool) []string {
		var list []string
		for _, d := range Decide(pools, time.Time{}) {
			list = append(list, d.Refusal)
		}
		return list
	}
	for _, tt := range []struct {
		master Pool
		why    string
	}{
		{Pool{}, "it is not updated yet"},
		{Pool{Paused: true, Degraded: 1}, "it is paused; 'cvo nodes resume master' resumes it"},
		{Pool{Error: "MachineConfig a is invalid: x", Paused: true}, "it has no valid config: MachineConfig a is invalid: x"},
		{Pool{Jobs: Jobs{Why: "node n1 is held, because Job a/b failed"}, Paused: true}, "node n1 is held, because Job a/b failed"},
		{Pool{Degraded: 2}, "it has 2 degraded nodes; 'cvo nodes status master' shows why"},
	} {
		tt.master.Name = "master"
		assert.Equal(t, []string{"", "waits for MachineConfigPool master, on which NodeRolloutPolicy worker depends: " + tt.why},
			refusals(tt.master, dependsOn("worker", false, "master")))
	}
	assert.Equal(t, []string{"", ""}, refusals(Pool{Name: "master", Updated: true}, dependsOn("worker", false, "master")))
	assert.Equal(t, []string{
		"waits, because NodeRolloutPolicy a is invalid: spec.dependsOn has a cycle: a, c, b, a",
		"waits, because NodeRolloutPolicy b is invalid: spec.dependsOn has a cycle: b, a, c, b",
		"waits, because NodeRolloutPolicy c is invalid: spec.dependsOn has a cycle: c, b, a, c",
		"waits for MachineConfigPool a, on which NodeRolloutPolicy d depends: it is not updated yet",
	}, refusals(dependsOn("a", false, "c"), dependsOn("b", true, "a"), dependsOn("c", true, "b"), dependsOn("d", false, "a")))
}

func TestHeldNodesSayWhy(t *testing.T) {
	t.Parallel()
	n := &corev1.Node{}
	assert.Empty(t, Hold(n))
	n.Annotations = map[string]string{api.NodeHoldAnnotation: ""}
	assert.Equal(t, "is held by annotation cvo.cluster-version.github.io/hold", Hold(n))
	n.Annotations[api.NodeHoldAnnotation] = "the vendor examines it"
	assert.Equal(t, "is held by annotation cvo.cluster-version.github.io/hold: the vendor examines it", Hold(n))
	n.Annotations[api.NodeHoldAnnotation] = "a\x1b[31m"
	assert.NotContains(t, Hold(n), "\x1b")
}
