package updates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/control"
	"github.com/cluster-version/cvo/pkg/clusterversion/history"
	"github.com/cluster-version/cvo/pkg/update/firing"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
	"github.com/cluster-version/cvo/pkg/update/risk"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

// Short names for fixtures.
var (
	now       = cluster.Now()
	imageOf   = cluster.Image
	completed = cluster.Completed
	clusterAt = cluster.At
	wants     = cluster.Wants
	said      = cluster.Condition
)

// everyField returns a definition that has every field.
func everyField() control.Schema {
	return control.Schema{Mode: true, AcceptRisks: true, ConditionalUpdateRisks: true, RiskNames: true, RiskConditions: true}
}

const clusterUUID = "5f0c1d3e-2b4a-4c6d-8e9f-0a1b2c3d4e5f"

// asking returns a cluster at 1.0.0 with every field that a request for updates needs.
func asking() *configv1.ClusterVersion {
	cv := clusterAt(completed("1.0.0"))
	cv.Spec = configv1.ClusterVersionSpec{Channel: "stable", Upstream: "https://example.com/graph", ClusterID: clusterUUID}
	return cv
}

func TestQueryGoesToTheConfiguredService(t *testing.T) {
	const multi = configv1.ClusterVersionArchitectureMulti
	plain := updategraph.Query{Service: "https://example.com/graph", Architecture: runtime.GOARCH, Channel: "stable", ClusterID: clusterUUID, Version: "1.0.0"}
	with := func(change func(q *updategraph.Query)) updategraph.Query {
		q := plain
		change(&q)
		return q
	}
	for _, tt := range []struct {
		name       string
		edit       func(cv *configv1.ClusterVersion)
		configured Options
		want       updategraph.Query
		// problem is the reason and message that prevent the request.
		problem string
	}{
		{name: "queries the upstream", want: plain},
		{name: "prefers the upstream to the default", configured: Options{Default: "https://default"}, want: plain},
		{name: "prefers the configured service to the upstream", configured: Options{Service: "https://configured", Default: "https://default"}, want: with(func(q *updategraph.Query) { q.Service = "https://configured" })},
		{
			name: "queries the default without an upstream", configured: Options{Default: "https://default"},
			edit: func(cv *configv1.ClusterVersion) { cv.Spec.Upstream = "" }, want: with(func(q *updategraph.Query) { q.Service = "https://default" }),
		},
		{name: "queries without a cluster ID", edit: func(cv *configv1.ClusterVersion) { cv.Spec.ClusterID = "" }, want: with(func(q *updategraph.Query) { q.ClusterID = "" })},
		{
			name: "queries for a migration to several architectures", edit: func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Architecture: multi}) },
			want: with(func(q *updategraph.Query) { q.Architecture, q.Migrate = "multi", true }),
		},
		{
			name: "queries for several architectures after the migration",
			edit: func(cv *configv1.ClusterVersion) {
				cv.Status.Desired.Architecture = multi
				wants(cv, configv1.Update{Architecture: multi})
			},
			want: with(func(q *updategraph.Query) { q.Architecture = "multi" }),
		},
		{name: "reports a missing service", edit: func(cv *configv1.ClusterVersion) { cv.Spec.Upstream = "" }, problem: "NoUpstream|No update service has been configured. Set spec.upstream to the URL of one."},
		{
			name: "does not replace an invalid upstream", configured: Options{Default: "https://default"}, edit: func(cv *configv1.ClusterVersion) { cv.Spec.Upstream = "http://[" },
			problem: `InvalidURI|failed to parse update service URL: parse "http://[": missing ']' in host`,
		},
		{name: "rejects an invalid cluster ID", edit: func(cv *configv1.ClusterVersion) { cv.Spec.ClusterID = "x" }, problem: `InvalidID|invalid cluster ID: "x" is not a version 4 UUID`},
		{
			name: "needs a version", edit: func(cv *configv1.ClusterVersion) { cv.Status.Desired.Version = "" },
			problem: "NoCurrentVersion|The cluster version does not have a semantic version assigned and cannot calculate valid upgrades.",
		},
		{name: "reports a missing channel before a missing service", edit: func(cv *configv1.ClusterVersion) { cv.Spec.Channel, cv.Spec.Upstream = "", "" }, problem: "NoChannel|The update channel has not been configured."},
		{name: "needs a channel", edit: func(cv *configv1.ClusterVersion) { cv.Spec.Channel = "" }, problem: "NoChannel|The update channel has not been configured."},
		{
			name: "rejects an invalid version", edit: func(cv *configv1.ClusterVersion) { cv.Status.Desired.Version = "x" },
			problem: "InvalidCurrentVersion|The current cluster version is not a valid semantic version and cannot be used to calculate upgrades.",
		},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			cv := asking()
			if tt.edit != nil {
				tt.edit(cv)
			}
			got, problem := questionFor(cv, tt.configured)
			assert.Equal(t, tt.want, got)
			if tt.problem == "" {
				assert.Equal(t, Retrieval{}, problem)
			} else {
				assert.Equal(t, "False|"+tt.problem, string(problem.Status)+"|"+problem.Reason+"|"+problem.Message)
			}
		})
	}
}

// knowing returns a status with available and conditional updates, including risks of the cluster itself.
func knowing() configv1.ClusterVersionStatus {
	own := func(name, reason string) configv1.ConditionalUpdateRisk {
		return configv1.ConditionalUpdateRisk{Name: name, Conditions: []metav1.Condition{{Type: "Applies", Status: "True", Reason: reason}}}
	}
	status := asking().Status
	status.AvailableUpdates = []configv1.Release{{Version: "1.0.3", Image: "c"}, {Version: "1.0.1", Image: "a"}}
	status.ConditionalUpdates = []configv1.ConditionalUpdate{
		{Release: configv1.Release{Version: "1.1.0", Image: "d"}, Risks: []configv1.ConditionalUpdateRisk{own("AdminAck-x", "Gate"), own("Smoke", "Alert:firing")}},
		{Release: configv1.Release{Version: "1.0.3", Image: "c"}, Risks: []configv1.ConditionalUpdateRisk{own("Fire", "NotMatch"), own("Smoke", "Alert:firing")}},
	}
	return status
}

func TestUpdatesAreRestoredFromTheStatus(t *testing.T) {
	restored := restoredUpdates(knowing())
	assert.Equal(t, []configv1.Release{{Version: "1.1.0", Image: "d"}, {Version: "1.0.1", Image: "a"}}, restored.Available, "an update with only this cluster's own risks is unconditional for the service")
	assert.Equal(t, []configv1.ConditionalUpdate{{Release: configv1.Release{Version: "1.0.3", Image: "c"}, Risks: []configv1.ConditionalUpdateRisk{{Name: "Fire"}}}}, restored.Conditional)
}

// fakeService is an update service and an evaluator of risks with answers set by a test, on a fake clock.
type fakeService struct {
	clock     *testingclock.FakePassiveClock
	updates   updategraph.Updates
	err       error
	applies   metav1.ConditionStatus
	alerts    []configv1.ConditionalUpdateRisk
	evaluated []string
	// remembered are the risks in the status when this process started.
	remembered []string
	*Search
	starts map[string]func(context.Context) background.Next
	keys   map[string]string
}

func (f *fakeService) Start(slot, key string, step func(context.Context) background.Next) {
	if f.keys[slot] != key {
		f.keys[slot], f.starts[slot] = key, step
	}
}

func (f *fakeService) Wake(string) {}

func (f *fakeService) Stop() {}

func (f *fakeService) answer(context.Context, updategraph.Query, updategraph.Answer) (updategraph.Answer, error) {
	return updategraph.Answer{Updates: f.updates}, f.err
}

func (f *fakeService) Evaluate(_ context.Context, risks []configv1.ConditionalUpdateRisk) risk.Answers {
	answers := risk.Answers{Applies: map[string]metav1.Condition{}, Next: f.clock.Now().Add(time.Hour)}
	for _, r := range risks {
		f.evaluated = append(f.evaluated, r.Name)
		answers.Applies[r.Name] = metav1.Condition{Type: api.RiskApplies, Status: f.applies, Reason: "Match", Message: "so"}
	}
	return answers
}

func (f *fakeService) Alerts(context.Context) ([]configv1.ConditionalUpdateRisk, error) {
	return f.alerts, nil
}

func (f *fakeService) RememberAlerts(risks []configv1.ConditionalUpdateRisk) {
	for _, r := range risks {
		f.remembered = append(f.remembered, r.Name)
	}
}

func (f *fakeService) AlertsDue() time.Time { return f.clock.Now().Add(time.Second) }

func newFakeService() *fakeService {
	f := &fakeService{clock: testingclock.NewFakePassiveClock(now), applies: metav1.ConditionFalse, starts: map[string]func(context.Context) background.Next{}, keys: map[string]string{}}
	f.updates = updategraph.Updates{
		Current:   configv1.Release{Version: "1.0.0", Image: imageOf("1.0.0"), Channels: []string{"fast", "stable"}},
		Available: []configv1.Release{{Version: "1.1.0", Image: "d"}, {Version: "1.0.1", Image: "a"}},
		Conditional: []configv1.ConditionalUpdate{{Release: configv1.Release{Version: "1.0.3", Image: "c"}, Risks: []configv1.ConditionalUpdateRisk{{
			Name: "Fire", URL: "https://example.com/fire", Message: "It burns.", MatchingRules: []configv1.ClusterCondition{{Type: "Always"}},
		}}}},
	}
	f.Search = New(f.clock, f, func() {}, Options{Ask: f.answer, Risks: f})
	return f
}

// digest returns what the record has when this process ends.
func (f *fakeService) digest() string { return cmp.Or(f.known.Digest(), f.recalled) }

// restarted returns the next process, which reads the record.
func (f *fakeService) restarted() *fakeService {
	next := newFakeService()
	next.Recall(f.digest())
	return next
}

// look looks for updates twice, with the background work in between, and returns the next status.
func (f *fakeService) look(t *testing.T, cv *configv1.ClusterVersion, schema control.Schema, obstacles ...upgradeable.Obstacle) configv1.ClusterVersionStatus {
	t.Helper()
	f.Look(t.Context(), cv, schema.AcceptRisks)
	for _, slot := range []string{background.SlotUpdates, background.SlotRisks} {
		if step := f.starts[slot]; step != nil {
			step(t.Context())
		}
	}
	known := f.Look(t.Context(), cv, schema.AcceptRisks)
	status := *cv.Status.DeepCopy()
	retrieved := known.Report(&status, schema, obstacles, f.clock.Now())
	next := configv1.ClusterOperatorStatusCondition{
		Type: configv1.RetrievedUpdates, Status: retrieved.Status, Reason: retrieved.Reason, Message: retrieved.Message, LastTransitionTime: metav1.NewTime(f.clock.Now()),
	}
	if before := api.FindCondition(status.Conditions, next.Type); before != nil && before.Status == next.Status {
		next.LastTransitionTime = before.LastTransitionTime
	}
	status.Conditions = []configv1.ClusterOperatorStatusCondition{next}
	return status
}

func versions(status configv1.ClusterVersionStatus) (available []string, conditional []string) {
	for _, r := range status.AvailableUpdates {
		available = append(available, r.Version)
	}
	for _, u := range status.ConditionalUpdates {
		c := meta.FindStatusCondition(u.Conditions, api.UpdateRecommended)
		conditional = append(conditional, u.Release.Version+" "+string(c.Status)+" "+c.Reason)
	}
	return available, conditional
}

func TestUpdatesAreReported(t *testing.T) {
	for _, tt := range []struct {
		name   string
		schema control.Schema
		edit   func(f *fakeService, cv *configv1.ClusterVersion)
		// obstacles block updates to other minor versions.
		obstacles              []upgradeable.Obstacle
		available, conditional []string
		risks                  int
	}{
		{name: "lists recommended updates", available: []string{"1.1.0", "1.0.3", "1.0.1"}, conditional: []string{"1.0.3 True NotExposedToRisks"}},
		{
			name: "lists updates with risks that apply", edit: func(f *fakeService, _ *configv1.ClusterVersion) { f.applies = metav1.ConditionTrue },
			available: []string{"1.1.0", "1.0.1"}, conditional: []string{"1.0.3 False Fire"},
		},
		{
			name: "lists updates with unknown risks", edit: func(f *fakeService, _ *configv1.ClusterVersion) { f.applies = metav1.ConditionUnknown },
			available: []string{"1.1.0", "1.0.1"}, conditional: []string{"1.0.3 Unknown EvaluationFailed"},
		},
		{
			name: "recommends updates with accepted risks", schema: everyField(), risks: 1,
			edit: func(f *fakeService, cv *configv1.ClusterVersion) {
				f.applies = metav1.ConditionTrue
				wants(cv, configv1.Update{AcceptRisks: []configv1.AcceptRisk{{Name: "Fire"}}})
			},
			available: []string{"1.1.0", "1.0.3", "1.0.1"}, conditional: []string{"1.0.3 True AllExposedRisksAccepted"},
		},
		{
			name: "blocks every update for alerts and another minor version for obstacles", schema: everyField(), risks: 3,
			edit: func(f *fakeService, _ *configv1.ClusterVersion) {
				f.alerts = []configv1.ConditionalUpdateRisk{{
					Name: "Smoke", URL: "https://example.com/smoke", Message: "It smokes.", MatchingRules: []configv1.ClusterCondition{{Type: "Always"}},
					Conditions: []metav1.Condition{{Type: api.RiskApplies, Status: metav1.ConditionTrue, Reason: "Alert:firing", Message: "It smokes."}},
				}}
			},
			obstacles:   []upgradeable.Obstacle{{Source: upgradeable.SourceAdminAck, Risk: "AdminAck-x", Reason: "AdminAckRequired", Message: "Read it.", URL: "https://example.com/x"}},
			conditional: []string{"1.1.0 False MultipleReasons", "1.0.3 False Smoke", "1.0.1 False Smoke"},
		},
		{
			name: "omits blocked updates if risks cannot be accepted",
			edit: func(f *fakeService, _ *configv1.ClusterVersion) {
				f.alerts = []configv1.ConditionalUpdateRisk{{Name: "Smoke", URL: "https://example.com/smoke", Message: "It smokes."}}
			},
			obstacles: []upgradeable.Obstacle{{Source: upgradeable.SourceAdminAck, Risk: "AdminAck-x", Reason: "AdminAckRequired", Message: "Read it."}},
			available: []string{"1.1.0", "1.0.3", "1.0.1"}, conditional: []string{"1.0.3 True NotExposedToRisks"},
		},
		{
			name: "reports nothing before the obstacles are known", schema: everyField(),
			obstacles: []upgradeable.Obstacle{{Source: upgradeable.SourceAdminAck, Unknown: true, Pending: true}},
		},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			f, cv := newFakeService(), asking()
			if tt.edit != nil {
				tt.edit(f, cv)
			}
			status := f.look(t, cv, tt.schema, tt.obstacles...)
			available, conditional := versions(status)
			assert.Equal(t, tt.available, available)
			assert.Equal(t, tt.conditional, conditional)
			assert.Len(t, status.ConditionalUpdateRisks, tt.risks)
			assert.Equal(t, "True||", said(status, configv1.RetrievedUpdates))
			assert.Equal(t, []string{"fast", "stable"}, f.Look(t.Context(), cv, false).Describing(status)[0].Channels, "the service describes the running release")
			if tt.schema == (control.Schema{}) {
				for _, u := range status.ConditionalUpdates {
					assert.Empty(t, u.RiskNames)
					assert.Empty(t, u.Risks[0].Conditions, "the API server would drop these conditions, and the status would never match")
				}
			}

			f.clock.SetTime(now.Add(time.Hour))
			cv.Status = status
			again := f.look(t, cv, tt.schema, tt.obstacles...)
			assert.True(t, equality.Semantic.DeepEqual(status, again), "unchanged updates are not written again")
		})
	}
}

//threat:does-answer-fails
func TestUpdatesAreKeptDuringAnOutage(t *testing.T) {
	f, cv := newFakeService(), asking()
	refused := &updategraph.Error{Reason: updategraph.ReasonResponseFailed, Err: errors.New("unexpected HTTP status: 503 Service Unavailable")}
	const failure = "False|ResponseFailed|Unable to retrieve available updates: unexpected HTTP status: 503 Service Unavailable"
	cv.Status = f.look(t, cv, control.Schema{})
	known := *cv.Status.DeepCopy()

	f = f.restarted()
	f.err = refused
	restart := f.look(t, cv, control.Schema{})
	assert.Equal(t, failure, said(restart, configv1.RetrievedUpdates))
	assert.Equal(t, known.AvailableUpdates, restart.AvailableUpdates, "updates survive a restart")
	assert.Equal(t, known.ConditionalUpdates, restart.ConditionalUpdates)
	assert.Equal(t, []string{"Fire"}, f.evaluated)

	cv.Status = restart
	f.clock.SetTime(now.Add(23 * time.Hour))
	assert.Len(t, f.look(t, cv, control.Schema{}).AvailableUpdates, 3, "updates are kept for a day")
	f.clock.SetTime(now.Add(25 * time.Hour))
	late := f.look(t, cv, control.Schema{})
	assert.Empty(t, late.AvailableUpdates, "updates are dropped after a day")
	assert.Empty(t, late.ConditionalUpdates)
	assert.Equal(t, failure, said(late, configv1.RetrievedUpdates))
}

// noMetrics is a metrics source that never answers.
type noMetrics struct{}

func (noMetrics) Query(context.Context, string) ([]float64, error) { return nil, risk.ErrUnreachable }

func (noMetrics) Alerts(context.Context) ([]firing.Alert, error) { return nil, risk.ErrUnreachable }

// TestRisksAfterARestartWithoutPrometheus restarts without metrics. No update becomes recommended just because its risks cannot be
// evaluated.
func TestRisksAfterARestartWithoutPrometheus(t *testing.T) {
	prepared := func() *fakeService {
		f := newFakeService()
		f.updates.Conditional[0].Risks[0].MatchingRules = []configv1.ClusterCondition{{Type: "PromQL", PromQL: &configv1.PromQLClusterCondition{PromQL: "fire"}}}
		return f
	}
	f, cv := prepared(), asking()
	f.alerts = []configv1.ConditionalUpdateRisk{{
		Name: "Smoke", URL: "https://example.com/smoke", Message: "It smokes.", MatchingRules: []configv1.ClusterCondition{{Type: "Always"}},
		Conditions: []metav1.Condition{{Type: api.RiskApplies, Status: metav1.ConditionTrue, Reason: "Alert:firing", Message: "It smokes."}},
	}}
	cv.Status = f.look(t, cv, everyField())
	_, conditional := versions(cv.Status)
	require.Equal(t, []string{"1.1.0 False Smoke", "1.0.3 False Smoke", "1.0.1 False Smoke"}, conditional)

	digest := f.digest()
	f = prepared()
	f.Recall(digest)
	f.options.Risks = risk.New(f.clock, noMetrics{}, risk.Options{})
	cv.Status = f.look(t, cv, everyField())
	available, conditional := versions(cv.Status)
	assert.Empty(t, available)
	assert.Equal(t, []string{"1.1.0 False Smoke", "1.0.3 False MultipleReasons", "1.0.1 False Smoke"}, conditional, "the earlier alert still blocks all updates")

	f.clock.SetTime(now.Add(20 * time.Minute))
	cv.Status = f.look(t, cv, everyField())
	available, conditional = versions(cv.Status)
	assert.Equal(t, []string{"1.1.0", "1.0.1"}, available, "an alert expires")
	assert.Equal(t, []string{"1.0.3 Unknown EvaluationFailed"}, conditional, "an unanswered query makes the risk unknown")

	f = newFakeService()
	f.look(t, cv, everyField())
	f.look(t, cv, everyField())
	assert.Equal(t, []string{"Fire"}, f.remembered, "a process restores alerts once")
}

//threat:answer-one-request
func TestUpdatesOfAnotherChannelAreDropped(t *testing.T) {
	f, cv := newFakeService(), asking()
	cv.Status = f.look(t, cv, control.Schema{})
	require.Len(t, cv.Status.AvailableUpdates, 3)
	assert.Equal(t, now, f.Retrieved())

	f.clock.SetTime(now.Add(time.Minute))
	f.err = errors.New("away")
	cv.Spec.Channel = "fast"
	status := f.look(t, cv, control.Schema{})
	assert.Empty(t, status.AvailableUpdates, "updates of one channel are not valid for another")
	assert.Equal(t, "False|Unknown|Unable to retrieve available updates: away", said(status, configv1.RetrievedUpdates))
	assert.Equal(t, now.Add(time.Minute), f.Retrieved())

	cv.Spec.Channel = ""
	assert.Equal(t, "False|NoChannel|The update channel has not been configured.", said(f.look(t, cv, control.Schema{}), configv1.RetrievedUpdates))
	assert.Equal(t, "none", f.keys[background.SlotUpdates], "the update service is no longer queried")

	f.err = nil
	cv.Spec.Channel = "stable"
	assert.Len(t, f.look(t, cv, control.Schema{}).AvailableUpdates, 3)
}

// TestUpdatesOfAnotherQueryAreNotRestored ends a process that lists updates, and starts another one while the service is away.
//
//threat:answer-one-request
func TestUpdatesOfAnotherQueryAreNotRestored(t *testing.T) {
	away := errors.New("away")
	for _, tt := range []struct {
		name string
		// edit changes the cluster and the next process while no operator runs.
		edit func(cv *configv1.ClusterVersion, next *fakeService)
		kept bool
	}{
		{name: "keeps updates of the same query", edit: func(cv *configv1.ClusterVersion, _ *fakeService) { cv.Generation++ }, kept: true},
		{name: "drops updates of another channel", edit: func(cv *configv1.ClusterVersion, _ *fakeService) { cv.Spec.Channel = "fast" }},
		{name: "drops updates of another upstream", edit: func(cv *configv1.ClusterVersion, _ *fakeService) { cv.Spec.Upstream = "https://example.com/other" }},
		{name: "drops updates of another service of the operator", edit: func(_ *configv1.ClusterVersion, next *fakeService) {
			next.options.Service = "https://example.com/other"
		}},
		{
			name: "drops updates of another architecture",
			edit: func(cv *configv1.ClusterVersion, _ *fakeService) {
				cv.Status.Desired.Architecture = configv1.ClusterVersionArchitectureMulti
			},
		},
		{
			name: "drops updates of the earlier version after a handover",
			edit: func(cv *configv1.ClusterVersion, _ *fakeService) {
				cv.Status.Desired = configv1.Release{Version: "1.1.0", Image: "d"}
			},
		},
		{name: "drops updates without a record", edit: func(_ *configv1.ClusterVersion, next *fakeService) { next.Recall("") }},
		{
			name: "drops updates if the process ended between the record of a new answer and the status",
			edit: func(cv *configv1.ClusterVersion, next *fakeService) {
				cv.Spec.Channel = "fast"
				other := newFakeService()
				other.updates.Available = other.updates.Available[:1]
				other.look(t, cv, control.Schema{})
				next.Recall(other.digest())
			},
		},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			f, cv := newFakeService(), asking()
			cv.Status = f.look(t, cv, everyField())
			next := f.restarted()
			next.err = away
			tt.edit(cv, next)
			next.clock.SetTime(now.Add(23 * time.Hour))
			status := next.look(t, cv, everyField())
			assert.Equal(t, "False|Unknown|Unable to retrieve available updates: away", said(status, configv1.RetrievedUpdates))
			if tt.kept {
				assert.Equal(t, cv.Status.AvailableUpdates, status.AvailableUpdates)
				assert.Equal(t, cv.Status.ConditionalUpdates, status.ConditionalUpdates)
				return
			}
			assert.Empty(t, status.AvailableUpdates)
			assert.Empty(t, status.ConditionalUpdates)
			assert.Empty(t, next.evaluated)

			next.err = nil
			assert.Len(t, next.look(t, cv, everyField()).AvailableUpdates, 3, "the service answers again")
		})
	}
}

// TestDigestSurvivesTheStatus restores the updates from the status after each process, with risks that the service does not know.
func TestDigestSurvivesTheStatus(t *testing.T) {
	f, cv := newFakeService(), asking()
	f.updates.Conditional = append(f.updates.Conditional, configv1.ConditionalUpdate{Release: configv1.Release{Version: "1.2.0", Image: "e"}, Risks: []configv1.ConditionalUpdateRisk{
		{Name: "Water", URL: "https://example.com/water", Message: strings.Repeat("It leaks. ", 10_000), MatchingRules: []configv1.ClusterCondition{
			{Type: "PromQL", PromQL: &configv1.PromQLClusterCondition{PromQL: "leak"}}, {Type: "Always"},
		}},
		{Name: "Air", URL: "https://example.com/air", Message: "It blows.", MatchingRules: []configv1.ClusterCondition{{Type: "Always"}}},
	}})
	ack := upgradeable.Obstacle{Source: upgradeable.SourceAdminAck, Risk: "AdminAck-x", Reason: "AdminAckRequired", Message: "Read it.", URL: "https://example.com/x"}
	for _, schema := range []control.Schema{everyField(), {}, everyField()} {
		f.alerts = []configv1.ConditionalUpdateRisk{{
			Name: "Smoke", URL: "https://example.com/smoke", Message: "It smokes.", MatchingRules: []configv1.ClusterCondition{{Type: "Always"}},
			Conditions: []metav1.Condition{{Type: api.RiskApplies, Status: metav1.ConditionTrue, Reason: "Alert:firing", Message: "It smokes."}},
		}}
		cv.Status = f.look(t, cv, schema, ack)
		require.Len(t, restoredUpdates(cv.Status).Conditional, 2)
		before := f.digest()
		require.NotEmpty(t, before)
		f = f.restarted()
		f.err = errors.New("away")
		cv.Status = f.look(t, cv, schema, ack)
		assert.Equal(t, before, f.known.Digest())
	}
}

//threat:answer-one-request
func TestLateAnswerIsDropped(t *testing.T) {
	f, cv := newFakeService(), asking()
	f.Look(t.Context(), cv, false)
	first, _ := questionFor(cv, f.options)
	cv.Spec.Channel = "fast"
	f.Look(t.Context(), cv, false)
	f.askService(logr.Discard(), first)(t.Context())
	f.starts[background.SlotRisks](t.Context())
	known := f.Look(t.Context(), cv, false)
	assert.False(t, known.evaluated, "an answer to another query is dropped")
	assert.Empty(t, known.retrieved.Status)
}

// slowMetrics is a metrics source that ends each query with an error shortly before its time limit, and counts the queries.
type slowMetrics struct{ queries *atomic.Int64 }

func (m slowMetrics) Query(ctx context.Context, _ string) ([]float64, error) {
	m.queries.Add(1)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(54 * time.Second):
		return nil, errors.New("the query takes too long")
	}
}

func (slowMetrics) Alerts(context.Context) ([]firing.Alert, error) { return nil, nil }

// TestEvaluationEndsWithItsQuery changes the query while the risks of a long answer are evaluated.
//
//threat:query-overloads
func TestEvaluationEndsWithItsQuery(t *testing.T) {
	search := func(t *testing.T) (*Search, *atomic.Int64) {
		metrics := slowMetrics{new(atomic.Int64)}
		risky := configv1.ConditionalUpdate{Release: configv1.Release{Version: "1.0.3", Image: "c"}}
		for i := range 100 {
			risky.Risks = append(risky.Risks, configv1.ConditionalUpdateRisk{
				Name: fmt.Sprint("Risk", i), URL: "https://example.com/risk", Message: "It is bad.",
				MatchingRules: []configv1.ClusterCondition{{Type: "PromQL", PromQL: &configv1.PromQLClusterCondition{PromQL: fmt.Sprint("query", i)}}},
			})
		}
		ctx, stop := context.WithCancel(t.Context())
		slots := background.NewSlots(ctx)
		t.Cleanup(func() {
			stop()
			slots.Wait()
		})
		return New(clock.RealClock{}, slots, func() {}, Options{
			Ask: func(_ context.Context, q updategraph.Query, _ updategraph.Answer) (updategraph.Answer, error) {
				if q.Channel == "fast" {
					return updategraph.Answer{Updates: updategraph.Updates{Available: []configv1.Release{{Version: "1.0.9", Image: "z"}}}}, nil
				}
				return updategraph.Answer{Updates: updategraph.Updates{
					Available: []configv1.Release{{Version: "1.0.1", Image: "a"}}, Conditional: []configv1.ConditionalUpdate{risky},
				}}, nil
			},
			Risks: risk.New(clock.RealClock{}, metrics, risk.Options{}),
		}), metrics.queries
	}
	shown := func(t *testing.T, s *Search, cv *configv1.ClusterVersion) []string {
		status := *cv.Status.DeepCopy()
		s.Look(t.Context(), cv, false).Report(&status, control.Schema{}, nil, time.Now())
		available, _ := versions(status)
		return available
	}
	for _, tt := range []struct {
		name string
		edit func(spec *configv1.ClusterVersionSpec)
		want []string
	}{
		{"another channel", func(spec *configv1.ClusterVersionSpec) { spec.Channel = "fast" }, []string{"1.0.9"}},
		{"no channel and no service", func(spec *configv1.ClusterVersionSpec) { spec.Channel, spec.Upstream = "", "" }, nil},
	} {
		t.Run("it ends for "+tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, queries := search(t)
				cv := asking()
				s.Look(t.Context(), cv, false)
				time.Sleep(time.Second)
				before := queries.Load()
				require.NotZero(t, before)
				tt.edit(&cv.Spec)
				s.Look(t.Context(), cv, false)
				time.Sleep(time.Second)
				assert.Equal(t, tt.want, shown(t, s, cv))
				time.Sleep(time.Hour)
				assert.Equal(t, before, queries.Load(), "the rules of the abandoned query are still evaluated")
			})
		})
	}
	t.Run("it does not defer the list of updates", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, _ := search(t)
			cv := asking()
			s.Look(t.Context(), cv, false)
			time.Sleep(3 * time.Minute)
			assert.Equal(t, []string{"1.0.1"}, shown(t, s, cv), "an update without risks")
		})
	})
}

func TestOmittedUpdatesAreReported(t *testing.T) {
	f := newFakeService()
	f.updates.LeftOut = []string{"1.0.9: no image", "1.0.8: no image"}
	status := f.look(t, asking(), control.Schema{})
	assert.Equal(t, "True||Omitted updates of the update service: 1.0.9: no image; 1.0.8: no image.", said(status, configv1.RetrievedUpdates))
}

func TestRisksAreEvaluatedAgainInTime(t *testing.T) {
	f, cv := newFakeService(), asking()
	f.look(t, cv, control.Schema{})
	assert.Equal(t, background.Next{After: time.Hour}, f.starts[background.SlotRisks](t.Context()), "the evaluator sets the time")
	f.look(t, cv, everyField())
	assert.Equal(t, background.Next{After: risksPause}, f.starts[background.SlotRisks](t.Context()), "alerts are due after the minimum pause")
	assert.Equal(t, background.Next{After: defaultInterval}, f.starts[background.SlotUpdates](t.Context()))
	f.updates = updategraph.Updates{}
	f.look(t, cv, everyField())
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, background.Next{Done: true}, f.starts[background.SlotRisks](canceled))
	assert.Equal(t, background.Next{Done: true}, f.starts[background.SlotUpdates](canceled))
}

func TestAcceptedRisksAreRecorded(t *testing.T) {
	update := func(applies ...metav1.ConditionStatus) []configv1.ConditionalUpdate {
		u := configv1.ConditionalUpdate{Release: configv1.Release{Image: "a"}}
		for i, status := range applies {
			u.Risks = append(u.Risks, configv1.ConditionalUpdateRisk{Name: []string{"Fire", "Air"}[i], Conditions: []metav1.Condition{{Type: api.RiskApplies, Status: status}}})
		}
		return []configv1.ConditionalUpdate{u}
	}
	both := []string{"Fire", "Air"}
	for _, tt := range []struct {
		name, image, before string
		updates             []configv1.ConditionalUpdate
		accepted            []string
		want                string
	}{
		{name: "records accepted risks", image: "a", updates: update("True", "Unknown"), accepted: both, want: "The target release a is exposed to the risks [Air,Fire] which were all explicitly accepted by the cluster administrator."},
		{name: "appends them to other risks", image: "a", before: "forced", updates: update("True"), accepted: both, want: "forced; It is exposed to the risks [Fire] which were all explicitly accepted by the cluster administrator."},
		{name: "omits risks that do not apply", image: "a", updates: update("False"), accepted: both},
		{name: "records nothing if one risk was not accepted", image: "a", updates: update("True", "True"), accepted: []string{"Fire"}},
		{name: "records nothing for another release", image: "b", updates: update("True"), accepted: both},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			entry := history.Release{Image: tt.image, AcceptedRisks: tt.before}
			Known{accepted: tt.accepted}.RecordAccepted(&entry, tt.updates)
			assert.Equal(t, tt.want, entry.AcceptedRisks)
		})
	}
}

// TestUpdatesAreReadOverHTTP queries a real HTTP service as the operator does, and notices a change.
func TestUpdatesAreReadOverHTTP(t *testing.T) {
	service := fixture.StartUpdateService(t, fixture.UpdateGraph(configv1.Release{Version: "1.0.0", Image: imageOf("1.0.0")}, configv1.Release{Version: "1.0.1", Image: "a"}))
	f, cv := newFakeService(), asking()
	cv.Spec.Upstream = configv1.URL(service.URL())
	web := &updategraph.Client{HTTP: http.DefaultClient}
	f.options.Ask = web.Ask
	for i, want := range []int{1, 1, 0} {
		if i == 2 {
			service.Set(t, fixture.UpdateGraph(configv1.Release{Version: "1.0.0", Image: imageOf("1.0.0")}))
		}
		cv.Status = f.look(t, cv, control.Schema{})
		assert.Len(t, cv.Status.AvailableUpdates, want)
	}
	require.Len(t, service.Questions(), 3)
	assert.True(t, service.Questions()[1].Known)
}

// TestRepeatedFailureKeepsItsMessage queries an update service that resets each connection. The message stays the same.
func TestRepeatedFailureKeepsItsMessage(t *testing.T) {
	report := func(port int) Retrieval {
		m := results{}
		m.answered(m.query, m.answer, fmt.Errorf("read tcp 10.0.0.1:%d->10.0.0.2:443: connection reset by peer", port), now)
		return m.known.retrieved
	}
	assert.Contains(t, report(1).Message, "connection reset")
	assert.Equal(t, report(1), report(2))
}
