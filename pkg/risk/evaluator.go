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
)

// Answers tell whether risks apply.
type Answers struct {
	// Applies has the condition Applies for each name of a risk. Its time is when it was asked for; Judge keeps that of
	// the previous condition where nothing changed.
	Applies map[string]metav1.Condition
	// Next is when to evaluate again, zero for never: until then the answers stay what they are.
	Next time.Time
}

// Options are the settings of an Evaluator; the zero value works.
type Options struct {
	// Rate is how many queries are begun per second, Burst how many of them at once; default 5 and 10.
	Rate  float64
	Burst int
	// Parallel is how many queries run at a time; default 4.
	Parallel int
	// Timeout of a query; default 1 minute.
	Timeout time.Duration
	// Fresh is how long an answer is good for; default 1 hour. It counts as long again while no other can be had.
	Fresh time.Duration
	// AlertsFresh is how long alerts are good for, default 1 minute, and AlertsKept how long they count while no others
	// can be had, default 15 minutes.
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
	// ruleTimeout is how long the evaluation of one rule may take.
	ruleTimeout = time.Minute
	// unused is how long an answer is remembered that nobody asks for, mostUnused how many of these: an update service may
	// think of others each time.
	unused     = 24 * time.Hour
	mostUnused = 1000
	// firstRetry is how soon what failed is tried again the first time, lastRetry how late at most.
	firstRetry, lastRetry = 10 * time.Second, 10 * time.Minute
)

// Evaluator answers whether risks apply, and remembers its answers. It may be used by many at a time.
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

// New returns an Evaluator that asks a source.
func New(clk clock.PassiveClock, source Source, options Options) *Evaluator {
	options.setDefaults()
	return &Evaluator{
		clock: clk, source: source, options: options,
		limiter: rate.NewLimiter(rate.Limit(options.Rate), options.Burst),
		answers: map[string]*answer{},
	}
}

// answer is what is known of one expression.
type answer struct {
	// match is what it was when the source told it last, at found; zero if it never did.
	match bool
	found time.Time
	// err is why the source did not tell it since then, so many times in a row.
	err      error
	failures int
	// due is when to ask again, used when somebody wanted to know it last.
	due, used time.Time
}

// outage is a source that answers nobody. It is left alone for a while then.
type outage struct {
	err      error
	failures int
	until    time.Time
}

// retry is how long to wait after so many failures in a row.
func retry(failures int) time.Duration {
	return min(firstRetry<<min(failures-1, 10), lastRetry)
}

// Evaluate returns whether risks apply. It takes until the source has answered whatever is not known or not fresh, which
// is hardly longer than the timeout of a query if the source answers nobody, or until ctx ends; what was not answered by
// then is unknown, and asked for again by the next call.
func (e *Evaluator) Evaluate(ctx context.Context, risks []configv1.ConditionalUpdateRisk) Answers {
	asked := map[string]bool{}
	for {
		expressions := e.wanted(risks, asked)
		if len(expressions) == 0 {
			break
		}
		e.ask(ctx, expressions)
	}
	return e.conclude(ctx, risks)
}

// wanted returns the expressions that have to be asked for before it can be told which risks apply, each once.
func (e *Evaluator) wanted(risks []configv1.ConditionalUpdateRisk, asked map[string]bool) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	var expressions []string
	for _, risk := range risks {
		verdict := e.verdict(risk.MatchingRules, now, func(expression string) bool { return !asked[expression] })
		if verdict.wanted != "" {
			asked[verdict.wanted] = true
			expressions = append(expressions, verdict.wanted)
		}
	}
	e.forget(now)
	slices.SortStableFunc(expressions, func(a, b string) int { return e.failures(a) - e.failures(b) })
	return expressions
}

// forget drops answers that nobody has asked for: those of long ago, and of more than are remembered the oldest.
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

// failures is how often an expression has failed in a row. What failed is asked for last, in case that it is what brings
// the source to its knees.
func (e *Evaluator) failures(expression string) int {
	if a := e.answers[expression]; a != nil {
		return a.failures
	}
	return 0
}

// ask has the source answer expressions, some at a time.
func (e *Evaluator) ask(ctx context.Context, expressions []string) {
	var group errgroup.Group
	group.SetLimit(e.options.Parallel)
	for _, expression := range expressions {
		group.Go(func() error {
			e.askOne(ctx, expression)
			return nil
		})
	}
	_ = group.Wait() // the answers hold the errors
}

func (e *Evaluator) askOne(ctx context.Context, expression string) {
	if e.isOut() != nil || e.limiter.Wait(ctx) != nil || e.isOut() != nil {
		return
	}
	within, cancel := context.WithTimeout(ctx, e.options.Timeout)
	defer cancel()
	match, err := query(within, e.source, expression)
	if ctx.Err() != nil {
		return // that says nothing of the expression
	}
	e.record(expression, match, err)
}

// isOut is why the source is left alone; nil if it is not.
func (e *Evaluator) isOut() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.clock.Now().Before(e.outage.until) {
		return e.outage.err
	}
	return nil
}

// query has a source evaluate an expression that classifies clusters.
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
		return false, fmt.Errorf("the result of the query is %v, neither 0 nor 1", values[0])
	}
}
