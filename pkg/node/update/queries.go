package update

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/policy"
)

const (
	// queryTimeout limits all queries of a reconcile.
	queryTimeout = 5 * time.Second
	// answerAge is the time for which an answer counts. No event shows a change. A Prometheus reads most metrics less often.
	answerAge = 10 * time.Second
)

// Metrics answers queries of PromQL.
type Metrics interface {
	// Query returns the current values of the results.
	Query(ctx context.Context, expression string) ([]float64, error)
}

// noMetrics has no Prometheus.
type noMetrics struct{}

// Query implements Metrics.
func (noMetrics) Query(context.Context, string) ([]float64, error) {
	return nil, errors.New("no Prometheus is known")
}

// answer is the number of results of a query, or why they are not known.
type answer struct {
	results int
	err     error
	until   time.Time
}

// checkMetrics refuses the candidates of pools that are not healthy by the metrics of the cluster. It sends the queries of pools of which nothing else keeps a
// node from its start, and requests a reconcile for the next ones.
func (r *pools) checkMetrics(ctx context.Context, rollouts []*rollout, inputs []plan.Pool) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	now := r.clock.Now()
	maps.DeleteFunc(r.answers, func(_ string, a answer) bool { return !now.Before(a.until) })
	for i, o := range rollouts {
		if o.policy == nil || o.policy.Spec.Health.PoolUnhealthyIf == "" || !inputs[i].CanStart() {
			continue
		}
		query := o.policy.Spec.Health.PoolUnhealthyIf
		a, isKnown := r.answers[query]
		if !isKnown {
			values, err := r.options.Metrics.Query(ctx, query)
			a = answer{len(values), err, r.clock.Now().Add(answerAge)}
			r.answers[query] = a
		}
		why := policy.Unhealthy(o.policy, a.results, a.err)
		inputs[i].Refuse(why)
		if wait := a.until.Sub(now); why != "" && (o.wait == 0 || wait < o.wait) {
			o.wait = wait
		}
	}
}
