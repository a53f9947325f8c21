package clusterversion

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/release"
)

// startLog is a Runner that only records the started slots and the number of calls of Stop.
type startLog struct {
	idle

	slots []string
	stops int
}

func (s *startLog) Stop() { s.stops++ }

func (s *startLog) Start(slot, _ string, _ func(context.Context) background.Next) {
	s.slots = append(s.slots, slot)
}

// progresses stores progress of the rollout that the reconciler has started.
func (s *scribe) progresses(p *report.Progress) {
	s.progressed(clusterAt(), s.underway.snapshot().key, *p)
}

func (s *scribe) at(after time.Duration) { s.clock.SetTime(now.Add(after)) }

// runlevels returns the progress of an update in which each runlevel has one manifest.
func runlevels(version string, done, total int) *report.Progress {
	p := progressOf(version, done, total)
	p.Mode = release.Updating
	for i := range total {
		level := report.Runlevel{Runlevel: 10 * i, Total: 1}
		if i < done {
			level.Done = 1
		}
		p.Runlevels = append(p.Runlevels, level)
	}
	return p
}

// TestEdgesDoNotWaitForTheInterval completes an install and an update with a status interval of an hour. The operator writes each edge
// once, as soon as it notices it. The rollout starts within the reconcile that writes the history.
func TestEdgesDoNotWaitForTheInterval(t *testing.T) {
	runner := &startLog{}
	s := newScribe(t, func(p *parts) { p.options.StatusInterval, p.runner = time.Hour, runner })
	type write struct {
		after time.Duration
		state string
	}
	var writes []write
	step := func(after time.Duration, change func()) {
		t.Helper()
		s.at(after)
		change()
		runner.slots = nil
		count := len(s.writes)
		s.reconcile(t)
		if len(s.writes) == count {
			return
		}
		status, state := s.get(t).Status, "accepting"
		if len(status.History) > 0 {
			state = status.History[0].Version + " " + string(status.History[0].State)
		}
		if slices.Contains(runner.slots, background.SlotRollout) {
			state += ", rollout started"
		}
		writes = append(writes, write{after, state + ", " + said(status, configv1.OperatorProgressing)})
	}
	const ms = time.Millisecond
	loading := accept.Acceptance{Target: request.Target{Image: imageOf("1.0.0")}, Step: api.ReasonLoadPayload, Message: "Loading payload"}
	step(0, func() {})
	step(10*ms, func() { s.accepts(loading) })
	step(20*ms, func() { s.accepts(acceptedRelease("1.0.0")) })
	step(30*ms, func() { s.progresses(progressOf("1.0.0", 1, 4)) })
	step(40*ms, func() { s.progresses(progressOf("1.0.0", 4, 4)) })
	step(50*ms, func() {})
	step(55*ms, func() {
		cv := s.get(t)
		cv.Spec.DesiredUpdate = &configv1.Update{Image: imageOf("1.1.0")}
		require.NoError(t, s.client.Update(t.Context(), cv))
	})
	step(60*ms, func() { s.accepts(acceptedRelease("1.1.0")) })
	step(70*ms, func() { s.progresses(runlevels("1.1.0", 0, 3)) })
	step(80*ms, func() { s.progresses(runlevels("1.1.0", 1, 3)) })
	step(90*ms, func() { s.progresses(runlevels("1.1.0", 1, 3)) })
	step(100*ms, func() { s.progresses(runlevels("1.1.0", 3, 3)) })
	assert.Equal(t, []write{
		{0, "accepting, True||Working towards " + imageOf("1.0.0")},
		{20 * ms, "1.0.0 Partial, rollout started, True||Working towards 1.0.0"},
		{40 * ms, "1.0.0 Completed, rollout started, False||Cluster version is 1.0.0"},
		{60 * ms, "1.1.0 Partial, rollout started, True||Working towards 1.1.0"},
		{80 * ms, "1.1.0 Partial, rollout started, True||Working towards 1.1.0: 1 of 3 done (33% complete)"},
		{100 * ms, "1.1.0 Completed, rollout started, False||Cluster version is 1.1.0"},
	}, writes)
}

// TestStatusShowsOneStateOfTheRollout completes a rollout after the obstacles of the same reconcile are known.
func TestStatusShowsOneStateOfTheRollout(t *testing.T) {
	s := newScribe(t)
	s.reconcile(t)
	s.accepts(acceptedRelease("1.0.0"))
	s.reconcile(t)
	conditions := func() (progressing, upgradeable string) {
		status := s.get(t).Status
		progressing, _, _ = strings.Cut(said(status, configv1.OperatorProgressing), "|")
		return progressing, said(status, configv1.OperatorUpgradeable)
	}
	progressing, upgradeable := conditions()
	require.Equal(t, "True", progressing)
	require.Contains(t, upgradeable, "UpdateInProgress")

	s.at(time.Second)
	cv := s.get(t)
	r := &round{original: cv, cv: cv.DeepCopy()}
	for _, step := range s.steps() {
		if step.name == "writing status" {
			s.progresses(progressOf("1.0.0", 4, 4))
		}
		require.NoError(t, step.run(t.Context(), r))
	}
	progressing, upgradeable = conditions()
	assert.Equal(t, progressing == "True", strings.Contains(upgradeable, "UpdateInProgress"), "Progressing %s, Upgradeable %s", progressing, upgradeable)
	s.reconcile(t)
	progressing, upgradeable = conditions()
	assert.Equal(t, []string{"False", ""}, []string{progressing, upgradeable})
}

// TestFlappingIsBounded flaps a status in two ways. A rollout that fails and recovers repeatedly causes a burst of writes and then one
// write per second. Another writer that keeps removing the history causes one write per second from the start.
func TestFlappingIsBounded(t *testing.T) {
	for _, tt := range []struct {
		name  string
		burst int
		flap  func(t *testing.T, s *scribe, i int)
	}{
		{"limits writes for a rollout that fails and recovers", 10, func(_ *testing.T, s *scribe, i int) {
			p := progressOf("1.0.0", 1, 4)
			if i%2 == 0 {
				p.Problems = []report.Problem{apiFailure("a", api.ReasonPayloadFailed, time.Hour)}
			}
			s.progresses(p)
		}},
		{"limits writes against another writer of the status", 1, func(t *testing.T, s *scribe, _ int) {
			t.Helper()
			cv := s.get(t)
			cv.Status.History = nil
			require.NoError(t, s.client.Status().Update(t.Context(), cv))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScribe(t)
			s.reconcile(t)
			s.accepts(acceptedRelease("1.0.0"))
			const seconds, perSecond = 40, 10
			for i := range seconds * perSecond {
				s.at(time.Duration(i+1) * time.Second / perSecond)
				tt.flap(t, s, i)
				s.reconcile(t)
			}
			assert.LessOrEqual(t, len(s.writes), tt.burst+seconds+1)
			last := slices.DeleteFunc(slices.Clone(s.writes), func(at time.Time) bool { return at.Before(now.Add((seconds - 10) * time.Second)) })
			assert.LessOrEqual(t, len(last), 11, "the burst budget is used up")
			assert.GreaterOrEqual(t, len(last), 9, "each interval has a write")
		})
	}
}
