package risk_test

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/update/firing"
	"github.com/cluster-version/cvo/pkg/update/risk"
)

// allZero is a cluster in which every expression has the value 0.
type allZero struct{}

func (allZero) Query(context.Context, string) ([]float64, error) { return []float64{0}, nil }

func (allZero) Alerts(context.Context) ([]firing.Alert, error) { return nil, nil }

func ExampleJudge() {
	update := func(version, name string, rule configv1.ClusterCondition) configv1.ConditionalUpdate {
		return configv1.ConditionalUpdate{
			Release: configv1.Release{Version: version, Image: "registry.example/release:" + version},
			Risks: []configv1.ConditionalUpdateRisk{{
				Name: name, URL: "https://example.com/" + name, Message: "Names resolve slowly.", MatchingRules: []configv1.ClusterCondition{rule},
			}},
		}
	}
	updates := []configv1.ConditionalUpdate{
		update("1.2.0", "SlowDNS", configv1.ClusterCondition{Type: "Always"}),
		update("1.2.1", "SlowIPv6", configv1.ClusterCondition{Type: "PromQL", PromQL: &configv1.PromQLClusterCondition{PromQL: "max(ipv6_enabled)"}}),
	}
	var risks []configv1.ConditionalUpdateRisk
	for _, u := range updates {
		risks = append(risks, u.Risks...)
	}
	evaluator := risk.New(clock.RealClock{}, allZero{}, risk.Options{})
	applies := evaluator.Evaluate(context.Background(), risks).Applies
	// An administrator accepts the risk later.
	for _, accepted := range [][]string{nil, {"SlowDNS"}} {
		out := risk.Judge(risk.Input{Current: "1.1.0", Conditional: updates, Applies: applies, Accepted: accepted})
		for _, u := range out.Conditional {
			fmt.Println(u.Release.Version, u.Conditions[0].Status, u.Conditions[0].Reason)
		}
	}
	// Output:
	// 1.2.1 True NotExposedToRisks
	// 1.2.0 False SlowDNS
	// 1.2.1 True NotExposedToRisks
	// 1.2.0 True AllExposedRisksAccepted
}
