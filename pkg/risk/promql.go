package risk

import "github.com/prometheus/prometheus/promql"

// newEngine returns Prometheus's own query engine, bounded in time and samples.
func newEngine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: ruleTimeout})
}
