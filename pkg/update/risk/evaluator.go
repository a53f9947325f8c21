package risk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/backoff"
)

// Answers contains the results for risks.
type Answers struct {
	// Applies contains the Applies condition of each risk by name. The transition time is the time of the call. Judge keeps the earlier
	// time if the condition has not changed.
	Applies map[string]metav1.Condition
	// Next is the time of the next evaluation; zero means never. The answers do not change before that.
	Next time.Time
}

// Options configures an Evaluator. The zero value uses the defaults.
type Options struct {
	// Rate is the maximum number of queries per second (5 by default), and Burst the number of queries that may exceed it (10 by default).
	Rate  float64
	Burst int
	// Parallel is the maximum number of concurrent queries; 4 by default.
	Parallel int
	// Timeout is the time limit for a query; 1 minute by default.
	Timeout time.Duration
	// Fresh is the maximum age of an answer before its expression is queried again; 1 hour by default. While queries fail, an answer is
	// valid for twice that time.
	Fresh time.Duration
	// AlertsFresh is the maximum age of alerts before they are queried again; 1 minute by default. AlertsKept is the maximum age of alerts
	// while queries fail; 15 minutes by default.
	AlertsFresh, AlertsKept time.Duration
}

func (o *Options) setDefaults() {
	o.Rate = cmp.Or(o.Rate, 5)
	o.Burst = cmp.Or(o.Burst, 10)
	o.Parallel = cmp.Or(o.Parallel, 4)
	o.Timeout = cmp.Or(o.Timeout, ruleTimeout)
	o.Fresh = cmp.Or(o.Fresh, time.Hour)
	o.AlertsFresh = cmp.Or(o.AlertsFresh, time.Minute)
	o.AlertsKept = cmp.Or(o.AlertsKept, 15*time.Minute)
}

const (
	// ruleTimeout is the time limit for the evaluation of one rule, and evaluationTimeout that of all rules in one call. It is longer, so
	// that each call evaluates at least a few rules.
	ruleTimeout       = time.Minute
	evaluationTimeout = 2 * time.Minute
	// unused is the age at which an unused answer is dropped. mostUnused is the maximum number of unused answers, because an update service
	// may send other expressions each time.
	unused     = 24 * time.Hour
	mostUnused = 1000
)

// Evaluator evaluates whether risks apply and caches the answers. It is safe for concurrent use.
type Evaluator struct {
	clock   clock.PassiveClock
	source  Source
	options Options
	limiter *rate.Limiter

	mu      sync.Mutex
	answers map[string]*answer // by expression
	outage  outage
	alerts  alerts
}

// New returns an Evaluator that queries a source.
func New(clk clock.PassiveClock, source Source, options Options) *Evaluator {
	options.setDefaults()
	return &Evaluator{
		clock: clk, source: source, options: options,
		limiter: rate.NewLimiter(rate.Limit(options.Rate), options.Burst),
		answers: map[string]*answer{},
	}
}

// answer is the last known result of one expression.
type answer struct {
	// match is the last result from the source, received at found; false if there has been none.
	match bool
	found time.Time
	// err is the latest error since then, and failures the number of consecutive errors.
	err      error
	failures int
	// due is the time of the next query, and used the last time when a caller needed the answer.
	due, used time.Time
}

// outage records that a source does not respond at all. The Evaluator then pauses its queries.
type outage struct {
	err      error
	failures int
	until    time.Time
}

// retryDelay is the delay before another attempt of a query.
var retryDelay = backoff.Doubling{First: 10 * time.Second, Max: 10 * time.Minute}

// errOutOfTime is the reason why an evaluation ends before all queries are answered.
var errOutOfTime = fmt.Errorf("not all rules were evaluated within %s", evaluationTimeout)

// Evaluate returns whether risks apply. It waits until the source has answered every stale or unknown expression, or until ctx ends, but for
// two minutes at most. If the source does not respond at all, Evaluate takes only slightly longer than the timeout of one query. Expressions
// without an answer are unknown, and the next call queries them first.
func (e *Evaluator) Evaluate(ctx context.Context, risks []configv1.ConditionalUpdateRisk) Answers {
	ctx, cancel := context.WithTimeoutCause(ctx, evaluationTimeout, errOutOfTime)
	defer cancel()
	asked := map[string]bool{}
	for {
		expressions := e.wanted(risks, asked)
		if len(expressions) == 0 {
			break
		}
		e.queryAll(ctx, expressions)
	}
	return e.conclude(ctx, risks)
}

// wanted returns the different expressions to query before the risks can be judged. Failing expressions come last because they may overload
// the source. Otherwise those without an answer come first and the oldest answers next, so that an interrupted evaluation continues.
func (e *Evaluator) wanted(risks []configv1.ConditionalUpdateRisk, selected map[string]bool) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	var expressions []string
	for _, risk := range risks {
		verdict := e.verdict(risk.MatchingRules, now, func(expression string) bool { return !selected[expression] })
		if verdict.wanted != "" {
			selected[verdict.wanted] = true
			expressions = append(expressions, verdict.wanted)
		}
	}
	e.forget(now)
	slices.SortStableFunc(expressions, func(x, y string) int {
		a, b := cmp.Or(e.answers[x], &answer{}), cmp.Or(e.answers[y], &answer{})
		return cmp.Or(a.failures-b.failures, a.due.Compare(b.due))
	})
	return expressions
}

// forget drops unused answers that are too old, and the oldest ones beyond the limit.
func (e *Evaluator) forget(now time.Time) {
	var idle []string
	for expression, a := range e.answers {
		switch {
		case now.Sub(a.used) > unused:
			delete(e.answers, expression)
		case a.used.Before(now):
			idle = append(idle, expression)
		}
	}
	if len(idle) <= mostUnused {
		return
	}
	slices.SortFunc(idle, func(a, b string) int { return e.answers[a].used.Compare(e.answers[b].used) })
	for _, expression := range idle[:len(idle)-mostUnused] {
		delete(e.answers, expression)
	}
}

// queryAll queries the source for expressions, a few at a time.
func (e *Evaluator) queryAll(ctx context.Context, expressions []string) {
	var group errgroup.Group
	group.SetLimit(e.options.Parallel)
	for _, expression := range expressions {
		group.Go(func() error {
			e.queryOne(ctx, expression)
			return nil
		})
	}
	_ = group.Wait() // the errors are in the answers
}

func (e *Evaluator) queryOne(ctx context.Context, expression string) {
	if e.outageError() != nil || e.limiter.Wait(ctx) != nil || e.outageError() != nil {
		return
	}
	queryCtx, cancel := context.WithTimeout(ctx, e.options.Timeout)
	defer cancel()
	match, err := query(queryCtx, e.source, expression)
	if ctx.Err() != nil {
		return // canceled, so there is no result for this expression
	}
	e.record(expression, match, err)
}

// outageError returns the reason why queries to the source are paused; nil if they are not.
func (e *Evaluator) outageError() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.clock.Now().Before(e.outage.until) {
		return e.outage.err
	}
	return nil
}

// query evaluates an expression with a source. The expression must have exactly one result, 0 or 1.
func query(ctx context.Context, source Source, expression string) (bool, error) {
	values, err := source.Query(ctx, expression)
	switch {
	case err != nil:
		return false, err
	case len(values) != 1:
		return false, fmt.Errorf("the query has %d results instead of one", len(values))
	case values[0] == 0:
		return false, nil
	case values[0] == 1:
		return true, nil
	default:
		return false, fmt.Errorf("the result of the query is %v instead of 0 or 1", values[0])
	}
}
