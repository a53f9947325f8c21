package story

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// levels returns the progress of an update with the runlevels 10, 20 and 30. Each has two manifests, of which done lists the finished ones.
func levels(done ...int) report.Progress {
	p := report.Progress{Release: release.Release{Version: "1.1.0"}, Mode: release.Updating, Total: 2 * len(done)}
	for i, d := range done {
		p.Runlevels = append(p.Runlevels, report.Runlevel{Runlevel: 10 * (i + 1), Total: 2, Done: d})
		p.Done += d
	}
	return p
}

// waitingFor returns the problem of a ClusterOperator for which a rollout has waited.
func waitingFor(name string, wait time.Duration) report.Problem {
	return report.Problem{
		ID: manifest.ID{Group: "config.openshift.io", Kind: "ClusterOperator", Name: name}, Runlevel: 20, State: gate.Waiting,
		Patience: gate.UntilSlow, Reason: "ClusterOperatorUpdating", Message: "Cluster operator " + name + " is updating versions", Since: now.Add(-wait),
	}
}

func with(p report.Progress, change func(p *report.Progress)) report.Progress {
	change(&p)
	return p
}

func TestAddedObjectsReachNoRunlevelAgain(t *testing.T) {
	events, s := Events(New(levels(2, 1, 1), now, true), levels(2, 2, 1), now)
	assert.Empty(t, events)
	assert.Equal(t, 2, s.Reached())
}

func TestProgressEmitsEventsOnce(t *testing.T) {
	object := manifest.ID{Kind: "ConfigMap", Name: "a"}
	dropped := func(p *report.Progress) {
		p.Dropped = []report.Dropped{{ID: object, File: "f.yaml", Fields: []string{".a"}}}
	}
	loosened := func(p *report.Progress) {
		p.Loosened = []report.Loosened{{ID: object, Fields: []string{"kubectl: .spec.hostPID"}}}
	}
	controlled := func(p *report.Progress) {
		p.Controlled = []report.Controlled{{ID: object, Controller: "Shop shop"}}
	}
	scaled := func(p *report.Progress) { p.ScaledToZero = []manifest.ID{object} }
	handedOver := func(p *report.Progress) { p.HandedOver = true }
	mode := func(mode release.Mode) func(*report.Progress) { return func(p *report.Progress) { p.Mode = mode } }
	waits := func(problems ...report.Problem) func(*report.Progress) {
		return func(p *report.Progress) { p.Problems = problems }
	}
	reported := waitingFor("dns", time.Hour)
	reported.State, reported.Patience = gate.Settled, gate.Report
	failed := waitingFor("dns", time.Hour)
	failed.Err = errors.New("no")
	unready := waitingFor("dns", time.Hour)
	unready.ID = object

	for _, tt := range []struct {
		name  string
		known report.Progress
		after report.Progress
		want  []string
	}{
		{name: "emits nothing before a runlevel is reached", known: levels(0, 0, 0), after: levels(1, 0, 0)},
		{name: "reports a reached runlevel", known: levels(0, 0, 0), after: levels(2, 1, 0), want: []string{"RunlevelReached: Reached runlevel 10 of 1.1.0, 10m0s after the start"}},
		{
			name: "reports two runlevels reached together", known: levels(0, 0, 0), after: levels(2, 2, 0),
			want: []string{"RunlevelReached: Reached runlevel 10 of 1.1.0, 10m0s after the start", "RunlevelReached: Reached runlevel 20 of 1.1.0, 10m0s after the start and 0s after runlevel 10"},
		},
		{name: "emits nothing for a runlevel above an unfinished one", known: levels(0, 0, 0), after: levels(1, 2, 0)},
		{name: "repeats nothing after a restart", known: levels(2, 0, 0), after: levels(2, 1, 0)},
		{name: "reports the next runlevel after a restart", known: levels(2, 0, 0), after: levels(2, 2, 0), want: []string{"RunlevelReached: Reached runlevel 20 of 1.1.0, 10m0s after the start"}},
		{name: "emits nothing for an install, which has no order", after: with(levels(2, 2, 2), mode(release.Initializing))},
		{name: "emits nothing when reconciling", after: with(levels(2, 2, 2), mode(release.Reconciling))},
		{
			name: "reports that the nodes are handed over", known: levels(2, 2, 2), after: with(levels(2, 2, 2), handedOver),
			want: []string{"NodesHandedOver: The control plane is at 1.1.0; the nodes are handed over to machine-config"},
		},
		{name: "does not repeat the handover after a restart", known: with(levels(2, 2, 2), handedOver), after: with(levels(2, 2, 2), handedOver)},
		{name: "emits nothing for a short wait", known: levels(0), after: with(levels(0), waits(waitingFor("dns", operatorWait-time.Second)))},
		{
			name: "reports long waits", known: levels(0), after: with(levels(0), waits(waitingFor("dns", operatorWait), waitingFor("etcd", time.Minute), waitingFor("network", time.Hour))),
			want: []string{
				"ClusterOperatorWaitedFor: Waited 5m0s so far for ClusterOperator dns at runlevel 20 of 1.1.0: Cluster operator dns is updating versions",
				"ClusterOperatorWaitedFor: Waited 1h0m0s so far for ClusterOperator network at runlevel 20 of 1.1.0: Cluster operator network is updating versions",
			},
		},
		{name: "emits nothing for waits that block nothing", known: levels(0), after: with(levels(0), waits(reported))},
		{name: "emits nothing for an operator that cannot be applied", known: levels(0), after: with(levels(0), waits(failed))},
		{name: "emits nothing for a wait for another object", known: levels(0), after: with(levels(0), waits(unready))},
		{name: "emits nothing for a wait when reconciling", known: levels(2), after: with(with(levels(2), mode(release.Reconciling)), waits(waitingFor("dns", time.Hour)))},
		{name: "reports a dropped field", known: levels(0), after: with(levels(0), dropped), want: []string{"FieldDropped: ConfigMap a (f.yaml): dropped .a: the API server's schema does not have it"}},
		{
			name: "does not repeat a dropped field from the inventory", known: with(levels(0), func(p *report.Progress) { p.Dropped = []report.Dropped{{ID: object}} }),
			after: with(levels(0), dropped),
		},
		{
			name: "reports loosened security", known: levels(0), after: with(levels(0), loosened),
			want: []string{"PodSecurityLoosened: Other clients set fields of ConfigMap a that loosen the security of its pods: kubectl: .spec.hostPID"},
		},
		{
			name: "reports another controller", known: levels(0), after: with(levels(0), controlled),
			want: []string{"OtherController: Shop shop controls ConfigMap a of the release and may write it too; the version operator is only one of its owners"},
		},
		{name: "does not repeat another controller", known: with(levels(0), controlled), after: with(levels(0), controlled)},
		{
			name: "reports a workload without replicas", known: levels(0), after: with(levels(0), scaled),
			want: []string{"ScaledToZero: ConfigMap a is scaled to 0, so no pod runs; its manifest leaves spec.replicas to other clients"},
		},
		{name: "does not repeat a workload without replicas", known: with(levels(0), scaled), after: with(levels(0), scaled)},
		{name: "does not repeat loosened security", known: with(levels(0), loosened), after: with(levels(0), loosened)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events, s := Events(New(tt.known, now.Add(-10*time.Minute), false), tt.after, now)
			var got []string
			for _, e := range events {
				got = append(got, e.Reason+": "+e.Message)
			}
			assert.Equal(t, tt.want, got)
			again, _ := Events(s, tt.after, now)
			assert.Empty(t, again, "once")
		})
	}
}

func TestNextReturnsTheTimeOfTheNextEvent(t *testing.T) {
	s := New(levels(0), now, false)
	waits := with(levels(0), func(p *report.Progress) {
		p.Problems = []report.Problem{waitingFor("dns", time.Minute), waitingFor("etcd", 2*time.Minute)}
	})
	assert.Zero(t, Next(s, levels(0), now))
	assert.Equal(t, 3*time.Minute, Next(s, waits, now))
	later := now.Add(3 * time.Minute)
	events, s := Events(s, waits, later)
	assert.Equal(t, []string{"ClusterOperatorWaitedFor"}, reasonsOf(events))
	assert.Equal(t, time.Minute, Next(s, waits, later))
	_, s = Events(s, waits, later.Add(time.Minute))
	assert.Zero(t, Next(s, waits, later.Add(time.Minute)), "all events have been emitted")
}

func reasonsOf(events []event.Event) []string {
	var reasons []string
	for _, e := range events {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

func TestEventTextsNameTheirSubject(t *testing.T) {
	assert.Equal(t, event.Event{Kind: "Normal", Reason: "NodesHandedOver", Message: "The control plane is at 1.1.0; the nodes are handed over to machine-config"}, nodesHandedOver("1.1.0"))
	d := report.Dropped{ID: manifest.ID{Group: "g", Kind: "K", Name: "n"}, File: "f.yaml", Fields: []string{".a", ".b"}}
	assert.Equal(t, event.Event{Kind: "Warning", Reason: "FieldDropped", Message: "K.g n (f.yaml): dropped .a, .b: the API server's schema does not have it"}, fieldDropped(d))
}
