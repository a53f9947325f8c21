package risk_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/update/risk"
)

var (
	monday  = time.Date(2026, 11, 16, 8, 0, 0, 0, time.UTC)
	tuesday = monday.Add(24 * time.Hour)
)

func update(version string) configv1.Release {
	return configv1.Release{Version: version, Image: "registry.example/release@sha256:" + version}
}

func aRisk(name string) configv1.ConditionalUpdateRisk {
	return configv1.ConditionalUpdateRisk{
		Name: name, Message: name + " is bad.", URL: "https://example.com/" + name,
		MatchingRules: []configv1.ClusterCondition{{Type: "PromQL", PromQL: &configv1.PromQLClusterCondition{PromQL: name}}},
	}
}

func conditional(version string, risks ...string) configv1.ConditionalUpdate {
	c := configv1.ConditionalUpdate{Release: update(version)}
	for _, name := range risks {
		c.Risks = append(c.Risks, aRisk(name))
	}
	return c
}

// applies returns conditions by name: "yes", "no", or the reason why it is unknown.
func applies(by map[string]string) map[string]metav1.Condition {
	conditions := map[string]metav1.Condition{}
	for name, what := range by {
		condition := metav1.Condition{Type: api.RiskApplies, Status: metav1.ConditionUnknown, Reason: risk.ReasonEvaluationFailed, Message: what}
		switch what {
		case "yes":
			condition.Status, condition.Reason = metav1.ConditionTrue, risk.ReasonMatch
		case "no":
			condition.Status, condition.Reason = metav1.ConditionFalse, risk.ReasonNotMatch
		}
		conditions[name] = condition
	}
	return conditions
}

func recommended(t *testing.T, out risk.Output, version string) metav1.Condition {
	t.Helper()
	for _, c := range out.Conditional {
		if c.Release.Version == version {
			condition := meta.FindStatusCondition(c.Conditions, api.UpdateRecommended)
			require.NotNil(t, condition)
			return *condition
		}
	}
	require.Fail(t, "no conditional update to "+version)
	return metav1.Condition{}
}

func versions(releases []configv1.Release) []string {
	all := []string{}
	for _, r := range releases {
		all = append(all, r.Version)
	}
	return all
}

func TestJudgeRecommendsUpdatesWithoutApplyingRisks(t *testing.T) {
	const (
		notExposed = "The update is recommended, because none of the conditional update risks apply to this cluster."
		accepted   = "The update is recommended, because either risk does not apply to this cluster or it is accepted by cluster admins."
	)
	for _, tc := range []struct {
		name     string
		applies  map[string]string
		accepted []string
		status   metav1.ConditionStatus
		reason   string
		message  string
	}{
		{"is recommended if no risk applies", map[string]string{"A": "no", "B": "no"}, nil, metav1.ConditionTrue, "NotExposedToRisks", notExposed},
		{"is not recommended and names the risk if one applies", map[string]string{"A": "yes", "B": "no"}, nil, metav1.ConditionFalse, "A", "A is bad. https://example.com/A"},
		{"names the second risk if it applies", map[string]string{"A": "no", "B": "yes"}, nil, metav1.ConditionFalse, "B", "B is bad. https://example.com/B"},
		{"has a common reason for two risks", map[string]string{"A": "yes", "B": "yes"}, nil, metav1.ConditionFalse, "MultipleReasons", "A is bad. https://example.com/A\n\nB is bad. https://example.com/B"},
		{"is unknown if a risk is unknown", map[string]string{"A": "down", "B": "no"}, nil, metav1.ConditionUnknown, "EvaluationFailed", "down"},
		{"is unknown with one reason if both risks are unknown", map[string]string{"A": "down", "B": "up"}, nil, metav1.ConditionUnknown, "EvaluationFailed", "down\n\nup"},
		{"prefers a risk that applies to an earlier unknown one", map[string]string{"A": "down", "B": "yes"}, nil, metav1.ConditionFalse, "MultipleReasons", "down\n\nB is bad. https://example.com/B"},
		{"prefers a risk that applies to a later unknown one", map[string]string{"A": "yes", "B": "down"}, nil, metav1.ConditionFalse, "MultipleReasons", "A is bad. https://example.com/A\n\ndown"},
		{"uses the general reason if the name is not a valid reason", map[string]string{"a-b": "yes"}, nil, metav1.ConditionFalse, "ExposedToRisks", "a-b is bad. https://example.com/a-b"},
		{"uses the general reason for two such names", map[string]string{"a-b": "yes", "c-d": "yes"}, nil, metav1.ConditionFalse, "ExposedToRisks", "a-b is bad. https://example.com/a-b\n\nc-d is bad. https://example.com/c-d"},
		{"keeps the general reason beside an unknown risk", map[string]string{"A": "down", "a-b": "yes"}, nil, metav1.ConditionFalse, "ExposedToRisks", "down\n\na-b is bad. https://example.com/a-b"},
		{"has a common reason for a valid and an invalid name", map[string]string{"A": "yes", "a-b": "yes"}, nil, metav1.ConditionFalse, "MultipleReasons", "A is bad. https://example.com/A\n\na-b is bad. https://example.com/a-b"},
		{"is recommended if the applicable risk is accepted", map[string]string{"A": "yes", "B": "no"}, []string{"A"}, metav1.ConditionTrue, "AllExposedRisksAccepted", accepted},
		{"is recommended if the unknown risk is accepted", map[string]string{"A": "down"}, []string{"A"}, metav1.ConditionTrue, "AllExposedRisksAccepted", accepted},
		{"does not mention the acceptance of a risk that does not apply", map[string]string{"A": "no"}, []string{"A"}, metav1.ConditionTrue, "NotExposedToRisks", notExposed},
		{"is not recommended if another risk applies", map[string]string{"A": "yes", "B": "yes"}, []string{"A", "C"}, metav1.ConditionFalse, "B", "B is bad. https://example.com/B"},
		{"is unknown without an evaluation", nil, nil, metav1.ConditionUnknown, "EvaluationFailed", "Risk A was not evaluated"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			names := []string{"A"}
			if tc.applies != nil {
				names = nil
				for _, name := range []string{"A", "B", "a-b", "c-d"} {
					if _, ok := tc.applies[name]; ok {
						names = append(names, name)
					}
				}
			}
			out := risk.Judge(risk.Input{
				Conditional: []configv1.ConditionalUpdate{conditional("4.2.0", names...)},
				Applies:     applies(tc.applies), Accepted: tc.accepted, Now: tuesday,
			})
			got := recommended(t, out, "4.2.0")
			assert.Equal(t, metav1.Condition{Type: "Recommended", Status: tc.status, Reason: tc.reason, Message: tc.message, LastTransitionTime: got.LastTransitionTime}, got)
			assert.True(t, got.LastTransitionTime.Time.Equal(tuesday))
			if tc.status == metav1.ConditionTrue {
				assert.Equal(t, []string{"4.2.0"}, versions(out.Available))
			} else {
				assert.Empty(t, out.Available)
			}
			assert.Empty(t, out.Problems)
		})
	}
}

func TestJudgeSortsBothLists(t *testing.T) {
	in := risk.Input{
		Available: []configv1.Release{update("4.2.9"), update("4.2.10"), update("4.3.0-rc.1"), update("odd"), update("4.2.4")},
		Conditional: []configv1.ConditionalUpdate{
			conditional("4.2.4", "Applies", "Other"), conditional("4.3.0", "Other"), conditional("4.2.11", "Unknown", "Applies"),
		},
		Applies: applies(map[string]string{"Applies": "yes", "Other": "no", "Unknown": "down"}),
		Now:     tuesday,
	}
	before := fmt.Sprintf("%+v", in)
	out := risk.Judge(in)
	assert.Equal(t, []string{"4.3.0", "4.3.0-rc.1", "4.2.10", "4.2.9", "odd"}, versions(out.Available), "highest version first, without updates that have an applicable risk")
	var conditional []string
	for _, c := range out.Conditional {
		conditional = append(conditional, fmt.Sprint(c.Release.Version, c.RiskNames))
		for _, r := range c.Risks {
			assert.Equal(t, in.Applies[r.Name].Status, r.Conditions[0].Status)
		}
	}
	assert.Equal(t, []string{"4.3.0[Other]", "4.2.11[Applies Unknown]", "4.2.4[Applies Other]"}, conditional)
	var names []string
	for _, r := range out.Risks {
		names = append(names, r.Name)
		require.Len(t, r.Conditions, 1)
		assert.Equal(t, in.Applies[r.Name].Reason, r.Conditions[0].Reason)
	}
	assert.Equal(t, []string{"Applies", "Other", "Unknown"}, names)
	assert.Equal(t, before, fmt.Sprintf("%+v", in), "the input does not change")

	in.Plain = true
	out = risk.Judge(in)
	assert.Empty(t, out.Risks)
	for _, c := range out.Conditional {
		assert.Empty(t, c.RiskNames)
		for _, r := range c.Risks {
			assert.Empty(t, r.Conditions)
		}
	}
}

// TestJudgeKeepsTransitionTimesOfEqualAnswers judges twice. An unchanged condition keeps its time and value.
func TestJudgeKeepsTransitionTimesOfEqualAnswers(t *testing.T) {
	in := risk.Input{
		Conditional: []configv1.ConditionalUpdate{conditional("4.2.1", "A"), conditional("4.2.2", "B")},
		Applies:     applies(map[string]string{"A": "yes", "B": "no"}), Now: monday,
	}
	first := risk.Judge(in)
	in.Previous, in.Now = first.Judged, tuesday
	assert.Equal(t, first, risk.Judge(in))

	in.Applies = applies(map[string]string{"A": "no", "B": "no"})
	second := risk.Judge(in)
	assert.True(t, recommended(t, second, "4.2.1").LastTransitionTime.Time.Equal(tuesday))
	assert.True(t, recommended(t, second, "4.2.2").LastTransitionTime.Time.Equal(monday))
	assert.True(t, second.Risks[0].Conditions[0].LastTransitionTime.Time.Equal(tuesday))
	assert.True(t, second.Risks[1].Conditions[0].LastTransitionTime.Time.Equal(monday))

	in.Previous = second.Judged
	in.Previous.Conditional[0].Conditions = append(in.Previous.Conditional[0].Conditions, metav1.Condition{Type: "Other"})
	in.Conditional[1].Release.Version = "4.2.2+again"
	third := risk.Judge(in)
	assert.True(t, recommended(t, third, "4.2.2+again").LastTransitionTime.Time.Equal(monday), "the image identifies an update")
	assert.Len(t, third.Conditional[0].Conditions, 2, "conditions from other writers are kept")
}

func TestJudgeAddsRisksOfTheCluster(t *testing.T) {
	extra := func(name, status string, concerns func(string) bool) risk.Extra {
		e := risk.Extra{ConditionalUpdateRisk: aRisk(name), Concerns: concerns}
		if status != "" {
			e.Conditions = []metav1.Condition{applies(map[string]string{name: status})[name]}
		}
		return e
	}
	minor := func(version string) bool { return !strings.HasPrefix(version, "4.2.") }
	in := risk.Input{
		Available:   []configv1.Release{update("4.2.1"), update("4.3.1")},
		Conditional: []configv1.ConditionalUpdate{conditional("4.3.2", "A"), conditional("4.2.2", "A")},
		Applies:     applies(map[string]string{"A": "no"}), Now: tuesday,
	}
	for _, tc := range []struct {
		name                   string
		extra                  []risk.Extra
		accepted               []string
		available, conditional []string
		problem                string
	}{
		{"moves affected updates", []risk.Extra{extra("AdminAck-x", "yes", minor)}, nil, []string{"4.2.2", "4.2.1"}, []string{"4.3.2[A AdminAck-x]ExposedToRisks", "4.3.1[AdminAck-x]ExposedToRisks", "4.2.2[A]NotExposedToRisks"}, ""},
		{"concerns every update", []risk.Extra{extra("KubeDown", "yes", nil)}, nil, []string{}, []string{"4.3.2[A KubeDown]KubeDown", "4.3.1[KubeDown]KubeDown", "4.2.2[A KubeDown]KubeDown", "4.2.1[KubeDown]KubeDown"}, ""},
		{"can be accepted", []risk.Extra{extra("KubeDown", "yes", minor)}, []string{"KubeDown"}, []string{"4.3.2", "4.3.1", "4.2.2", "4.2.1"}, []string{"4.3.2[A KubeDown]AllExposedRisksAccepted", "4.3.1[KubeDown]AllExposedRisksAccepted", "4.2.2[A]NotExposedToRisks"}, ""},
		{"is unknown without a verdict", []risk.Extra{extra("KubeDown", "", minor)}, nil, []string{"4.2.2", "4.2.1"}, []string{"4.3.2[A KubeDown]EvaluationFailed", "4.3.1[KubeDown]EvaluationFailed", "4.2.2[A]NotExposedToRisks"}, ""},
		{"drops an invalid name", []risk.Extra{extra("kube down\n", "yes", nil)}, nil, []string{"4.3.2", "4.3.1", "4.2.2", "4.2.1"}, []string{"4.3.2[A]NotExposedToRisks", "4.2.2[A]NotExposedToRisks"}, "\"kube down\\n\" is not a valid name for a risk of this cluster"},
		{"merges a known risk, which applies if it does in either source", []risk.Extra{extra("A", "yes", minor)}, nil, []string{"4.2.1"}, []string{"4.3.2[A]A", "4.3.1[A]A", "4.2.2[A]A"}, ""},
		{"reports contradicting definitions", []risk.Extra{extra("B", "no", minor), {ConditionalUpdateRisk: configv1.ConditionalUpdateRisk{Name: "B", Message: "Else."}, Concerns: minor}}, nil, []string{"4.2.2", "4.2.1"}, []string{"4.3.2[A B]EvaluationFailed", "4.3.1[B]EvaluationFailed", "4.2.2[A]NotExposedToRisks"}, "risk B of the update to 4.3.1 has different definitions"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := in
			in.Extra, in.Accepted = tc.extra, tc.accepted
			out := risk.Judge(in)
			assert.Equal(t, tc.available, versions(out.Available))
			var got []string
			for _, c := range out.Conditional {
				got = append(got, fmt.Sprint(c.Release.Version, c.RiskNames, meta.FindStatusCondition(c.Conditions, api.UpdateRecommended).Reason))
			}
			assert.Equal(t, tc.conditional, got)
			if tc.problem == "" {
				assert.Empty(t, out.Problems)
			} else {
				require.NotEmpty(t, out.Problems)
				assert.Equal(t, tc.problem, out.Problems[0])
			}
		})
	}
	in.Extra = []risk.Extra{{ConditionalUpdateRisk: configv1.ConditionalUpdateRisk{
		Name: "Bare", Conditions: []metav1.Condition{{Type: api.RiskApplies, Status: metav1.ConditionTrue, Reason: "not a word"}},
	}}}
	for _, r := range risk.Judge(in).Risks {
		assert.Contains(t, []string{"Match", "NotMatch"}, r.Conditions[0].Reason)
		assert.NotEmpty(t, r.URL)
		assert.NotEmpty(t, r.Message)
		assert.NotEmpty(t, r.MatchingRules)
	}
}

// TestJudgeOmitsRisksThatTheAPIServerRejects includes updates that an API server rejects. The status still lists the others.
//
//threat:risks-too-many
func TestJudgeOmitsRisksThatTheAPIServerRejects(t *testing.T) {
	with := func(change func(*configv1.ConditionalUpdateRisk)) configv1.ConditionalUpdate {
		c := conditional("4.2.2", "A")
		change(&c.Risks[0])
		return c
	}
	for _, tc := range []struct {
		name    string
		update  configv1.ConditionalUpdate
		problem string
	}{
		{"no risks", conditional("4.2.2"), "conditional, but without risks"},
		{"a risk without a name", with(func(r *configv1.ConditionalUpdateRisk) { r.Name = "" }), "the name of a risk must have 1 to 256 characters, not 0"},
		{"a long name", with(func(r *configv1.ConditionalUpdateRisk) { r.Name = strings.Repeat("A", 257) }), "the name of a risk must have 1 to 256 characters, not 257"},
		{"the same risk twice", conditional("4.2.2", "A", "A"), `two risks have the name "A"`},
		{"no message", with(func(r *configv1.ConditionalUpdateRisk) { r.Message = "" }), `risk "A" has no message`},
		{"no URL", with(func(r *configv1.ConditionalUpdateRisk) { r.URL = "see below" }), `risk "A" has the invalid URL "see below"`},
		{"no rule", with(func(r *configv1.ConditionalUpdateRisk) { r.MatchingRules = nil }), `risk "A" has no rules`},
	} {
		t.Run("it omits an update with "+tc.name, func(t *testing.T) {
			out := risk.Judge(risk.Input{
				Available:   []configv1.Release{update("4.2.1"), update("4.2.2")},
				Conditional: []configv1.ConditionalUpdate{tc.update, conditional("4.2.3", "B")}, Now: tuesday,
			})
			assert.Equal(t, []string{"4.2.1"}, versions(out.Available), "the omitted update is not recommended")
			require.Len(t, out.Conditional, 1)
			assert.Equal(t, []string{"omitted the update to 4.2.2: " + tc.problem}, out.Problems)
		})
	}
}

// TestJudgeKeepsTheNearestOfManyUpdates judges updates that become conditional only because of a risk of the cluster itself.
func TestJudgeKeepsTheNearestOfManyUpdates(t *testing.T) {
	down := func(minor string, from, to int) (versions []string) {
		for patch := from; patch >= to; patch-- {
			versions = append(versions, fmt.Sprintf("%s.%d", minor, patch))
		}
		return versions
	}
	for _, tc := range []struct {
		name, message string
		risks         int
		want          []string
	}{
		{"many updates", "short", 1, slices.Concat(down("4.2", 399, 275), down("4.1", 400, 276), down("4.1", 250, 1))},
		{"long texts", strings.Repeat("é", 60_000), 50, slices.Concat(down("4.2", 399, 390), down("4.1", 400, 390), down("4.1", 22, 1))},
	} {
		t.Run("it keeps the nearest of "+tc.name, func(t *testing.T) {
			alert := aRisk("Alert")
			alert.Message = tc.message
			in := risk.Input{Now: tuesday, Current: "4.1.0", Extra: []risk.Extra{{ConditionalUpdateRisk: alert}}}
			for i := range 400 {
				in.Available = append(in.Available, update(fmt.Sprintf("4.1.%d", i+1)))
				c := conditional(fmt.Sprintf("4.2.%d", i))
				for j := range tc.risks {
					r := aRisk(fmt.Sprintf("Risk%dOf%d", j, i))
					r.Message = tc.message
					c.Risks = append(c.Risks, r)
				}
				in.Conditional = append(in.Conditional, c)
			}
			out := risk.Judge(in)
			var kept []string
			for _, c := range out.Conditional {
				kept = append(kept, c.Release.Version)
			}
			assert.Equal(t, tc.want, kept)
			assert.NotEmpty(t, out.Problems)
		})
	}
}

// TestLongReleasesFitIntoTheClusterVersion has an update service whose texts about releases are long.
//
//threat:risks-too-many
func TestLongReleasesFitIntoTheClusterVersion(t *testing.T) {
	in := risk.Input{Now: tuesday, Current: "4.1.0"}
	describe := func(r configv1.Release) configv1.Release {
		r.URL = configv1.URL("https://example.com/" + strings.Repeat("a", 4000))
		r.Channels = []string{strings.Repeat("c", 4000)}
		return r
	}
	for i := range 400 {
		in.Available = append(in.Available, describe(update(fmt.Sprintf("4.1.%d", i+1))))
		c := conditional(fmt.Sprintf("4.2.%d", i), "R")
		c.Release = describe(c.Release)
		in.Conditional = append(in.Conditional, c)
	}
	out := risk.Judge(in)
	text, err := json.Marshal(out.Judged)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(text), 896<<10)
	assert.Len(t, out.Problems, 2)
	assert.Len(t, out.Conditional, 16, "the estimate includes their own texts")
	require.Len(t, out.Available, 56)
	assert.Equal(t, "4.1.400", out.Available[0].Version)
	assert.Equal(t, "4.1.1", out.Available[55].Version)
}

// TestJudgeFitsIntoTheClusterVersion judges more updates than a ClusterVersion can contain.
//
//threat:risks-too-many
func TestJudgeFitsIntoTheClusterVersion(t *testing.T) {
	long := strings.Repeat("é", 60_000)
	for _, tc := range []struct {
		name             string
		updates, risks   int
		message          string
		atLeast, problem int
	}{
		{"a long message", 1, 1, long, 1, 0},
		{"long messages", 50, 20, long, 50, 0},
		{"many risks", 40, 210, long, 4, 2},
		{"text that needs escaping", 50, 20, strings.Repeat("\x01", 60_000), 5, 1},
		{"many updates", 600, 2, "short", 500, 1},
	} {
		t.Run("it fits "+tc.name, func(t *testing.T) {
			in := risk.Input{Now: tuesday, Applies: map[string]metav1.Condition{}}
			for i := range tc.updates {
				c := conditional(fmt.Sprintf("4.2.%d", i))
				for j := range tc.risks {
					r := aRisk(fmt.Sprintf("Risk%d", j))
					r.Message = tc.message
					c.Risks = append(c.Risks, r)
					in.Applies[r.Name] = applies(map[string]string{r.Name: "yes"})[r.Name]
				}
				in.Conditional = append(in.Conditional, c)
			}
			out := risk.Judge(in)
			assert.GreaterOrEqual(t, len(out.Conditional), tc.atLeast)
			assert.LessOrEqual(t, len(out.Conditional), 500)
			assert.Equal(t, fmt.Sprintf("4.2.%d", tc.updates-1), out.Conditional[0].Release.Version, "the highest versions are kept")
			assert.GreaterOrEqual(t, len(out.Problems), tc.problem)
			text, err := json.Marshal(out.Judged)
			require.NoError(t, err)
			assert.LessOrEqual(t, len(text), 896<<10)
			for _, c := range out.Conditional {
				assert.LessOrEqual(t, len(c.Risks), 200)
				assert.LessOrEqual(t, len(c.Conditions[0].Message), 32<<10)
				assert.Equal(t, metav1.ConditionFalse, c.Conditions[0].Status)
			}
		})
	}
}
