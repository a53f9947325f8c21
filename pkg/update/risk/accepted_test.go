package risk

import (
	"fmt"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/cluster"
	"github.com/cluster-version/cvo/test/env"
)

// controlPlane is the control plane of all tests in this package.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// TestJudgementsAreAccepted writes judgements of unusual risks to a real ClusterVersion. The API server must accept all of them.
//
//threat:risks-too-many the API server accepts the largest status
func TestJudgementsAreAccepted(t *testing.T) {
	cv, c := realClusterVersion(t)
	long := strings.Repeat("é<&", 20_000)
	for _, tc := range []struct {
		name   string
		change func(*configv1.ConditionalUpdateRisk)
		extra  configv1.ConditionalUpdateRisk
		many   int
	}{
		{name: "an ordinary risk", many: 1},
		{name: "a long name", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.Name = strings.Repeat("A", 256) }},
		{name: "a name that is too long", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.Name = strings.Repeat("A", 257) }},
		{name: "no name", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.Name = "" }},
		{name: "a name that is not a valid reason", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.Name = "a b\n-" }},
		{name: "no message", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.Message = "" }},
		{name: "a long message", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.Message = long }},
		{name: "a message that is not UTF-8", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.Message = "\xff\x00" }},
		{name: "no URL", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.URL = "" }},
		{name: "an invalid URL", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.URL = "see below" }},
		{name: "a URL that is only a path", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.URL = "/below" }},
		{name: "no rules", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.MatchingRules = nil }},
		{name: "a risk of the cluster with only a name", many: 1, extra: configv1.ConditionalUpdateRisk{Name: "Bare"}},
		{name: "a risk of the cluster with an unusual reason", many: 1, extra: configv1.ConditionalUpdateRisk{
			Name: "AdminAck-x", Conditions: []metav1.Condition{{Type: api.RiskApplies, Status: metav1.ConditionTrue, Message: long}},
		}},
		{name: "too many risks for one object", many: 700, change: func(r *configv1.ConditionalUpdateRisk) { r.Message = long }},
	} {
		t.Run("the API server accepts "+tc.name, func(t *testing.T) {
			in := Input{Now: time.Now(), Available: []configv1.Release{{Version: "4.1.0", Image: "image:4.1.0"}}}
			for i := range tc.many {
				r := configv1.ConditionalUpdateRisk{
					Name: "Fire", Message: "It burns.", URL: "https://example.com/fire", MatchingRules: []configv1.ClusterCondition{{Type: "Always"}},
				}
				if tc.change != nil {
					tc.change(&r)
				}
				version := fmt.Sprintf("4.2.%d", i)
				in.Conditional = append(in.Conditional, configv1.ConditionalUpdate{
					Release: configv1.Release{Version: version, Image: "image:" + version}, Risks: []configv1.ConditionalUpdateRisk{r},
				})
			}
			if tc.extra.Name != "" {
				in.Extra = []Extra{{ConditionalUpdateRisk: tc.extra}}
			}
			out := Judge(in)
			cv.Status.AvailableUpdates, cv.Status.ConditionalUpdates, cv.Status.ConditionalUpdateRisks = out.Available, out.Conditional, out.Risks
			require.NoError(t, c.Status().Update(t.Context(), cv))
			got := &configv1.ClusterVersion{}
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(cv), got))
			require.Len(t, got.Status.ConditionalUpdates, len(out.Conditional))
			in.Previous = Judged{Available: got.Status.AvailableUpdates, Conditional: got.Status.ConditionalUpdates, Risks: got.Status.ConditionalUpdateRisks}
			in.Now = in.Now.Add(time.Hour)
			again := Judge(in)
			for i, update := range got.Status.ConditionalUpdates {
				assert.Equal(t, update.RiskNames, again.Conditional[i].RiskNames, "the API server dropped no field")
				assert.True(t, update.Conditions[0].LastTransitionTime.Equal(&again.Conditional[i].Conditions[0].LastTransitionTime))
			}
		})
	}
	t.Run("the API server accepts the largest status", func(t *testing.T) { testLargestStatus(t, cv, c) })
}

// testLargestStatus writes the largest judgement beside the largest history. Half of the updates have no risks.
func testLargestStatus(t *testing.T, cv *configv1.ClusterVersion, c client.Client) {
	t.Helper()
	in := Input{Now: time.Now(), Current: "4.1.0"}
	for i := range 500 {
		long := strings.Repeat("a", 8000)
		next := configv1.Release{
			Version: fmt.Sprintf("4.1.%d", i+1), Image: fmt.Sprintf("%s:%d", long, i), URL: configv1.URL("https://example.com/" + long), Channels: []string{long},
		}
		in.Available = append(in.Available, next)
		next.Version, next.Image = fmt.Sprintf("4.2.%d", i), next.Image+"-2"
		in.Conditional = append(in.Conditional, configv1.ConditionalUpdate{Release: next, Risks: []configv1.ConditionalUpdateRisk{
			{Name: "Fire", Message: strings.Repeat("é<&", 20_000), URL: "https://example.com/fire", MatchingRules: []configv1.ClusterCondition{{Type: always}}},
		}})
	}
	out := Judge(in)
	assert.Len(t, out.Problems, 2, "%v", out.Problems)
	require.NotEmpty(t, out.Available)
	require.NotEmpty(t, out.Conditional)
	assert.Equal(t, "4.1.500", out.Available[0].Version, "the newest")
	assert.Equal(t, "4.1.1", out.Available[len(out.Available)-1].Version, "the next patch release")
	cv.Status.AvailableUpdates, cv.Status.ConditionalUpdates, cv.Status.ConditionalUpdateRisks = out.Available, out.Conditional, out.Risks
	for range 100 {
		cv.Status.History = append(cv.Status.History, configv1.UpdateHistory{
			State: configv1.PartialUpdate, StartedTime: metav1.Now(), CompletionTime: new(metav1.Now()), AcceptedRisks: strings.Repeat("a", 2400),
		})
	}
	require.NoError(t, c.Status().Update(t.Context(), cv))
}

// realClusterVersion creates a ClusterVersion whose risks have names and conditions.
func realClusterVersion(t *testing.T) (*configv1.ClusterVersion, client.Client) {
	t.Helper()
	t.Cleanup(controlPlane.For(t).Serve(t, "0000_00_cluster-version-operator_01_clusterversions-CustomNoUpgrade.crd.yaml"))
	c := newClient(t)
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "judged"}}
	cv.Spec.ClusterID = "2b6e9f9c-6b0c-4f57-9a3e-0e4f2f3c1d2a"
	put(t, c, cv)
	cv.Status.Desired = configv1.Release{Version: "4.1.0", Image: "image"}
	return cv, c
}

// put creates an object for the duration of the test.
func put(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), object))
	t.Cleanup(func() { _ = c.Delete(t.Context(), object) })
}

// newClient returns a client of the control plane.
func newClient(t *testing.T) client.Client {
	t.Helper()
	scheme, err := cluster.NewScheme()
	require.NoError(t, err)
	c, err := client.New(controlPlane.For(t).Config("test"), client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}
