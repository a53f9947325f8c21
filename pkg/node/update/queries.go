package update

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/policy"
)

const (
	// queryTimeout limits a query.
	queryTimeout = 5 * time.Second
	// answerAge is the time for which an answer counts. No event shows a change. A Prometheus reads most metrics less often.
	answerAge = 10 * time.Second
)

// Metrics answers queries of PromQL.
type Metrics interface {
	// Query returns the current values of the results.
	Query(ctx context.Context, expression string) ([]float64, error)
}

// queries sends queries in the background, because a slow Prometheus must not delay pools that need no answer.
type queries struct {
	metrics Metrics
	clock   clock.PassiveClock
	asked   chan string

	mutex   sync.Mutex
	answers map[string]answer
}

// answer is the number of results of a query, or why they are not known.
type answer struct {
	results int
	err     error
	// until is the time until which the answer counts; zero before the first one. isPending reports whether the query has been sent again.
	until     time.Time
	isPending bool
}

func newQueries(m Metrics, clk clock.PassiveClock) *queries {
	return &queries{metrics: m, clock: clk, asked: make(chan string), answers: map[string]answer{}}
}

// events returns a source with a request for each answer. It sends the queries.
func (q *queries) events() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go q.run(ctx, func() { queue.Add(reconcile.Request{}) })
		return nil
	})
}

// run sends queries until ctx ends. It calls answered after each answer.
func (q *queries) run(ctx context.Context, answered func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case query := <-q.asked:
			go func() {
				q.send(ctx, query)
				answered()
			}()
		}
	}
}

func (q *queries) send(ctx context.Context, query string) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	values, err := q.metrics.Query(ctx, query)
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.answers[query] = answer{results: len(values), err: err, until: q.clock.Now().Add(answerAge)}
}

// ask returns the last answer to a query. If it does not count any more, ask sends the query, unless ctx ends.
func (q *queries) ask(ctx context.Context, query string) answer {
	q.mutex.Lock()
	a := q.answers[query]
	isNew := !a.isPending && !q.clock.Now().Before(a.until)
	a.isPending = a.isPending || isNew
	q.answers[query] = a
	q.mutex.Unlock()
	if isNew {
		select {
		case q.asked <- query:
		case <-ctx.Done():
		}
	}
	return a
}

// forget removes the answers to queries that no pool has.
func (q *queries) forget(rollouts []*rollout) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	maps.DeleteFunc(q.answers, func(query string, _ answer) bool {
		return !slices.ContainsFunc(rollouts, func(o *rollout) bool { return o.query() == query })
	})
}

// query returns the query about the health of the pool; empty if it has none.
func (o *rollout) query() string {
	if o.policy == nil {
		return ""
	}
	return o.policy.Spec.Health.PoolUnhealthyIf
}

// checkMetrics refuses the candidates of pools that are not healthy by the metrics of the cluster, and of those for which the answer is not known yet. Only
// pools of which nothing else keeps a node from its start, perhaps with a slot that another one releases, need an answer. It counts for some time, after which checkMetrics requests a reconcile.
func (r *pools) checkMetrics(ctx context.Context, rollouts []*rollout, inputs []plan.Pool) {
	r.queries.forget(rollouts)
	for i, o := range rollouts {
		query := o.query()
		if query == "" || !inputs[i].CanStart() && !inputs[i].CanRelease() {
			continue
		}
		a := r.queries.ask(ctx, query)
		why := policy.Unhealthy(o.policy, a.results, a.err)
		if a.isPending {
			inputs[i].Refuse(cmp.Or(why, policy.NotEvaluated(o.policy)))
			o.isAsking = true
			continue
		}
		inputs[i].Refuse(why)
		if wait := max(a.until.Sub(r.clock.Now()), time.Millisecond); why != "" && (o.wait == 0 || wait < o.wait) {
			o.wait = wait
		}
	}
}
