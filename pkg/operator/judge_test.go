package operator

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

	"github.com/cluster-version/cvo/pkg/risk"
)

// TestJudgementsAreAccepted writes judgements of odd risks to a real ClusterVersion: the API server takes every one.
func TestJudgementsAreAccepted(t *testing.T) {
	cv, cluster := realClusterVersion(t)
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
		{name: "a name that is no reason", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.Name = "a b\n-" }},
		{name: "no message", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.Message = "" }},
		{name: "a long message", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.Message = long }},
		{name: "a message that is no text", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.Message = "\xff\x00" }},
		{name: "no URL", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.URL = "" }},
		{name: "a URL that is none", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.URL = "see below" }},
		{name: "a URL that is only a path", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.URL = "/below" }},
		{name: "no rules", many: 1, change: func(r *configv1.ConditionalUpdateRisk) { r.MatchingRules = nil }},
		{name: "a risk of the cluster with a name and nothing else", many: 1, extra: configv1.ConditionalUpdateRisk{Name: "Bare"}},
		{name: "a risk of the cluster with an odd reason", many: 1, extra: configv1.ConditionalUpdateRisk{
			Name: "AdminAck-x", Conditions: []metav1.Condition{{Type: risk.Applies, Status: metav1.ConditionTrue, Message: long}},
		}},
		{name: "more than there is room for", many: 700, change: func(r *configv1.ConditionalUpdateRisk) { r.Message = long }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := risk.Input{Now: time.Now(), Available: []configv1.Release{{Version: "4.1.0", Image: "image:4.1.0"}}}
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
				in.Extra = []risk.Extra{{ConditionalUpdateRisk: tc.extra}}
			}
			out := risk.Judge(in)
			cv.Status.AvailableUpdates, cv.Status.ConditionalUpdates, cv.Status.ConditionalUpdateRisks = out.Available, out.Conditional, out.Risks
			require.NoError(t, cluster.Status().Update(t.Context(), cv))
			got := &configv1.ClusterVersion{}
			require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(cv), got))
			require.Len(t, got.Status.ConditionalUpdates, len(out.Conditional))
			in.Previous = risk.Judged{Available: got.Status.AvailableUpdates, Conditional: got.Status.ConditionalUpdates, Risks: got.Status.ConditionalUpdateRisks}
			in.Now = in.Now.Add(time.Hour)
			again := risk.Judge(in)
			for i, update := range got.Status.ConditionalUpdates {
				assert.Equal(t, update.RiskNames, again.Conditional[i].RiskNames, "nothing was dropped")
				assert.True(t, update.Conditions[0].LastTransitionTime.Equal(&again.Conditional[i].Conditions[0].LastTransitionTime))
			}
		})
	}
}

// realClusterVersion is one that an API server keeps, of the variant whose risks have names and conditions.
func realClusterVersion(t *testing.T) (*configv1.ClusterVersion, client.Client) {
	t.Helper()
	t.Cleanup(serveKind(t, "0000_00_cluster-version-operator_01_clusterversions-CustomNoUpgrade.crd.yaml"))
	scheme, err := NewScheme()
	require.NoError(t, err)
	cluster, err := client.New(controlPlane.Config("test"), client.Options{Scheme: scheme})
	require.NoError(t, err)
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "judged"}}
	cv.Spec.ClusterID = "2b6e9f9c-6b0c-4f57-9a3e-0e4f2f3c1d2a"
	put(t, cluster, cv)
	cv.Status.Desired = configv1.Release{Version: "4.1.0", Image: "image"}
	return cv, cluster
}
