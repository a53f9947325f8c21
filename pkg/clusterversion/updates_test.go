package clusterversion

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/risk"
	"github.com/cluster-version/cvo/pkg/updategraph"
	"github.com/cluster-version/cvo/pkg/upgradeable"
	"github.com/cluster-version/cvo/test/fixture"
)

const clusterUUID = "5f0c1d3e-2b4a-4c6d-8e9f-0a1b2c3d4e5f"

// asking is a cluster at 1.0.0 that has all it takes to ask for updates.
func asking() *configv1.ClusterVersion {
	cv := clusterAt(completed("1.0.0"))
	cv.Spec = configv1.ClusterVersionSpec{Channel: "stable", Upstream: "https://example.com/graph", ClusterID: clusterUUID}
	return cv
}

func TestUpdatesQuestion(t *testing.T) {
	const multi = configv1.ClusterVersionArchitectureMulti
	plain := updategraph.Query{Service: "https://example.com/graph", Architecture: runtime.GOARCH, Channel: "stable", ClusterID: clusterUUID, Version: "1.0.0"}
	with := func(change func(q *updategraph.Query)) updategraph.Query {
		q := plain
		change(&q)
		return q
	}
	for _, tt := range []struct {
		name string
		edit func(cv *configv1.ClusterVersion)
		told Updates
		want updategraph.Query
		// problem is the reason and message why nothing is asked.
		problem string
	}{
		{name: "asks the upstream", want: plain},
		{name: "asks the upstream in place of a default", told: Updates{Default: "https://default"}, want: plain},
		{name: "asks what it was told in place of the upstream", told: Updates{Service: "https://told", Default: "https://default"}, want: with(func(q *updategraph.Query) { q.Service = "https://told" })},
		{
			name: "asks the default where there is no upstream", told: Updates{Default: "https://default"},
			edit: func(cv *configv1.ClusterVersion) { cv.Spec.Upstream = "" }, want: with(func(q *updategraph.Query) { q.Service = "https://default" }),
		},
		{name: "asks without a cluster ID", edit: func(cv *configv1.ClusterVersion) { cv.Spec.ClusterID = "" }, want: with(func(q *updategraph.Query) { q.ClusterID = "" })},
		{
			name: "asks for the way to many architectures", edit: func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Architecture: multi}) },
			want: with(func(q *updategraph.Query) { q.Architecture, q.Migrate = "multi", true }),
		},
		{
			name: "asks for many architectures once it has them",
			edit: func(cv *configv1.ClusterVersion) {
				cv.Status.Desired.Architecture = multi
				wants(cv, configv1.Update{Architecture: multi})
			},
			want: with(func(q *updategraph.Query) { q.Architecture = "multi" }),
		},
		{name: "misses a service", edit: func(cv *configv1.ClusterVersion) { cv.Spec.Upstream = "" }, problem: "NoUpstream|No update service has been configured. Set spec.upstream to the URL of one."},
		{
			name: "does not replace an upstream that is wrong", told: Updates{Default: "https://default"}, edit: func(cv *configv1.ClusterVersion) { cv.Spec.Upstream = "http://[" },
			problem: `InvalidURI|failed to parse update service URL: parse "http://[": missing ']' in host`,
		},
		{name: "refuses a cluster ID that is none", edit: func(cv *configv1.ClusterVersion) { cv.Spec.ClusterID = "x" }, problem: `InvalidID|invalid cluster ID: "x" is no UUID of version 4`},
		{
			name: "misses a version", edit: func(cv *configv1.ClusterVersion) { cv.Status.Desired.Version = "" },
			problem: "NoCurrentVersion|The cluster version does not have a semantic version assigned and cannot calculate valid upgrades.",
		},
		{name: "misses a channel more than a service", edit: func(cv *configv1.ClusterVersion) { cv.Spec.Channel, cv.Spec.Upstream = "", "" }, problem: "NoChannel|The update channel has not been configured."},
		{name: "misses a channel", edit: func(cv *configv1.ClusterVersion) { cv.Spec.Channel = "" }, problem: "NoChannel|The update channel has not been configured."},
		{
			name: "refuses a version that is none", edit: func(cv *configv1.ClusterVersion) { cv.Status.Desired.Version = "x" },
			problem: "InvalidCurrentVersion|The current cluster version is not a valid semantic version and cannot be used to calculate upgrades.",
		},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			cv := asking()
			if tt.edit != nil {
				tt.edit(cv)
			}
			got, problem := questionFor(cv, tt.told)
			assert.Equal(t, tt.want, got)
			if tt.problem == "" {
				assert.Equal(t, retrieval{}, problem)
			} else {
				assert.Equal(t, "False|"+tt.problem, string(problem.status)+"|"+problem.reason+"|"+problem.message)
			}
		})
	}
}

// knowing is a status with an available and a conditional update, and with risks of the cluster itself among them.
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

func TestRestoredUpdates(t *testing.T) {
	restored := restoredUpdates(knowing())
	assert.Equal(t, []configv1.Release{{Version: "1.1.0", Image: "d"}, {Version: "1.0.1", Image: "a"}}, restored.Available, "an update whose risks are all the cluster's own is one for everybody else")
	assert.Equal(t, []configv1.ConditionalUpdate{{Release: configv1.Release{Version: "1.0.3", Image: "c"}, Risks: []configv1.ConditionalUpdateRisk{{Name: "Fire"}}}}, restored.Conditional)
}

// teller is a service and a source of risks that tell what a test wants, on a clock that stands.
type teller struct {
	clock     *testingclock.FakePassiveClock
	updates   updategraph.Updates
	err       error
	applies   metav1.ConditionStatus
	alerts    []configv1.ConditionalUpdateRisk
	evaluated []string
	// remembered are the risks that status told of when this process started.
	remembered []string
	*Reconciler
	starts map[string]func(context.Context) Next
	keys   map[string]string
}

func (f *teller) Start(slot, key string, step func(context.Context) Next) {
	if f.keys[slot] != key {
		f.keys[slot], f.starts[slot] = key, step
	}
}

func (f *teller) Wake(string) {}

func (f *teller) ask(context.Context, updategraph.Query, updategraph.Answer) (updategraph.Answer, error) {
	return updategraph.Answer{Updates: f.updates}, f.err
}

func (f *teller) Evaluate(_ context.Context, risks []configv1.ConditionalUpdateRisk) risk.Answers {
	answers := risk.Answers{Applies: map[string]metav1.Condition{}, Next: f.clock.Now().Add(time.Hour)}
	for _, r := range risks {
		f.evaluated = append(f.evaluated, r.Name)
		answers.Applies[r.Name] = metav1.Condition{Type: risk.Applies, Status: f.applies, Reason: "Match", Message: "so"}
	}
	return answers
}

func (f *teller) Alerts(context.Context) ([]configv1.ConditionalUpdateRisk, error) {
	return f.alerts, nil
}

func (f *teller) RememberAlerts(risks []configv1.ConditionalUpdateRisk) {
	for _, r := range risks {
		f.remembered = append(f.remembered, r.Name)
	}
}

func (f *teller) AlertsDue() time.Time { return f.clock.Now().Add(time.Second) }

func newTeller() *teller {
	f := &teller{clock: testingclock.NewFakePassiveClock(now), applies: metav1.ConditionFalse, starts: map[string]func(context.Context) Next{}, keys: map[string]string{}}
	f.updates = updategraph.Updates{
		Current:   configv1.Release{Version: "1.0.0", Image: imageOf("1.0.0"), Channels: []string{"fast", "stable"}},
		Available: []configv1.Release{{Version: "1.1.0", Image: "d"}, {Version: "1.0.1", Image: "a"}},
		Conditional: []configv1.ConditionalUpdate{{Release: configv1.Release{Version: "1.0.3", Image: "c"}, Risks: []configv1.ConditionalUpdateRisk{{
			Name: "Fire", URL: "https://example.com/fire", Message: "It burns.", MatchingRules: []configv1.ClusterCondition{{Type: "Always"}},
		}}}},
	}
	f.Reconciler = New(f.clock, nil, nil, f, Stages{}, nil, nil, func() {}, Options{Updates: Updates{Ask: f.ask, Risks: f}})
	return f
}

// look is one reconcile as far as updates are concerned, with what the background finds in it; it returns the status.
func (f *teller) look(t *testing.T, cv *configv1.ClusterVersion, schema Schema, obstacles ...upgradeable.Obstacle) configv1.ClusterVersionStatus {
	t.Helper()
	r := &round{original: cv, cv: cv.DeepCopy(), control: control{schema: schema}}
	require.NoError(t, f.lookForUpdates(t.Context(), r))
	for _, slot := range []string{SlotUpdates, SlotRisks} {
		if step := f.starts[slot]; step != nil {
			step(t.Context())
		}
	}
	require.NoError(t, f.lookForUpdates(t.Context(), r))
	a := acceptedRelease("1.0.0")
	a.Payload.Release.Channels = nil
	status, _ := nextStatus(r.cv, observed{accepted: &a, updates: r.updates, control: r.control, obstacles: obstacles, now: f.clock.Now()})
	return status
}

func versions(status configv1.ClusterVersionStatus) (available []string, conditional []string) {
	for _, r := range status.AvailableUpdates {
		available = append(available, r.Version)
	}
	for _, u := range status.ConditionalUpdates {
		c := meta.FindStatusCondition(u.Conditions, risk.Recommended)
		conditional = append(conditional, u.Release.Version+" "+string(c.Status)+" "+c.Reason)
	}
	return available, conditional
}

func TestUpdatesAreTold(t *testing.T) {
	for _, tt := range []struct {
		name   string
		schema Schema
		edit   func(f *teller, cv *configv1.ClusterVersion)
		// obstacles speak against other minor versions
		obstacles              []upgradeable.Obstacle
		available, conditional []string
		risks                  int
	}{
		{name: "tells what is recommended", available: []string{"1.1.0", "1.0.3", "1.0.1"}, conditional: []string{"1.0.3 True NotExposedToRisks"}},
		{
			name: "tells what is not", edit: func(f *teller, _ *configv1.ClusterVersion) { f.applies = metav1.ConditionTrue },
			available: []string{"1.1.0", "1.0.1"}, conditional: []string{"1.0.3 False Fire"},
		},
		{
			name: "tells what is not known", edit: func(f *teller, _ *configv1.ClusterVersion) { f.applies = metav1.ConditionUnknown },
			available: []string{"1.1.0", "1.0.1"}, conditional: []string{"1.0.3 Unknown EvaluationFailed"},
		},
		{
			name: "recommends what is accepted", schema: everyField(), risks: 1,
			edit: func(f *teller, cv *configv1.ClusterVersion) {
				f.applies = metav1.ConditionTrue
				wants(cv, configv1.Update{AcceptRisks: []configv1.AcceptRisk{{Name: "Fire"}}})
			},
			available: []string{"1.1.0", "1.0.3", "1.0.1"}, conditional: []string{"1.0.3 True AllExposedRisksAccepted"},
		},
		{
			name: "has alerts speak against every update, and obstacles against another minor version", schema: everyField(), risks: 3,
			edit: func(f *teller, _ *configv1.ClusterVersion) {
				f.alerts = []configv1.ConditionalUpdateRisk{{
					Name: "Smoke", URL: "https://example.com/smoke", Message: "It smokes.", MatchingRules: []configv1.ClusterCondition{{Type: "Always"}},
					Conditions: []metav1.Condition{{Type: risk.Applies, Status: metav1.ConditionTrue, Reason: "Alert:firing", Message: "It smokes."}},
				}}
			},
			obstacles:   []upgradeable.Obstacle{{Source: upgradeable.SourceAdminAck, Risk: "AdminAck-x", Reason: "AdminAckRequired", Message: "Read it.", URL: "https://example.com/x"}},
			conditional: []string{"1.1.0 False MultipleReasons", "1.0.3 False Smoke", "1.0.1 False Smoke"},
		},
		{
			name: "does not have them as risks where those cannot be accepted",
			edit: func(f *teller, _ *configv1.ClusterVersion) {
				f.alerts = []configv1.ConditionalUpdateRisk{{Name: "Smoke", URL: "https://example.com/smoke", Message: "It smokes."}}
			},
			obstacles: []upgradeable.Obstacle{{Source: upgradeable.SourceAdminAck, Risk: "AdminAck-x", Reason: "AdminAckRequired", Message: "Read it."}},
			available: []string{"1.1.0", "1.0.3", "1.0.1"}, conditional: []string{"1.0.3 True NotExposedToRisks"},
		},
		{
			name: "says nothing before it is known what stands in the way", schema: everyField(),
			obstacles: []upgradeable.Obstacle{{Source: upgradeable.SourceAdminAck, Unknown: true, Pending: true}},
		},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			f, cv := newTeller(), asking()
			if tt.edit != nil {
				tt.edit(f, cv)
			}
			status := f.look(t, cv, tt.schema, tt.obstacles...)
			available, conditional := versions(status)
			assert.Equal(t, tt.available, available)
			assert.Equal(t, tt.conditional, conditional)
			assert.Len(t, status.ConditionalUpdateRisks, tt.risks)
			assert.Equal(t, "True||", said(status, configv1.RetrievedUpdates))
			assert.Equal(t, []string{"fast", "stable"}, status.Desired.Channels, "the service knows the release's channels")
			if tt.schema == (Schema{}) {
				for _, u := range status.ConditionalUpdates {
					assert.Empty(t, u.RiskNames)
					assert.Empty(t, u.Risks[0].Conditions, "the API server would drop them, and every status would differ")
				}
			}

			f.clock.SetTime(now.Add(time.Hour))
			cv.Status = status
			again := f.look(t, cv, tt.schema, tt.obstacles...)
			assert.True(t, equality.Semantic.DeepEqual(status, again), "what has not changed is not written again")
		})
	}
}

func TestUpdatesAreKept(t *testing.T) {
	f, cv := newTeller(), asking()
	refused := &updategraph.Error{Reason: updategraph.ReasonResponseFailed, Err: errors.New("unexpected HTTP status: 503 Service Unavailable")}
	const told = "False|ResponseFailed|Unable to retrieve available updates: unexpected HTTP status: 503 Service Unavailable"
	cv.Status = f.look(t, cv, Schema{})
	known := *cv.Status.DeepCopy()

	f = newTeller()
	f.err = refused
	restart := f.look(t, cv, Schema{})
	assert.Equal(t, told, said(restart, configv1.RetrievedUpdates))
	assert.Equal(t, known.AvailableUpdates, restart.AvailableUpdates, "kept over a restart")
	assert.Equal(t, known.ConditionalUpdates, restart.ConditionalUpdates)
	assert.Equal(t, []string{"Fire"}, f.evaluated)

	cv.Status = restart
	f.clock.SetTime(now.Add(23 * time.Hour))
	assert.Len(t, f.look(t, cv, Schema{}).AvailableUpdates, 3, "kept for a day")
	f.clock.SetTime(now.Add(25 * time.Hour))
	late := f.look(t, cv, Schema{})
	assert.Empty(t, late.AvailableUpdates, "but not for ever")
	assert.Empty(t, late.ConditionalUpdates)
	assert.Equal(t, told, said(late, configv1.RetrievedUpdates))
}

// noMetrics is a source that answers nobody.
type noMetrics struct{}

func (noMetrics) Query(context.Context, string) ([]float64, error) { return nil, risk.ErrUnreachable }

func (noMetrics) Alerts(context.Context) ([]promv1.Alert, error) { return nil, risk.ErrUnreachable }

// TestRisksAfterARestartWithoutPrometheus: nothing becomes recommended because nobody can tell what speaks against it.
func TestRisksAfterARestartWithoutPrometheus(t *testing.T) {
	prepared := func() *teller {
		f := newTeller()
		f.updates.Conditional[0].Risks[0].MatchingRules = []configv1.ClusterCondition{{Type: "PromQL", PromQL: &configv1.PromQLClusterCondition{PromQL: "fire"}}}
		return f
	}
	f, cv := prepared(), asking()
	f.alerts = []configv1.ConditionalUpdateRisk{{
		Name: "Smoke", URL: "https://example.com/smoke", Message: "It smokes.", MatchingRules: []configv1.ClusterCondition{{Type: "Always"}},
		Conditions: []metav1.Condition{{Type: risk.Applies, Status: metav1.ConditionTrue, Reason: "Alert:firing", Message: "It smokes."}},
	}}
	cv.Status = f.look(t, cv, everyField())
	_, conditional := versions(cv.Status)
	require.Equal(t, []string{"1.1.0 False Smoke", "1.0.3 False Smoke", "1.0.1 False Smoke"}, conditional)

	f = prepared()
	f.options.Updates.Risks = risk.New(f.clock, noMetrics{}, risk.Options{})
	cv.Status = f.look(t, cv, everyField())
	available, conditional := versions(cv.Status)
	assert.Empty(t, available)
	assert.Equal(t, []string{"1.1.0 False Smoke", "1.0.3 False MultipleReasons", "1.0.1 False Smoke"}, conditional, "the alert of before still speaks against all")

	f.clock.SetTime(now.Add(20 * time.Minute))
	cv.Status = f.look(t, cv, everyField())
	available, conditional = versions(cv.Status)
	assert.Equal(t, []string{"1.1.0", "1.0.1"}, available, "an alert does not count for ever")
	assert.Equal(t, []string{"1.0.3 Unknown EvaluationFailed"}, conditional, "and a query that nobody answers counts as long as it takes")

	f = newTeller()
	f.look(t, cv, everyField())
	f.look(t, cv, everyField())
	assert.Equal(t, []string{"Fire"}, f.remembered, "a process takes over once what there was")
}

func TestUpdatesOfAnotherQuestion(t *testing.T) {
	f, cv := newTeller(), asking()
	cv.Status = f.look(t, cv, Schema{})
	require.Len(t, cv.Status.AvailableUpdates, 3)
	assert.Equal(t, now, f.Measured().Retrieved)

	f.clock.SetTime(now.Add(time.Minute))
	f.err = errors.New("away")
	cv.Spec.Channel = "fast"
	status := f.look(t, cv, Schema{})
	assert.Empty(t, status.AvailableUpdates, "updates of one channel are none of another")
	assert.Equal(t, "False|Unknown|Unable to retrieve available updates: away", said(status, configv1.RetrievedUpdates))
	assert.Equal(t, now.Add(time.Minute), f.Measured().Retrieved)

	cv.Spec.Channel = ""
	assert.Equal(t, "False|NoChannel|The update channel has not been configured.", said(f.look(t, cv, Schema{}), configv1.RetrievedUpdates))
	assert.Equal(t, "none", f.keys[SlotUpdates], "nobody is asked any more")

	f.err = nil
	cv.Spec.Channel = "stable"
	assert.Len(t, f.look(t, cv, Schema{}).AvailableUpdates, 3)
}

func TestLateAnswer(t *testing.T) {
	f, cv := newTeller(), asking()
	r := &round{original: cv, cv: cv.DeepCopy()}
	require.NoError(t, f.lookForUpdates(t.Context(), r))
	first, _ := questionFor(cv, f.options.Updates)
	cv.Spec.Channel = "fast"
	require.NoError(t, f.lookForUpdates(t.Context(), r))
	f.askService(logr.Discard(), first)(t.Context())
	f.starts[SlotRisks](t.Context())
	require.NoError(t, f.lookForUpdates(t.Context(), r))
	assert.False(t, r.updates.judged, "an answer to another question counts for nothing")
	assert.Empty(t, r.updates.retrieved.status)
}

func TestWhatWasLeftOutIsTold(t *testing.T) {
	f := newTeller()
	f.updates.LeftOut = []string{"1.0.9: it has no image", "1.0.8: it has no image"}
	status := f.look(t, asking(), Schema{})
	assert.Equal(t, "True||Left out of what the update service offers: 1.0.9: it has no image; 1.0.8: it has no image.", said(status, configv1.RetrievedUpdates))
}

func TestRisksAreLookedAtAgainInTime(t *testing.T) {
	f, cv := newTeller(), asking()
	f.look(t, cv, Schema{})
	assert.Equal(t, Next{After: time.Hour}, f.starts[SlotRisks](t.Context()), "when the evaluator says")
	f.look(t, cv, everyField())
	assert.Equal(t, Next{After: risksPause}, f.starts[SlotRisks](t.Context()), "or when alerts are due, but not at once")
	assert.Equal(t, Next{After: defaultUpdatesInterval}, f.starts[SlotUpdates](t.Context()))
	f.updates = updategraph.Updates{}
	f.look(t, cv, everyField())
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, Next{Done: true}, f.starts[SlotRisks](cancelled))
	assert.Equal(t, Next{Done: true}, f.starts[SlotUpdates](cancelled))
}

func TestAcceptedRisksAreRecorded(t *testing.T) {
	update := func(applies ...metav1.ConditionStatus) []configv1.ConditionalUpdate {
		u := configv1.ConditionalUpdate{Release: configv1.Release{Image: "a"}}
		for i, status := range applies {
			u.Risks = append(u.Risks, configv1.ConditionalUpdateRisk{Name: []string{"Fire", "Air"}[i], Conditions: []metav1.Condition{{Type: risk.Applies, Status: status}}})
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
		{name: "tells what was accepted", image: "a", updates: update("True", "Unknown"), accepted: both, want: "The target release a is exposed to the risks [Air,Fire] which were all explicitly accepted by the cluster administrator."},
		{name: "adds it to what else was", image: "a", before: "forced", updates: update("True"), accepted: both, want: "forced; It is exposed to the risks [Fire] which were all explicitly accepted by the cluster administrator."},
		{name: "leaves out what does not apply", image: "a", updates: update("False"), accepted: both},
		{name: "says nothing where one was not accepted", image: "a", updates: update("True", "True"), accepted: []string{"Fire"}},
		{name: "says nothing of another release", image: "b", updates: update("True"), accepted: both},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			entry := configv1.UpdateHistory{Image: tt.image, AcceptedRisks: tt.before}
			recordAcceptedRisks(&entry, tt.updates, tt.accepted)
			assert.Equal(t, tt.want, entry.AcceptedRisks)
		})
	}
}

// TestUpdatesOverHTTP asks a real service as the operator does, and hears of a change.
func TestUpdatesOverHTTP(t *testing.T) {
	service := fixture.StartUpdateService(t, fixture.UpdateGraph(configv1.Release{Version: "1.0.0", Image: imageOf("1.0.0")}, configv1.Release{Version: "1.0.1", Image: "a"}))
	f, cv := newTeller(), asking()
	cv.Spec.Upstream = configv1.URL(service.URL())
	web := &updategraph.Client{HTTP: http.DefaultClient}
	f.options.Updates.Ask = web.Ask
	for i, want := range []int{1, 1, 0} {
		if i == 2 {
			service.Set(t, fixture.UpdateGraph(configv1.Release{Version: "1.0.0", Image: imageOf("1.0.0")}))
		}
		cv.Status = f.look(t, cv, Schema{})
		assert.Len(t, cv.Status.AvailableUpdates, want)
	}
	require.Len(t, service.Questions(), 3)
	assert.True(t, service.Questions()[1].Known)
}
