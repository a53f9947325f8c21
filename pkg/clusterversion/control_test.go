package clusterversion

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// everyField is a definition that lacks nothing.
func everyField() Schema {
	return Schema{Mode: true, AcceptRisks: true, ConditionalUpdateRisks: true, RiskNames: true, RiskConditions: true}
}

// noon is when these tests begin.
func noon() time.Time { return time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC) }

// underUpdate is a ClusterVersion that is being updated from 1.0.0 to 1.1.0 since noon.
func underUpdate() *configv1.ClusterVersion {
	cv := &configv1.ClusterVersion{}
	cv.Status.History = []configv1.UpdateHistory{
		{State: configv1.PartialUpdate, Version: "1.1.0", Image: "r@1.1.0", StartedTime: metav1.NewTime(noon())},
		{State: configv1.PartialUpdate, Version: "1.0.5", Image: "r@1.0.5"},
		{State: configv1.CompletedUpdate, Version: "1.0.0", Image: "r@1.0.0"},
	}
	return cv
}

// heldAt is the progress of an update whose runlevels 10, 20, … have so many of their ten manifests done.
func heldAt(pause *rollout.Pause, done ...int) rollout.Progress {
	p := rollout.Progress{Mode: release.Updating, Release: release.Release{Version: "1.1.0", Image: "r@1.1.0"}, Paused: pause, Complete: true}
	for i, d := range done {
		p.Runlevels = append(p.Runlevels, rollout.Runlevel{Runlevel: 10 * (i + 1), Total: 10, Done: d})
		p.Complete = p.Complete && d == 10
	}
	return p
}

func asks(spec api.ReleaseRolloutSpec) Controls {
	return Controls{Schema: everyField(), Served: true, Rollout: &api.ReleaseRollout{Spec: spec}}
}

// tick is when the ReleaseRollout of these tests says something happened.
func tick(minutes int) *metav1.Time {
	at := metav1.NewTime(noon().Add(time.Duration(minutes) * time.Minute))
	return &at
}

func TestTrackTimesRunlevels(t *testing.T) {
	m := &memory{planned: "r@1.1.0"}
	step := func(minutes int, p rollout.Progress) { m.track(underUpdate(), &p, tick(minutes).Time) }
	step(0, heldAt(nil, 0, 0, 0))
	step(5, heldAt(nil, 4, 0, 0))
	step(10, heldAt(nil, 10, 0, 0))
	step(20, heldAt(nil, 10, 10, 0))
	require.NotNil(t, m.control.current)
	assert.Equal(t, "1.0.0", m.control.current.From, "what did not complete is no place to come from")
	assert.Equal(t, []api.RunlevelProgress{
		{Runlevel: 10, Manifests: 10, StartedAt: tick(0), CompletedAt: tick(10)},
		{Runlevel: 20, Manifests: 10, StartedAt: tick(10), CompletedAt: tick(20)},
		{Runlevel: 30, Manifests: 10, StartedAt: tick(20)},
	}, m.control.current.Runlevels)
	step(23, heldAt(nil, 10, 10, 10))
	assert.Nil(t, m.control.current)
	require.Len(t, m.control.history, 1)
	took := map[int32]time.Duration{}
	for _, level := range m.control.history[0].Runlevels {
		took[level.Runlevel] = level.Took.Duration
	}
	assert.Equal(t, map[int32]time.Duration{10: 10 * time.Minute, 20: 10 * time.Minute, 30: 3 * time.Minute}, took)

	step(24, heldAt(nil, 10, 10, 10))
	assert.Len(t, m.control.history, 1, "a second pass before the ClusterVersion says so is no second update")
	assert.Nil(t, m.control.current)
}

// TestTrackBelievesNoEndWithoutABeginning: the status that a process begins with may be anybody's.
func TestTrackBelievesNoEndWithoutABeginning(t *testing.T) {
	m := &memory{planned: "r@1.1.0"}
	m.control.recall(&api.ReleaseRollout{Status: api.ReleaseRolloutStatus{Current: &api.CurrentRollout{
		To: "1.1.0", Image: "r@1.1.0", StartedAt: *tick(0),
		Runlevels: []api.RunlevelProgress{{Runlevel: 10, StartedAt: tick(0)}, {Runlevel: 20, CompletedAt: tick(3)}},
	}}})
	p := heldAt(nil, 4, 0)
	m.track(underUpdate(), &p, tick(5).Time)
	assert.Equal(t, []api.RunlevelProgress{{Runlevel: 10, Manifests: 10, StartedAt: tick(0)}, {Runlevel: 20, Manifests: 10}}, m.control.current.Runlevels)
}

func TestTrackDoesNotCountPauses(t *testing.T) {
	m := &memory{planned: "r@1.1.0"}
	step := func(minutes int, p rollout.Progress) { m.track(underUpdate(), &p, tick(minutes).Time) }
	step(0, heldAt(nil, 0, 0))
	step(10, heldAt(&rollout.Pause{Before: 20, Reached: true}, 10, 0))
	assert.Nil(t, m.control.current.Runlevels[1].StartedAt)
	step(600, heldAt(&rollout.Pause{Before: 20, Reached: true}, 10, 0))
	step(610, heldAt(nil, 10, 0))
	step(615, heldAt(nil, 10, 10))
	require.Len(t, m.control.history, 1)
	assert.Equal(t, 5*time.Minute, m.control.history[0].Runlevels[1].Took.Duration)
}

func TestTrackKeepsSoManyUpdates(t *testing.T) {
	m := &memory{planned: "r@1.1.0"}
	for i := range 2 * api.ReleaseRolloutHistory {
		cv := underUpdate()
		cv.Status.History[0].StartedTime = *tick(10 * i)
		p := heldAt(nil, 10)
		m.track(cv, &p, tick(10*i+5).Time)
	}
	require.Len(t, m.control.history, api.ReleaseRolloutHistory)
	assert.Equal(t, tick(10*(2*api.ReleaseRolloutHistory-1)), &m.control.history[0].StartedAt, "the newest first")
}

// What a complete release gives the cluster anew, as for a capability, is no update: it tells nothing of how long one takes, and
// is not held back.
func TestAdditionsAreNoUpdates(t *testing.T) {
	m := &memory{planned: "r@1.1.0", passer: &rollout.Passer{}, adds: true}
	m.follow(asks(api.ReleaseRolloutSpec{Paused: true}))
	for _, p := range []rollout.Progress{heldAt(nil, 10, 0), heldAt(nil, 10, 10)} {
		assert.Empty(t, m.track(underUpdate(), &p, noon()))
		assert.Nil(t, m.control.current)
		assert.Nil(t, p.Estimate)
		m.progress = &p
	}
	assert.Empty(t, m.control.history)
	assert.Equal(t, api.ReasonNoUpdate, m.pausedCondition().Reason)
}

func TestEstimateIsToldWithTheProgress(t *testing.T) {
	m := &memory{planned: "r@1.1.0"}
	took := metav1.Duration{Duration: 10 * time.Minute}
	m.control.history = []api.CompletedRollout{{To: "1.0.0", Runlevels: []api.RunlevelDuration{{Runlevel: 10, Manifests: 10, Took: took}, {Runlevel: 20, Manifests: 10, Took: took}}}}
	p := heldAt(nil, 0, 0)
	m.track(underUpdate(), &p, noon())
	require.NotNil(t, p.Estimate)
	assert.Equal(t, 14*time.Minute, p.Estimate.Low)
	assert.Equal(t, noon().Add(30*time.Minute), p.Estimate.Latest)
	assert.Equal(t, 1, p.Estimate.Rollouts)
	m.progress = &p
	assert.Equal(t, noon().Add(30*time.Minute), m.progressNow(tick(5).Time).Estimate.Latest, "as long as it goes as expected, that stays")

	p = heldAt(&rollout.Pause{Before: 20, Reached: true}, 10, 0)
	m.track(underUpdate(), &p, tick(10).Time)
	assert.Equal(t, 15*time.Minute, p.Estimate.High)
	assert.Zero(t, p.Estimate.Latest, "nobody knows when it goes on")

	p = heldAt(nil, 10, 10)
	m.track(underUpdate(), &p, tick(20).Time)
	assert.Nil(t, p.Estimate)
}

// newsOf lists the reasons of events.
func newsOf(events []event) string {
	var reasons []string
	for _, e := range events {
		reasons = append(reasons, e.reason)
	}
	return strings.Join(reasons, " ")
}

func TestFollowTellsOfPauseAndResumptionOnce(t *testing.T) {
	m := &memory{planned: "r@1.1.0", passer: &rollout.Passer{}}
	news, changed := m.follow(asks(api.ReleaseRolloutSpec{Paused: true, Reason: "closing"}))
	assert.True(t, changed)
	assert.Empty(t, newsOf(news), "it is told when the boundary is reached")
	_, changed = m.follow(asks(api.ReleaseRolloutSpec{Paused: true, Reason: "another"}))
	assert.False(t, changed)

	p := heldAt(&rollout.Pause{Before: 20}, 5, 0)
	assert.Empty(t, m.track(underUpdate(), &p, noon()))
	p = heldAt(&rollout.Pause{Before: 20, Reached: true}, 10, 0)
	assert.Equal(t, api.EventRolloutPaused, newsOf(m.track(underUpdate(), &p, noon())))
	p = heldAt(&rollout.Pause{Before: 20}, 9, 0)
	assert.Empty(t, m.track(underUpdate(), &p, noon()))
	assert.True(t, p.Paused.Reached, "what is looked at once more was reached all the same")

	news, changed = m.follow(asks(api.ReleaseRolloutSpec{}))
	assert.True(t, changed)
	assert.Equal(t, api.EventRolloutResumed, newsOf(news))
	assert.Nil(t, m.control.boundary)
	news, changed = m.follow(Controls{Schema: everyField()})
	assert.False(t, changed, "an object that is gone asks for nothing")
	assert.Empty(t, news)
}

// A pause may be somebody else's than the deletion: that it is over is told, whether there was an update to hold back or not.
func TestFollowTellsOfAPauseThatWasDeleted(t *testing.T) {
	for name, reached := range map[string]bool{"an update is held back": true, "there is no update": false} {
		t.Run(name, func(t *testing.T) {
			m := &memory{planned: "r@1.1.0", passer: &rollout.Passer{}}
			m.follow(asks(api.ReleaseRolloutSpec{Paused: true}))
			if reached {
				p := heldAt(&rollout.Pause{Before: 20, Reached: true}, 10, 0)
				m.track(underUpdate(), &p, noon())
			}
			gone := Controls{Schema: everyField(), Served: true}
			news, changed := m.follow(gone)
			assert.True(t, changed)
			require.Equal(t, api.EventRolloutResumed, newsOf(news))
			assert.Equal(t, "Updates are not paused any more: the ReleaseRollout that asked for it was deleted", news[0].message)
			news, changed = m.follow(gone)
			assert.False(t, changed)
			assert.Empty(t, news)
		})
	}
}

func TestRecall(t *testing.T) {
	before := int32(20)
	object := func(paused bool) Controls {
		look := asks(api.ReleaseRolloutSpec{Paused: paused})
		look.Rollout.Status = api.ReleaseRolloutStatus{
			Current:    &api.CurrentRollout{To: "1.1.0", Image: "r@1.1.0", PausedBefore: &before},
			Conditions: []metav1.Condition{{Type: api.RolloutPaused, Status: metav1.ConditionTrue, Reason: api.ReasonPaused}},
		}
		return look
	}
	t.Run("goes on with a pause where it was", func(t *testing.T) {
		m := &memory{planned: "r@1.1.0"}
		news, _ := m.follow(object(true))
		assert.Empty(t, news)
		assert.Equal(t, &boundary{"r@1.1.0", 20}, m.control.boundary)
		p := heldAt(&rollout.Pause{Before: 20}, 9, 0)
		assert.Empty(t, m.track(underUpdate(), &p, noon()), "an earlier process has told")
		assert.True(t, p.Paused.Reached)
	})
	t.Run("notices a resumption that it missed", func(t *testing.T) {
		m := &memory{planned: "r@1.1.0"}
		news, _ := m.follow(object(false))
		assert.Equal(t, api.EventRolloutResumed, newsOf(news))
		assert.Nil(t, m.control.boundary)
	})
	t.Run("does not hold another image back there", func(t *testing.T) {
		m := &memory{planned: "r@1.2.0"}
		m.follow(object(true))
		p := heldAt(&rollout.Pause{Before: 10, Reached: true}, 0, 0)
		assert.Equal(t, api.EventRolloutPaused, newsOf(m.track(underUpdate(), &p, noon())))
		assert.Equal(t, &boundary{"r@1.2.0", 10}, m.control.boundary)
	})
}

func TestRolloutStatusConditions(t *testing.T) {
	for _, test := range []struct {
		name     string
		spec     api.ReleaseRolloutSpec
		progress *rollout.Progress
		want     string
	}{
		{"says that nobody asks", api.ReleaseRolloutSpec{}, nil, "False NotAsked Updates are not paused"},
		{"says nothing before the first pass has", api.ReleaseRolloutSpec{Paused: true}, nil, ""},
		{
			"says that there is nothing to hold back",
			api.ReleaseRolloutSpec{Paused: true, Reason: "closing"},
			&rollout.Progress{Mode: release.Reconciling},
			"False NoUpdate There is nothing to hold back; the next update is held back before its first runlevel: closing",
		},
		{
			"says that what has begun goes on",
			api.ReleaseRolloutSpec{Paused: true},
			new(heldAt(&rollout.Pause{Before: 20}, 5, 0)),
			"False Pausing The update to 1.1.0 pauses before runlevel 20, once what has begun is complete",
		},
		{
			"says where it is held back, and why",
			api.ReleaseRolloutSpec{Paused: true, Reason: "closing"},
			new(heldAt(&rollout.Pause{Before: 20, Reached: true}, 10, 0)),
			"True BeforeRunlevel The update to 1.1.0 is paused before runlevel 20: closing",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := &memory{planned: "r@1.1.0", progress: test.progress}
			m.follow(asks(test.spec))
			status := m.rolloutStatus(noon())
			got := ""
			if c := meta.FindStatusCondition(status.Conditions, api.RolloutPaused); c != nil {
				got = string(c.Status) + " " + c.Reason + " " + c.Message
			}
			assert.Equal(t, test.want, got)
			assert.True(t, meta.IsStatusConditionTrue(status.Conditions, api.RolloutDefinitionComplete))
		})
	}
}

func TestDefinitionThatLacksFieldsIsToldOnce(t *testing.T) {
	m := &memory{}
	lacking := Controls{Schema: Schema{AcceptRisks: true, ConditionalUpdateRisks: true, RiskNames: true, RiskConditions: true}}
	news, _ := m.follow(lacking)
	require.Equal(t, api.EventDefinitionOutdated, newsOf(news))
	assert.Contains(t, news[0].message, "lacks spec.desiredUpdate.mode:")
	news, _ = m.follow(lacking)
	assert.Empty(t, news)
	c := meta.FindStatusCondition(m.rolloutStatus(noon()).Conditions, api.RolloutDefinitionComplete)
	assert.Equal(t, metav1.ConditionFalse, c.Status)
	news, _ = m.follow(Controls{Schema: everyField()})
	assert.Empty(t, news)
	assert.True(t, meta.IsStatusConditionTrue(m.rolloutStatus(noon()).Conditions, api.RolloutDefinitionComplete))
}

// TestRolloutStatusStays: nothing new, no other status, so that a cluster at rest is not written to.
func TestRolloutStatusStays(t *testing.T) {
	m := &memory{planned: "r@1.1.0", progress: new(heldAt(&rollout.Pause{Before: 20, Reached: true}, 10, 0))}
	m.follow(asks(api.ReleaseRolloutSpec{Paused: true}))
	m.track(underUpdate(), m.progress, noon())
	first := m.rolloutStatus(noon())
	m.control.written = &first
	assert.Equal(t, first, m.rolloutStatus(tick(60).Time))
	assert.EqualValues(t, 20, *first.Current.PausedBefore)
}

func TestPace(t *testing.T) {
	base := api.ReleaseRolloutStatus{Conditions: []metav1.Condition{{Type: api.RolloutPaused, Status: metav1.ConditionFalse}}, Estimate: &api.RolloutEstimate{}}
	with := func(change func(*api.ReleaseRolloutStatus)) api.ReleaseRolloutStatus {
		next := base
		change(&next)
		return next
	}
	for name, test := range map[string]struct {
		next api.ReleaseRolloutStatus
		want time.Duration
	}{
		"a pause is told at once":                  {with(func(s *api.ReleaseRolloutStatus) { s.Conditions = nil }), 0},
		"a preflight is told at once":              {with(func(s *api.ReleaseRolloutStatus) { s.Preflight = &api.Preflight{} }), 0},
		"an update that completed is told at once": {with(func(s *api.ReleaseRolloutStatus) { s.Current, s.History = nil, []api.CompletedRollout{{To: "1.1.0"}} }), 0},
		"runlevels wait a little":                  {with(func(s *api.ReleaseRolloutStatus) { s.Current = &api.CurrentRollout{} }), controlInterval},
		"an estimate that moves waits longest":     {with(func(s *api.ReleaseRolloutStatus) { s.Estimate = nil }), estimateInterval},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, pace(base, test.next)) })
	}
}

func TestPausedText(t *testing.T) {
	assert.Equal(t, "waiting on a", pausedText(&rollout.Progress{}, "waiting on a"))
	assert.Equal(t, "waiting on a", pausedText(nil, "waiting on a"))
	assert.Equal(t, "waiting on a, pausing before runlevel 05", pausedText(&rollout.Progress{Paused: &rollout.Pause{Before: 5}}, "waiting on a"))
	p := heldAt(&rollout.Pause{Before: 20, Reached: true}, 10, 0)
	p.Done, p.Total = 10, 20
	assert.Equal(t, "Working towards 1.1.0: 10 of 20 done (50% complete), paused before runlevel 20", workingText("1.1.0", &p, pausedText(&p, "")))
}

// TestClockSetBack: the definition of ReleaseRollout refuses an update that completes before it starts, and the whole
// status with it, for as long as the history has it.
func TestClockSetBack(t *testing.T) {
	m := &memory{planned: "r@1.1.0"}
	p := heldAt(nil, 0)
	m.track(underUpdate(), &p, noon())
	p = heldAt(nil, 10)
	m.track(underUpdate(), &p, noon().Add(-time.Hour))
	require.Len(t, m.control.history, 1)
	entry := m.control.history[0]
	assert.False(t, entry.CompletedAt.Before(&entry.StartedAt))
	assert.GreaterOrEqual(t, entry.Runlevels[0].Took.Duration, time.Duration(0))
}

// puts counts the writes of a ReleaseRollout.
type puts struct {
	count int
	err   error
	// rollout is what the watch has told of.
	rollout *api.ReleaseRollout
}

func (p *puts) Look() Controls {
	return Controls{Schema: everyField(), Served: true, Rollout: p.rollout}
}

func (p *puts) Put(_ context.Context, status api.ReleaseRolloutStatus) error {
	p.count++
	if p.err == nil {
		p.rollout = &api.ReleaseRollout{Status: status}
	}
	return p.err
}

// What was told is told again when it has been deleted, though there is nothing new; once, and only if there is anything.
func TestReleaseRolloutIsWrittenAgainWhenDeleted(t *testing.T) {
	clk, control := testingclock.NewFakeClock(noon()), &puts{}
	c := &Reconciler{clock: clk, options: Options{Control: control}}
	write := c.writeControl(logr.Discard())
	assert.Equal(t, Next{}, write(t.Context()))
	assert.Zero(t, control.count, "there is nothing to tell, and nobody asks")

	c.memory.control.history = []api.CompletedRollout{{To: "1.1.0"}}
	for deletions := range 3 {
		assert.Equal(t, Next{}, write(t.Context()))
		assert.Equal(t, deletions+1, control.count)
		require.NotNil(t, control.rollout)
		assert.Len(t, control.rollout.Status.History, 1)
		assert.Equal(t, Next{}, write(t.Context()))
		assert.Equal(t, deletions+1, control.count, "it is there")
		control.rollout = nil
	}
}

func TestReleaseRolloutIsNotWrittenAgainAtOnce(t *testing.T) {
	clk, control := testingclock.NewFakeClock(noon()), &puts{err: errors.New("refused"), rollout: &api.ReleaseRollout{}}
	c := &Reconciler{clock: clk, options: Options{Control: control}}
	write := c.writeControl(logr.Discard())
	assert.Equal(t, recordRetry, write(t.Context()).After)
	clk.Step(time.Second)
	assert.Equal(t, recordRetry-time.Second, write(t.Context()).After, "it was woken by something else")
	assert.Equal(t, 1, control.count)
	clk.Step(recordRetry)
	write(t.Context())
	assert.Equal(t, 2, control.count)
}
