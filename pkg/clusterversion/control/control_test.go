package control

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
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

// everyField returns a definition that has every field.
func everyField() Schema {
	return Schema{Mode: true, AcceptRisks: true, ConditionalUpdateRisks: true, RiskNames: true, RiskConditions: true}
}

// noon is the time at which these tests start.
func noon() time.Time { return time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC) }

// underUpdate returns a ClusterVersion whose update from 1.0.0 to 1.1.0 started at noon.
func underUpdate() *configv1.ClusterVersion {
	cv := &configv1.ClusterVersion{}
	cv.Status.History = []configv1.UpdateHistory{
		{State: configv1.PartialUpdate, Version: "1.1.0", Image: "r@1.1.0", StartedTime: metav1.NewTime(noon())},
		{State: configv1.PartialUpdate, Version: "1.0.5", Image: "r@1.0.5"},
		{State: configv1.CompletedUpdate, Version: "1.0.0", Image: "r@1.0.0"},
	}
	return cv
}

// heldAt returns the progress of an update. done lists the finished manifests of the runlevels 10, 20, …, which have ten manifests each.
func heldAt(pause *report.Pause, done ...int) report.Progress {
	p := report.Progress{Mode: release.Updating, Release: release.Release{Version: "1.1.0", Image: "r@1.1.0"}, Paused: pause, Complete: true}
	for i, d := range done {
		p.Runlevels = append(p.Runlevels, report.Runlevel{Runlevel: 10 * (i + 1), Total: 10, Done: d})
		p.Complete = p.Complete && d == 10
	}
	return p
}

func asks(spec api.ReleaseRolloutSpec) Look {
	return Look{Schema: everyField(), Served: true, Rollout: &api.ReleaseRollout{Spec: spec}}
}

// tick returns a time in the ReleaseRollout, in minutes after noon.
func tick(minutes int) *metav1.Time {
	at := metav1.NewTime(noon().Add(time.Duration(minutes) * time.Minute))
	return &at
}

// started returns a Control whose rollout of an image has started. adds reports that it adds objects to a completed release.
func started(image string, adds bool) *Control {
	k := New(testingclock.NewFakeClock(noon()), nil)
	k.Plan("planned", image, adds)
	k.Begin("planned", &rollout.Executor{})
	return k
}

// track reports the progress of a rollout at a given time.
func (k *Control) track(cv *configv1.ClusterVersion, p *report.Progress, at time.Time) []event.Event {
	k.clock.(*testingclock.FakeClock).SetTime(at)
	news, _ := k.Track("planned", cv, p)
	return news
}

func TestTrackTimesRunlevels(t *testing.T) {
	m := started("r@1.1.0", false)
	step := func(minutes int, p report.Progress) { m.track(underUpdate(), &p, tick(minutes).Time) }
	step(0, heldAt(nil, 0, 0, 0))
	step(5, heldAt(nil, 4, 0, 0))
	step(10, heldAt(nil, 10, 0, 0))
	step(20, heldAt(nil, 10, 10, 0))
	require.NotNil(t, m.current)
	assert.Equal(t, "1.0.0", m.current.From, "an update does not start from an incomplete release")
	assert.Equal(t, []api.RunlevelProgress{
		{Runlevel: 10, Manifests: 10, StartedAt: tick(0), CompletedAt: tick(10)},
		{Runlevel: 20, Manifests: 10, StartedAt: tick(10), CompletedAt: tick(20)},
		{Runlevel: 30, Manifests: 10, StartedAt: tick(20)},
	}, m.current.Runlevels)
	step(23, heldAt(nil, 10, 10, 10))
	assert.Nil(t, m.current)
	require.Len(t, m.history, 1)
	took := map[int32]time.Duration{}
	for _, level := range m.history[0].Runlevels {
		took[level.Runlevel] = level.Took.Duration
	}
	assert.Equal(t, map[int32]time.Duration{10: 10 * time.Minute, 20: 10 * time.Minute, 30: 3 * time.Minute}, took)

	step(24, heldAt(nil, 10, 10, 10))
	assert.Len(t, m.history, 1, "a second pass before the status write does not count as a second update")
	assert.Nil(t, m.current)
}

// TestTrackDropsCompletionWithoutStart starts from a status that another client may have written.
func TestTrackDropsCompletionWithoutStart(t *testing.T) {
	m := started("r@1.1.0", false)
	m.recall(&api.ReleaseRollout{Status: api.ReleaseRolloutStatus{Current: &api.CurrentRollout{
		To: "1.1.0", Image: "r@1.1.0", StartedAt: *tick(0),
		Runlevels: []api.RunlevelProgress{{Runlevel: 10, StartedAt: tick(0)}, {Runlevel: 20, CompletedAt: tick(3)}},
	}}})
	p := heldAt(nil, 4, 0)
	m.track(underUpdate(), &p, tick(5).Time)
	assert.Equal(t, []api.RunlevelProgress{{Runlevel: 10, Manifests: 10, StartedAt: tick(0)}, {Runlevel: 20, Manifests: 10}}, m.current.Runlevels)
}

func TestSupersededRolloutChangesNothing(t *testing.T) {
	for name, supersede := range map[string]func(*Control){
		"after another one was planned": func(k *Control) { k.Plan("next", "r@1.2.0", false) },
		"after all state was dropped":   (*Control).Reset,
	} {
		t.Run(name, func(t *testing.T) {
			k := started("r@1.1.0", false)
			supersede(k)
			before := k.memory
			p := heldAt(&report.Pause{Before: 20, Reached: true}, 10, 0)
			news, ok := k.Track("planned", underUpdate(), &p)
			assert.False(t, ok)
			assert.Empty(t, news)
			assert.False(t, k.Begin("planned", &rollout.Executor{}))
			assert.Equal(t, before, k.memory)
		})
	}
}

// TestPauseAppliesToTheRolloutThatBegins requests a pause between the plan of a rollout and its beginning.
func TestPauseAppliesToTheRolloutThatBegins(t *testing.T) {
	k := started("r@1.1.0", false)
	k.Plan("next", "r@1.2.0", false)
	k.Follow(asks(api.ReleaseRolloutSpec{Paused: true}))
	executor := &rollout.Executor{Clock: k.clock}
	require.True(t, k.Begin("next", executor))
	manifests, err := manifest.Parse("0000_10_a_00.yaml", []byte("{apiVersion: v1, kind: Namespace, metadata: {name: a}}"), manifest.Limits{})
	require.NoError(t, err)
	plan, err := rollout.NewPlan(release.Release{Version: "1.2.0"}, manifests, release.Updating)
	require.NoError(t, err)
	progress, _, err := executor.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	assert.Equal(t, &report.Pause{Before: 10, Reached: true}, progress.Paused)
}

func TestTrackDoesNotCountPauses(t *testing.T) {
	m := started("r@1.1.0", false)
	step := func(minutes int, p report.Progress) { m.track(underUpdate(), &p, tick(minutes).Time) }
	step(0, heldAt(nil, 0, 0))
	step(10, heldAt(&report.Pause{Before: 20, Reached: true}, 10, 0))
	assert.Nil(t, m.current.Runlevels[1].StartedAt)
	step(600, heldAt(&report.Pause{Before: 20, Reached: true}, 10, 0))
	step(610, heldAt(nil, 10, 0))
	step(615, heldAt(nil, 10, 10))
	require.Len(t, m.history, 1)
	assert.Equal(t, 5*time.Minute, m.history[0].Runlevels[1].Took.Duration)
}

func TestTrackKeepsABoundedHistory(t *testing.T) {
	m := started("r@1.1.0", false)
	for i := range 2 * api.ReleaseRolloutHistory {
		cv := underUpdate()
		cv.Status.History[0].StartedTime = *tick(10 * i)
		p := heldAt(nil, 10)
		m.track(cv, &p, tick(10*i+5).Time)
	}
	require.Len(t, m.history, api.ReleaseRolloutHistory)
	assert.Equal(t, tick(10*(2*api.ReleaseRolloutHistory-1)), &m.history[0].StartedAt, "the newest comes first")
}

// TestAdditionsDoNotCountAsUpdates adds objects, such as those of a capability, to a complete release. Additions do not count for the
// duration of an update, and a pause does not apply to them.
func TestAdditionsDoNotCountAsUpdates(t *testing.T) {
	m := started("r@1.1.0", true)
	m.Follow(asks(api.ReleaseRolloutSpec{Paused: true}))
	for _, p := range []report.Progress{heldAt(nil, 10, 0), heldAt(nil, 10, 10)} {
		assert.Empty(t, m.track(underUpdate(), &p, noon()))
		assert.Nil(t, m.current)
		assert.Nil(t, p.Estimate)
		assert.Equal(t, api.ReasonNoUpdate, m.pausedCondition(&p).Reason)
	}
	assert.Empty(t, m.history)
}

func TestEstimateIsReportedWithTheProgress(t *testing.T) {
	m := started("r@1.1.0", false)
	took := metav1.Duration{Duration: 10 * time.Minute}
	m.history = []api.CompletedRollout{{To: "1.0.0", Runlevels: []api.RunlevelDuration{{Runlevel: 10, Manifests: 10, Took: took}, {Runlevel: 20, Manifests: 10, Took: took}}}}
	p := heldAt(nil, 0, 0)
	m.track(underUpdate(), &p, noon())
	require.NotNil(t, p.Estimate)
	assert.Equal(t, 14*time.Minute, p.Estimate.Low)
	assert.Equal(t, noon().Add(30*time.Minute), p.Estimate.Latest)
	assert.Equal(t, 1, p.Estimate.Rollouts)
	m.clock.(*testingclock.FakeClock).SetTime(tick(5).Time)
	assert.Equal(t, &report.Estimate{
		Low: 9 * time.Minute, High: 25 * time.Minute, Earliest: tick(14).Time, Latest: tick(30).Time, Basis: "History", Rollouts: 1,
	}, m.Estimated(&p).Estimate, "the times stay, the durations shrink")

	p = heldAt(&report.Pause{Before: 20, Reached: true}, 10, 0)
	m.track(underUpdate(), &p, tick(10).Time)
	assert.Equal(t, 15*time.Minute, p.Estimate.High)
	assert.Zero(t, p.Estimate.Latest, "the end of a pause is unknown")

	p = heldAt(nil, 10, 10)
	m.track(underUpdate(), &p, tick(20).Time)
	assert.Nil(t, p.Estimate)
}

// newsOf joins the reasons of events.
func newsOf(events []event.Event) string {
	var reasons []string
	for _, e := range events {
		reasons = append(reasons, e.Reason)
	}
	return strings.Join(reasons, " ")
}

func TestFollowReportsPauseAndResumptionOnce(t *testing.T) {
	m := started("r@1.1.0", false)
	news, changed := m.Follow(asks(api.ReleaseRolloutSpec{Paused: true, Reason: "closing"}))
	assert.True(t, changed)
	assert.Empty(t, newsOf(news), "no event before the boundary is reached")
	_, changed = m.Follow(asks(api.ReleaseRolloutSpec{Paused: true, Reason: "another"}))
	assert.False(t, changed)

	p := heldAt(&report.Pause{Before: 20}, 5, 0)
	assert.Empty(t, m.track(underUpdate(), &p, noon()))
	p = heldAt(&report.Pause{Before: 20, Reached: true}, 10, 0)
	assert.Equal(t, api.EventRolloutPaused, newsOf(m.track(underUpdate(), &p, noon())))
	p = heldAt(&report.Pause{Before: 20}, 9, 0)
	assert.Empty(t, m.track(underUpdate(), &p, noon()))
	assert.True(t, p.Paused.Reached, "a reached boundary stays reached")

	news, changed = m.Follow(asks(api.ReleaseRolloutSpec{}))
	assert.True(t, changed)
	assert.Equal(t, api.EventRolloutResumed, newsOf(news))
	assert.Nil(t, m.boundary)
	news, changed = m.Follow(Look{Schema: everyField()})
	assert.False(t, changed, "deleting the object changes nothing")
	assert.Empty(t, news)
}

// TestFollowReportsADeletedPause deletes a ReleaseRollout with a pause, as another administrator might. An event reports the end of the
// pause, with or without a running update.
func TestFollowReportsADeletedPause(t *testing.T) {
	for name, reached := range map[string]bool{"reports it during a paused update": true, "reports it without an update": false} {
		t.Run(name, func(t *testing.T) {
			m := started("r@1.1.0", false)
			m.Follow(asks(api.ReleaseRolloutSpec{Paused: true}))
			if reached {
				p := heldAt(&report.Pause{Before: 20, Reached: true}, 10, 0)
				m.track(underUpdate(), &p, noon())
			}
			gone := Look{Schema: everyField(), Served: true}
			news, changed := m.Follow(gone)
			assert.True(t, changed)
			require.Equal(t, api.EventRolloutResumed, newsOf(news))
			assert.Equal(t, "Updates are no longer paused: the ReleaseRollout was deleted", news[0].Message)
			news, changed = m.Follow(gone)
			assert.False(t, changed)
			assert.Empty(t, news)
		})
	}
}

func TestRecallRestoresThePause(t *testing.T) {
	before := int32(20)
	object := func(paused bool) Look {
		look := asks(api.ReleaseRolloutSpec{Paused: paused})
		look.Rollout.Status = api.ReleaseRolloutStatus{
			Current:    &api.CurrentRollout{To: "1.1.0", Image: "r@1.1.0", PausedBefore: &before},
			Conditions: []metav1.Condition{{Type: api.RolloutPaused, Status: metav1.ConditionTrue, Reason: api.ReasonPaused}},
		}
		return look
	}
	t.Run("resumes a pause at its boundary", func(t *testing.T) {
		m := started("r@1.1.0", false)
		news, _ := m.Follow(object(true))
		assert.Empty(t, news)
		assert.Equal(t, &boundary{"r@1.1.0", 20}, m.boundary)
		p := heldAt(&report.Pause{Before: 20}, 9, 0)
		assert.Empty(t, m.track(underUpdate(), &p, noon()), "an earlier process has already reported it")
		assert.True(t, p.Paused.Reached)
	})
	t.Run("notices a missed resumption", func(t *testing.T) {
		m := started("r@1.1.0", false)
		news, _ := m.Follow(object(false))
		assert.Equal(t, api.EventRolloutResumed, newsOf(news))
		assert.Nil(t, m.boundary)
	})
	t.Run("does not pause another image at that boundary", func(t *testing.T) {
		m := started("r@1.2.0", false)
		m.Follow(object(true))
		p := heldAt(&report.Pause{Before: 10, Reached: true}, 0, 0)
		assert.Equal(t, api.EventRolloutPaused, newsOf(m.track(underUpdate(), &p, noon())))
		assert.Equal(t, &boundary{"r@1.2.0", 10}, m.boundary)
	})
}

func TestRolloutStatusReportsThePause(t *testing.T) {
	for _, test := range []struct {
		name     string
		spec     api.ReleaseRolloutSpec
		progress *report.Progress
		want     string
	}{
		{"reports that no pause is requested", api.ReleaseRolloutSpec{}, nil, "False NotAsked Updates are not paused"},
		{"reports nothing before the first pass", api.ReleaseRolloutSpec{Paused: true}, nil, ""},
		{
			"reports that no update is running",
			api.ReleaseRolloutSpec{Paused: true, Reason: "closing"},
			&report.Progress{Mode: release.Reconciling},
			"False NoUpdate No update is running; the next one pauses before its first runlevel: closing",
		},
		{
			"reports that the current runlevel completes first",
			api.ReleaseRolloutSpec{Paused: true},
			new(heldAt(&report.Pause{Before: 20}, 5, 0)),
			"False Pausing The update to 1.1.0 completes its current runlevel and pauses before runlevel 20",
		},
		{
			"reports the boundary and the reason of the pause",
			api.ReleaseRolloutSpec{Paused: true, Reason: "closing"},
			new(heldAt(&report.Pause{Before: 20, Reached: true}, 10, 0)),
			"True BeforeRunlevel The update to 1.1.0 is paused before runlevel 20: closing",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := started("r@1.1.0", false)
			m.Follow(asks(test.spec))
			status := m.status(test.progress, noon())
			got := ""
			if c := meta.FindStatusCondition(status.Conditions, api.RolloutPaused); c != nil {
				got = string(c.Status) + " " + c.Reason + " " + c.Message
			}
			assert.Equal(t, test.want, got)
			assert.True(t, meta.IsStatusConditionTrue(status.Conditions, api.RolloutDefinitionComplete))
		})
	}
}

func TestMissingFieldsAreReportedOnce(t *testing.T) {
	m := New(testingclock.NewFakeClock(noon()), nil)
	lacking := Look{Schema: Schema{AcceptRisks: true, ConditionalUpdateRisks: true, RiskNames: true, RiskConditions: true}}
	news, _ := m.Follow(lacking)
	require.Equal(t, api.EventDefinitionOutdated, newsOf(news))
	assert.Contains(t, news[0].Message, "lacks spec.desiredUpdate.mode:")
	news, _ = m.Follow(lacking)
	assert.Empty(t, news)
	c := meta.FindStatusCondition(m.status(nil, noon()).Conditions, api.RolloutDefinitionComplete)
	assert.Equal(t, metav1.ConditionFalse, c.Status)
	news, _ = m.Follow(Look{Schema: everyField()})
	assert.Empty(t, news)
	assert.True(t, meta.IsStatusConditionTrue(m.status(nil, noon()).Conditions, api.RolloutDefinitionComplete))
}

// TestRolloutStatusStaysEqualAtRest shows that a cluster at rest gets no writes.
func TestRolloutStatusStaysEqualAtRest(t *testing.T) {
	m, p := started("r@1.1.0", false), heldAt(&report.Pause{Before: 20, Reached: true}, 10, 0)
	m.Follow(asks(api.ReleaseRolloutSpec{Paused: true}))
	m.track(underUpdate(), &p, noon())
	first := m.status(&p, noon())
	m.wrote(first, noon())
	assert.Equal(t, first, m.status(&p, tick(60).Time))
	assert.EqualValues(t, 20, *first.Current.PausedBefore)
}

func TestStatusWritesAreRateLimited(t *testing.T) {
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
		"reports a pause at once":                               {with(func(s *api.ReleaseRolloutStatus) { s.Conditions = nil }), 0},
		"reports a preflight at once":                           {with(func(s *api.ReleaseRolloutStatus) { s.Preflight = &api.Preflight{} }), 0},
		"reports a completed update at once":                    {with(func(s *api.ReleaseRolloutStatus) { s.Current, s.History = nil, []api.CompletedRollout{{To: "1.1.0"}} }), 0},
		"reports runlevels after a short interval":              {with(func(s *api.ReleaseRolloutStatus) { s.Current = &api.CurrentRollout{} }), writeInterval},
		"removes an estimate after a short interval":            {with(func(s *api.ReleaseRolloutStatus) { s.Estimate = nil }), writeInterval},
		"reports a changed estimate after the longest interval": {with(func(s *api.ReleaseRolloutStatus) { s.Estimate = &api.RolloutEstimate{Rollouts: 2} }), estimateInterval},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, pace(base, test.next)) })
	}
}

// TestStatusStaysValidWhenTheClockIsSetBack completes an update before its start time. The definition of ReleaseRollout rejects such an
// entry, and with it every status as long as the history contains it.
func TestStatusStaysValidWhenTheClockIsSetBack(t *testing.T) {
	m := started("r@1.1.0", false)
	p := heldAt(nil, 0)
	m.track(underUpdate(), &p, noon())
	p = heldAt(nil, 10)
	m.track(underUpdate(), &p, noon().Add(-time.Hour))
	require.Len(t, m.history, 1)
	entry := m.history[0]
	assert.False(t, entry.CompletedAt.Before(&entry.StartedAt))
	assert.GreaterOrEqual(t, entry.Runlevels[0].Took.Duration, time.Duration(0))
}

// puts counts the writes of a ReleaseRollout.
type puts struct {
	count int
	err   error
	// rollout is the object of the last watch event.
	rollout *api.ReleaseRollout
}

func (p *puts) Look() Look {
	return Look{Schema: everyField(), Served: true, Rollout: p.rollout}
}

func (p *puts) Put(_ context.Context, status api.ReleaseRolloutStatus) error {
	p.count++
	if p.err == nil {
		p.rollout = &api.ReleaseRollout{Status: status}
	}
	return p.err
}

// TestDeletedReleaseRolloutIsRewritten deletes the ReleaseRollout. It is written again once, without another change, and only if it has
// content.
func TestDeletedReleaseRolloutIsRewritten(t *testing.T) {
	clk, control := testingclock.NewFakeClock(noon()), &puts{}
	k := New(clk, control)
	write := k.Step(logr.Discard(), func() *report.Progress { return nil })
	assert.Equal(t, background.Next{}, write(t.Context()))
	assert.Zero(t, control.count, "nothing is written without a report or a pause")

	k.history = []api.CompletedRollout{{To: "1.1.0"}}
	for deletions := range 3 {
		assert.Equal(t, background.Next{}, write(t.Context()))
		assert.Equal(t, deletions+1, control.count)
		require.NotNil(t, control.rollout)
		assert.Len(t, control.rollout.Status.History, 1)
		assert.Equal(t, background.Next{}, write(t.Context()))
		assert.Equal(t, deletions+1, control.count, "no write while the object exists")
		control.rollout = nil
	}
}

func TestFailedReleaseRolloutIsRetriedLater(t *testing.T) {
	clk, control := testingclock.NewFakeClock(noon()), &puts{err: errors.New("refused"), rollout: &api.ReleaseRollout{}}
	k := New(clk, control)
	write := k.Step(logr.Discard(), func() *report.Progress { return nil })
	assert.Equal(t, writeRetry, write(t.Context()).After)
	clk.Step(time.Second)
	assert.Equal(t, writeRetry-time.Second, write(t.Context()).After, "another event has woken it")
	assert.Equal(t, 1, control.count)
	clk.Step(writeRetry)
	write(t.Context())
	assert.Equal(t, 2, control.count)
}

// estimated returns the control and the progress of an update that will take 14 to 30 minutes, according to an earlier one.
func estimated(t *testing.T, problems ...report.Problem) (*Control, *report.Progress) {
	t.Helper()
	m := started("r@1.1.0", false)
	took := metav1.Duration{Duration: 10 * time.Minute}
	m.history = []api.CompletedRollout{{To: "1.0.0", Runlevels: []api.RunlevelDuration{{Runlevel: 10, Manifests: 10, Took: took}, {Runlevel: 20, Manifests: 10, Took: took}}}}
	p := heldAt(nil, 0, 0)
	p.Problems = problems
	m.track(underUpdate(), &p, noon())
	return m, &p
}

func TestEstimateIsNeverInThePast(t *testing.T) {
	m, p := estimated(t)
	at := func(minutes int) (*api.RolloutEstimate, *report.Estimate, time.Duration) {
		m.clock.(*testingclock.FakeClock).SetTime(tick(minutes).Time)
		next, _, _, again := m.due(p, tick(minutes).Time)
		return next.Estimate, m.Estimated(p).Estimate, again
	}
	written, shown, again := at(0)
	assert.Equal(t, tick(14).Time, written.EarliestCompletion.Time)
	assert.Equal(t, written.RemainingHigh.Duration, shown.High, "one figure everywhere")
	assert.Equal(t, 14*time.Minute, again)

	written, shown, again = at(20)
	assert.Nil(t, written.EarliestCompletion)
	assert.Zero(t, written.RemainingLow.Duration)
	assert.Equal(t, tick(30).Time, written.LatestCompletion.Time)
	assert.Equal(t, written.RemainingHigh.Duration, shown.High)
	assert.Zero(t, shown.Low)
	assert.Zero(t, shown.Earliest)
	assert.Equal(t, 10*time.Minute, again)

	written, shown, again = at(30)
	assert.Nil(t, written, "without progress until the latest completion, the estimate was wrong")
	assert.Nil(t, shown)
	assert.Zero(t, again)

	m.track(underUpdate(), p, tick(31).Time)
	written, shown, _ = at(31)
	assert.True(t, written.LatestCompletion.After(tick(31).Time), "the next progress results in another estimate")
	assert.Equal(t, written.LatestCompletion.Time, shown.Latest)
}

func TestFailingRolloutHasNoEstimate(t *testing.T) {
	unavailable := cluster.OperatorProblem("dns", gate.None, api.ReasonClusterOperatorNotAvailable, "Cluster operator dns is not available", -1)
	unavailable.Since = noon().Add(-4 * time.Second)
	m, p := estimated(t, unavailable)
	require.NotNil(t, p.Estimate, "Failing still has patience")
	next, _, _, again := m.due(p, noon())
	assert.NotNil(t, next.Estimate)
	assert.Equal(t, 6*time.Second, again, "then Failing loses patience")

	later := noon().Add(6 * time.Second)
	m.clock.(*testingclock.FakeClock).SetTime(later)
	assert.Nil(t, m.Estimated(p).Estimate)
	next, _, _, _ = m.due(p, later)
	assert.Nil(t, next.Estimate)
	m.track(underUpdate(), p, later)
	assert.Nil(t, p.Estimate)

	p.Problems = nil
	m.track(underUpdate(), p, later)
	assert.NotNil(t, p.Estimate)
}
