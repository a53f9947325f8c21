package clusterversion

import (
	"errors"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

func TestAcceptanceEventsOfRetries(t *testing.T) {
	failed := Acceptance{Step: "RetrievePayload", Message: "m1", Err: errors.New("e")}
	other := failed
	other.Message = "m2"
	assert.Equal(t, []string{"RetrievePayloadFailed"}, reasonsOf(acceptanceEvents(Acceptance{Step: "RetrievePayload"}, failed)))
	assert.Empty(t, acceptanceEvents(failed, failed), "the same failure again is nothing new")
	assert.Equal(t, []event{{"Warning", "RetrievePayloadFailed", "m2"}}, acceptanceEvents(failed, other))

	// A retry is told when it has an answer.
	done := acceptedRelease("1.1.0")
	assert.Equal(t, []string{"PreconditionsPassed", "PayloadLoaded"}, reasonsOf(acceptanceEvents(failed, done)))
	done.Verified = release.Verified{Forced: errUnsigned}
	assert.Equal(t, []string{"RetrievePayload", "PreconditionsPassed", "PayloadLoaded"}, reasonsOf(acceptanceEvents(failed, done)), "force is never silent")
	assert.Empty(t, acceptanceEvents(done, done))
}

func TestHistoryEvents(t *testing.T) {
	status := func(history ...configv1.UpdateHistory) configv1.ClusterVersionStatus {
		return configv1.ClusterVersionStatus{History: history}
	}
	again := partial("1.0.0")
	again.StartedTime = metav1.NewTime(now)
	for _, tt := range []struct {
		name          string
		before, after configv1.ClusterVersionStatus
		want          []event
	}{
		{name: "nothing"},
		{name: "an install begins", after: status(partial("1.0.0")), want: []event{{"Normal", "UpdateStarted", "Started to install 1.0.0"}}},
		{name: "and goes on", before: status(partial("1.0.0")), after: status(partial("1.0.0"))},
		{name: "and completes", before: status(partial("1.0.0")), after: status(completed("1.0.0")), want: []event{{"Normal", "UpdateCompleted", "Completed 1.0.0 in 10m0s"}}},
		{name: "at rest", before: status(completed("1.0.0")), after: status(completed("1.0.0"))},
		{name: "an update begins", before: status(completed("1.0.0")), after: status(partial("1.1.0"), completed("1.0.0")), want: []event{{"Normal", "UpdateStarted", "Started to update from 1.0.0 to 1.1.0"}}},
		{name: "and turns back", before: status(partial("1.1.0"), completed("1.0.0")), after: status(again, partial("1.1.0"), completed("1.0.0")), want: []event{{"Normal", "UpdateStarted", "Started to update from 1.1.0 to 1.0.0"}}},
		{
			name: "both at once", before: status(completed("1.0.0")), after: status(completed("1.1.0"), completed("1.0.0")),
			want: []event{{"Normal", "UpdateStarted", "Started to update from 1.0.0 to 1.1.0"}, {"Normal", "UpdateCompleted", "Completed 1.1.0 in 10m0s"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, historyEvents(tt.before, tt.after)) })
	}
}

func TestEventTexts(t *testing.T) {
	assert.Equal(t, event{"Normal", "NodesHandedOver", "The control plane is at 1.1.0; the nodes are handed over to machine-config"}, nodesHandedOver("1.1.0"))
	d := rollout.Dropped{ID: manifest.ID{Group: "g", Kind: "K", Name: "n"}, File: "f.yaml", Fields: []string{".a", ".b"}}
	assert.Equal(t, event{"Warning", "FieldDropped", "K.g n (f.yaml): left out .a, .b, which the API server's schema does not have"}, fieldDropped(d))
	assert.Equal(t, "Completed 1.1.0 in 2s", updateCompleted("1.1.0", 1500*time.Millisecond).message)
}

// levels is the progress of an update with runlevels 10, 20 and 30, as far as each is done of 2.
func levels(done ...int) rollout.Progress {
	p := rollout.Progress{Release: release.Release{Version: "1.1.0"}, Mode: release.Updating, Total: 2 * len(done)}
	for i, d := range done {
		p.Runlevels = append(p.Runlevels, rollout.Runlevel{Runlevel: 10 * (i + 1), Total: 2, Done: d})
		p.Done += d
	}
	return p
}

// waitingFor is a ClusterOperator that a rollout has waited for.
func waitingFor(name string, wait time.Duration) rollout.Problem {
	return rollout.Problem{
		ID: manifest.ID{Group: "config.openshift.io", Kind: "ClusterOperator", Name: name}, Runlevel: 20, State: gate.Waiting,
		Patience: gate.UntilSlow, Reason: "ClusterOperatorUpdating", Message: "Cluster operator " + name + " is updating versions", Since: now.Add(-wait),
	}
}

func with(p rollout.Progress, change func(p *rollout.Progress)) rollout.Progress {
	change(&p)
	return p
}

func TestProgressEvents(t *testing.T) {
	object := manifest.ID{Kind: "ConfigMap", Name: "a"}
	dropped := func(p *rollout.Progress) {
		p.Dropped = []rollout.Dropped{{ID: object, File: "f.yaml", Fields: []string{".a"}}}
	}
	loosened := func(p *rollout.Progress) {
		p.Loosened = []rollout.Loosened{{ID: object, Fields: []string{"kubectl: .spec.hostPID"}}}
	}
	handedOver := func(p *rollout.Progress) { p.HandedOver = true }
	mode := func(mode release.Mode) func(*rollout.Progress) { return func(p *rollout.Progress) { p.Mode = mode } }
	waits := func(problems ...rollout.Problem) func(*rollout.Progress) {
		return func(p *rollout.Progress) { p.Problems = problems }
	}
	reported := waitingFor("dns", time.Hour)
	reported.State, reported.Patience = gate.Settled, gate.Report
	failed := waitingFor("dns", time.Hour)
	failed.Err = errors.New("no")
	unready := waitingFor("dns", time.Hour)
	unready.ID = object

	for _, tt := range []struct {
		name  string
		known rollout.Progress
		after rollout.Progress
		want  []string
	}{
		{name: "nothing has begun", known: levels(0, 0, 0), after: levels(1, 0, 0)},
		{name: "a runlevel is reached", known: levels(0, 0, 0), after: levels(2, 1, 0), want: []string{"RunlevelReached: Reached runlevel 10 of 1.1.0, 10m0s after the start"}},
		{
			name: "two at once", known: levels(0, 0, 0), after: levels(2, 2, 0),
			want: []string{"RunlevelReached: Reached runlevel 10 of 1.1.0, 10m0s after the start", "RunlevelReached: Reached runlevel 20 of 1.1.0, 10m0s after the start and 0s after runlevel 10"},
		},
		{name: "one above an open one", known: levels(0, 0, 0), after: levels(1, 2, 0)},
		{name: "a restart past a runlevel", known: levels(2, 0, 0), after: levels(2, 1, 0)},
		{name: "a restart, and then the next", known: levels(2, 0, 0), after: levels(2, 2, 0), want: []string{"RunlevelReached: Reached runlevel 20 of 1.1.0, 10m0s after the start"}},
		{name: "an install, which has no order", after: with(levels(2, 2, 2), mode(release.Initializing))},
		{name: "a release that is kept", after: with(levels(2, 2, 2), mode(release.Reconciling))},
		{
			name: "the nodes are handed over", known: levels(2, 2, 2), after: with(levels(2, 2, 2), handedOver),
			want: []string{"NodesHandedOver: The control plane is at 1.1.0; the nodes are handed over to machine-config"},
		},
		{name: "a restart after that", known: with(levels(2, 2, 2), handedOver), after: with(levels(2, 2, 2), handedOver)},
		{name: "a short wait", known: levels(0), after: with(levels(0), waits(waitingFor("dns", operatorWait-time.Second)))},
		{
			name: "long waits", known: levels(0), after: with(levels(0), waits(waitingFor("dns", operatorWait), waitingFor("etcd", time.Minute), waitingFor("network", time.Hour))),
			want: []string{
				"ClusterOperatorWaitedFor: Waited for ClusterOperator dns at runlevel 20 of 1.1.0, for 5m0s so far: Cluster operator dns is updating versions",
				"ClusterOperatorWaitedFor: Waited for ClusterOperator network at runlevel 20 of 1.1.0, for 1h0m0s so far: Cluster operator network is updating versions",
			},
		},
		{name: "waits that hold nothing back", known: levels(0), after: with(levels(0), waits(reported))},
		{name: "an operator that cannot be applied", known: levels(0), after: with(levels(0), waits(failed))},
		{name: "a wait for something else", known: levels(0), after: with(levels(0), waits(unready))},
		{name: "a release that is kept waits", known: levels(2), after: with(with(levels(2), mode(release.Reconciling)), waits(waitingFor("dns", time.Hour)))},
		{name: "a field is dropped", known: levels(0), after: with(levels(0), dropped), want: []string{"FieldDropped: ConfigMap a (f.yaml): left out .a, which the API server's schema does not have"}},
		{
			name: "a field that an inventory says was dropped", known: with(levels(0), func(p *rollout.Progress) { p.Dropped = []rollout.Dropped{{ID: object}} }),
			after: with(levels(0), dropped),
		},
		{
			name: "security is loosened", known: levels(0), after: with(levels(0), loosened),
			want: []string{"PodSecurityLoosened: Others set fields of ConfigMap a that loosen the security of its pods: kubectl: .spec.hostPID"},
		},
		{name: "it stays so", known: with(levels(0), loosened), after: with(levels(0), loosened)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events, s := progressEvents(newStory(tt.known, now.Add(-10*time.Minute)), tt.after, now)
			var got []string
			for _, e := range events {
				got = append(got, e.reason+": "+e.message)
			}
			assert.Equal(t, tt.want, got)
			again, _ := progressEvents(s, tt.after, now)
			assert.Empty(t, again, "once")
		})
	}
}

func TestNextStory(t *testing.T) {
	s := newStory(levels(0), now)
	waits := with(levels(0), func(p *rollout.Progress) {
		p.Problems = []rollout.Problem{waitingFor("dns", time.Minute), waitingFor("etcd", 2*time.Minute)}
	})
	assert.Zero(t, nextStory(s, levels(0), now))
	assert.Equal(t, 3*time.Minute, nextStory(s, waits, now))
	later := now.Add(3 * time.Minute)
	events, s := progressEvents(s, waits, later)
	assert.Equal(t, []string{"ClusterOperatorWaitedFor"}, reasonsOf(events))
	assert.Equal(t, time.Minute, nextStory(s, waits, later))
	_, s = progressEvents(s, waits, later.Add(time.Minute))
	assert.Zero(t, nextStory(s, waits, later.Add(time.Minute)), "all has been told")
}

func TestFailingEvents(t *testing.T) {
	status := func(value configv1.ConditionStatus, reason string) configv1.ClusterVersionStatus {
		return configv1.ClusterVersionStatus{Conditions: []configv1.ClusterOperatorStatusCondition{
			{Type: "Failing", Status: value, Reason: reason, Message: "It does not work", LastTransitionTime: metav1.NewTime(now)},
		}}
	}
	none, fine, slow, bad, worse := configv1.ClusterVersionStatus{}, status("False", ""), status("Unknown", "SlowClusterOperator"), status("True", "A"), status("True", "B")
	for _, tt := range []struct {
		name          string
		before, after configv1.ClusterVersionStatus
		want          []event
	}{
		{name: "nothing", before: none, after: fine},
		{name: "slowness", before: fine, after: slow},
		{name: "a failure", before: fine, after: bad, want: []event{{"Warning", "RolloutFailing", "A: It does not work"}}},
		{name: "the same failure", before: bad, after: bad},
		{name: "another reason", before: bad, after: worse},
		{name: "recovery", before: bad, after: fine, want: []event{{"Normal", "RolloutRecovered", "Recovered from A, which began at 2026-03-01T12:00:00Z"}}},
		{name: "a failure that is only slow now", before: bad, after: slow, want: []event{{"Normal", "RolloutRecovered", "Recovered from A, which began at 2026-03-01T12:00:00Z"}}},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, failingEvents(tt.before, tt.after)) })
	}
}

func TestRestated(t *testing.T) {
	says := func(value configv1.ConditionStatus, message string) *configv1.ClusterVersion {
		cv := clusterAt(completed("1.0.0"))
		cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{{Type: "ReleaseAccepted", Status: value, Message: message}}
		return cv
	}
	done := acceptedRelease("1.0.0")
	loading := Acceptance{Target: done.Target, Step: "LoadPayload", Message: "Loading payload"}
	refused := Acceptance{Target: done.Target, Step: "LoadPayload", Message: "no good", Err: errors.New("e")}
	image := `x image="` + done.Target.Image + `"`
	for _, tt := range []struct {
		name  string
		cv    *configv1.ClusterVersion
		after Acceptance
		want  bool
	}{
		{"a first install", clusterAt(), done, false},
		{"what runs is accepted again", says("True", done.Message), done, true},
		{"another release is accepted", says("True", "Payload loaded another"), done, false},
		{"what runs is loaded again", says("True", image), loading, true},
		{"what was refused is loaded again", says("False", image), loading, true},
		{"another release is loaded", says("True", `x image="other"`), loading, false},
		{"an attempt of this process", says("Unknown", image), loading, false},
		{"the same refusal", says("False", "no good"), refused, true},
		{"another refusal", says("False", "bad"), refused, false},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, restated(tt.cv, tt.after)) })
	}
}

func TestUnsaid(t *testing.T) {
	said := map[string]bool{headline("RunlevelReached", "Reached runlevel 10 of 1.1.0, 12s after the start"): true}
	list := []event{
		{"Normal", "RunlevelReached", "Reached runlevel 10 of 1.1.0, 40s after the start"},
		{"Normal", "RunlevelReached", "Reached runlevel 10 of 1.2.0, 40s after the start"},
	}
	assert.Equal(t, []event{{"Normal", "RunlevelReached", "Reached runlevel 10 of 1.2.0, 40s after the start"}}, unsaid(list, said))
}
