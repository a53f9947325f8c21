package risk_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/update/firing"
	"github.com/cluster-version/cvo/pkg/update/risk"
)

// source is a source that answers with functions and counts the calls.
type source struct {
	query  func(ctx context.Context, expression string) ([]float64, error)
	alerts func(ctx context.Context) ([]firing.Alert, error)

	mu    sync.Mutex
	asked map[string]int
	calls atomic.Int64
}

func (s *source) Query(ctx context.Context, expression string) ([]float64, error) {
	s.mu.Lock()
	if s.asked == nil {
		s.asked = map[string]int{}
	}
	s.asked[expression]++
	s.mu.Unlock()
	s.calls.Add(1)
	return s.query(ctx, expression)
}

func (s *source) Alerts(ctx context.Context) ([]firing.Alert, error) {
	s.calls.Add(1)
	return s.alerts(ctx)
}

func query(expression string) configv1.ClusterCondition {
	return configv1.ClusterCondition{Type: "PromQL", PromQL: &configv1.PromQLClusterCondition{PromQL: expression}}
}

func ruled(name string, rules ...configv1.ClusterCondition) configv1.ConditionalUpdateRisk {
	r := aRisk(name)
	r.MatchingRules = rules
	return r
}

func TestEvaluateStopsAtTheFirstRuleThatDecides(t *testing.T) {
	always := configv1.ClusterCondition{Type: "Always"}
	answers := func(_ context.Context, expression string) ([]float64, error) {
		switch expression {
		case "yes":
			return []float64{1}, nil
		case "no":
			return []float64{0}, nil
		case "two":
			return []float64{1, 1}, nil
		case "half":
			return []float64{0.5}, nil
		case "none":
			return nil, nil
		default:
			return nil, errors.New(expression + " fails")
		}
	}
	for _, tc := range []struct {
		name   string
		rules  []configv1.ClusterCondition
		status metav1.ConditionStatus
		cause  string
		never  string
	}{
		{name: "applies if the rule is Always", rules: []configv1.ClusterCondition{always}, status: metav1.ConditionTrue},
		{name: "applies if the query returns 1", rules: []configv1.ClusterCondition{query("yes")}, status: metav1.ConditionTrue},
		{name: "does not apply if the query returns 0", rules: []configv1.ClusterCondition{query("no")}, status: metav1.ConditionFalse},
		{name: "stops at the first rule that decides", rules: []configv1.ClusterCondition{query("no"), query("yes")}, status: metav1.ConditionFalse, never: "yes"},
		{name: "stops at a rule that always applies", rules: []configv1.ClusterCondition{always, query("no")}, status: metav1.ConditionTrue, never: "no"},
		{name: "continues after a rule that fails", rules: []configv1.ClusterCondition{query("b"), query("no")}, status: metav1.ConditionFalse},
		{name: "falls back to a rule that always applies", rules: []configv1.ClusterCondition{query("b"), always}, status: metav1.ConditionTrue},
		{name: "skips unknown types", rules: []configv1.ClusterCondition{{Type: "Later"}, query("no")}, status: metav1.ConditionFalse},
		{name: "is unknown with sorted causes if all rules fail", rules: []configv1.ClusterCondition{query("b"), query("a"), query("b")}, status: metav1.ConditionUnknown, cause: "a fails; b fails"},
		{name: "is unknown without a rule of a known type", rules: []configv1.ClusterCondition{{Type: "Later"}}, status: metav1.ConditionUnknown, cause: "no rule of a known type"},
		{name: "refuses an Always rule with a query", rules: []configv1.ClusterCondition{{Type: "Always", PromQL: query("yes").PromQL}}, status: metav1.ConditionUnknown, cause: "a rule that always applies cannot have a query"},
		{name: "refuses an invalid query", rules: []configv1.ClusterCondition{{Type: "PromQL"}, query("  ")}, status: metav1.ConditionUnknown, cause: "a rule of type PromQL has no query"},
		{name: "requires a single result", rules: []configv1.ClusterCondition{query("two")}, status: metav1.ConditionUnknown, cause: "the query has 2 results instead of one"},
		{name: "requires a result", rules: []configv1.ClusterCondition{query("none")}, status: metav1.ConditionUnknown, cause: "the query has 0 results instead of one"},
		{name: "requires 0 or 1", rules: []configv1.ClusterCondition{query("half")}, status: metav1.ConditionUnknown, cause: "the result of the query is 0.5 instead of 0 or 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &source{query: answers}
			got := risk.New(clock.RealClock{}, s, risk.Options{}).Evaluate(t.Context(), []configv1.ConditionalUpdateRisk{ruled("Risk", tc.rules...)})
			condition := got.Applies["Risk"]
			assert.Equal(t, "Applies", condition.Type)
			assert.Equal(t, tc.status, condition.Status)
			assert.Equal(t, map[metav1.ConditionStatus]string{"True": "Match", "False": "NotMatch", "Unknown": "EvaluationFailed"}[tc.status], condition.Reason)
			if tc.status == metav1.ConditionUnknown {
				assert.Equal(t, "Could not evaluate exposure to update risk Risk ("+tc.cause+")\n  Risk description: Risk is bad.\n  Risk URL: https://example.com/Risk", condition.Message)
			}
			assert.Zero(t, s.asked[tc.never])
			for expression, times := range s.asked {
				assert.Equal(t, 1, times, expression)
			}
		})
	}
}

// TestEvaluateRemembersAnswers follows one rule over two days.
func TestEvaluateRemembersAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values, err := []float64{1}, error(nil)
		s := &source{query: func(context.Context, string) ([]float64, error) { return values, err }}
		e := risk.New(clock.RealClock{}, s, risk.Options{})
		ask := func() (metav1.Condition, time.Duration) {
			got := e.Evaluate(t.Context(), []configv1.ConditionalUpdateRisk{ruled("A", query("q")), ruled("B", query("q"))})
			assert.Equal(t, got.Applies["A"].Status, got.Applies["B"].Status)
			return got.Applies["A"], time.Until(got.Next)
		}
		condition, next := ask()
		assert.Equal(t, metav1.ConditionTrue, condition.Status)
		assert.Equal(t, time.Hour, next)
		time.Sleep(time.Hour - time.Second)
		ask()
		assert.Equal(t, int64(1), s.calls.Load(), "one query for two risks with the same rule, and none for an hour")

		time.Sleep(time.Second)
		values = []float64{0}
		condition, _ = ask()
		assert.Equal(t, metav1.ConditionFalse, condition.Status)
		assert.Equal(t, int64(2), s.calls.Load())

		time.Sleep(time.Hour)
		err = errors.New("away")
		condition, next = ask()
		assert.Equal(t, metav1.ConditionFalse, condition.Status, "the last answer is valid for another hour")
		assert.Equal(t, "The risk does not apply to this cluster. This is the last known answer; it could not be confirmed (away).", condition.Message)
		assert.Equal(t, 10*time.Second, next)
		for want := next; time.Since(condition.LastTransitionTime.Time) < time.Hour; {
			time.Sleep(next)
			_, next = ask()
			want = min(2*want, 10*time.Minute)
			require.Equal(t, want, next)
		}
		condition, _ = ask()
		assert.Equal(t, metav1.ConditionUnknown, condition.Status)
		assert.Contains(t, condition.Message, "update risk A (away)")
		assert.Less(t, s.calls.Load(), int64(16))

		time.Sleep(25 * time.Hour)
		err = nil
		condition, next = ask()
		assert.Equal(t, metav1.ConditionFalse, condition.Status)
		assert.Equal(t, time.Hour, next)
	})
}

// TestEvaluateBoundsParallelQueries sends a hundred queries to a source that takes one second for each.
//
//threat:query-overloads
func TestEvaluateBoundsParallelQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		var begun []time.Time
		s := &source{}
		s.query = func(context.Context, string) ([]float64, error) {
			s.mu.Lock()
			begun = append(begun, time.Now())
			s.mu.Unlock()
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
			return []float64{0}, nil
		}
		start := time.Now()
		got := risk.New(clock.RealClock{}, s, risk.Options{Rate: 2, Burst: 3}).Evaluate(t.Context(), risks(100))
		assert.Len(t, got.Applies, 100)
		assert.LessOrEqual(t, most.Load(), int64(4))
		for i, at := range begun {
			assert.GreaterOrEqual(t, at.Sub(start), time.Duration(i-2)*time.Second/2-time.Millisecond, "query %d", i)
		}
		assert.Less(t, time.Since(start), time.Minute)
	})
}

// TestEvaluateBoundsRememberedAnswers simulates an update service that sends other risks each time. Unused answers are remembered because a
// release may return, but their number is limited.
func TestEvaluateBoundsRememberedAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const kept, more = 1000, 10
		s := &source{query: func(context.Context, string) ([]float64, error) { return []float64{0}, nil }}
		e := risk.New(clock.RealClock{}, s, risk.Options{Rate: 1e6, Burst: 1e6})
		all := risks(kept + more)
		for i := range all {
			e.Evaluate(t.Context(), all[i:i+1])
			time.Sleep(time.Millisecond)
		}
		assert.EqualValues(t, kept+more, s.calls.Load())
		e.Evaluate(t.Context(), nil)
		e.Evaluate(t.Context(), all[more:])
		assert.EqualValues(t, kept+more, s.calls.Load(), "the latest answers are remembered")
		e.Evaluate(t.Context(), all[:more])
		assert.EqualValues(t, kept+2*more, s.calls.Load(), "the oldest answers are dropped")
		e.Evaluate(t.Context(), all)
		time.Sleep(time.Millisecond)
		assert.EqualValues(t, kept+2*more, s.calls.Load(), "all requested answers are remembered")
	})
}

func risks(n int) []configv1.ConditionalUpdateRisk {
	var all []configv1.ConditionalUpdateRisk
	for i := range n {
		name := fmt.Sprintf("Risk%d", i)
		all = append(all, ruled(name, query(name)))
	}
	return all
}

// TestEvaluateWaitsOnceForASilentSource checks a source that hangs. The evaluation takes as long as one query, and then queries pause.
//
//threat:prometheus-hangs-fails
func TestEvaluateWaitsOnceForASilentSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := true
		s := &source{query: func(ctx context.Context, _ string) ([]float64, error) {
			if hangs {
				<-ctx.Done()
				return nil, fmt.Errorf("no response: %w", risk.ErrUnreachable)
			}
			return []float64{0}, nil
		}}
		e := risk.New(clock.RealClock{}, s, risk.Options{})
		start := time.Now()
		got := e.Evaluate(t.Context(), risks(100))
		assert.Equal(t, time.Minute, time.Since(start))
		assert.Equal(t, int64(4), s.calls.Load())
		_, err := e.Alerts(t.Context())
		require.EqualError(t, err, "reading alerts: no response: the metrics source does not respond", "without waiting for another minute")
		for name, condition := range got.Applies {
			assert.Equal(t, metav1.ConditionUnknown, condition.Status)
			assert.Contains(t, condition.Message, name+" (no response: the metrics source does not respond)\n")
		}
		assert.Equal(t, 10*time.Second, time.Until(got.Next))
		time.Sleep(9 * time.Second)
		e.Evaluate(t.Context(), risks(100))
		assert.Equal(t, int64(4), s.calls.Load())

		time.Sleep(time.Second)
		got = e.Evaluate(t.Context(), risks(100))
		assert.Equal(t, int64(8), s.calls.Load())
		assert.Equal(t, 20*time.Second, time.Until(got.Next), "the pause becomes longer each time")

		hangs = false
		time.Sleep(time.Until(got.Next))
		got = e.Evaluate(t.Context(), risks(100))
		for _, condition := range got.Applies {
			assert.Equal(t, metav1.ConditionFalse, condition.Status)
		}
		assert.Greater(t, time.Until(got.Next), 30*time.Minute)
	})
}

// TestEvaluateAnswersOtherQueriesIfOneHangs checks that one query that overloads the source does not prevent the other answers.
//
//threat:query-overloads
func TestEvaluateAnswersOtherQueriesIfOneHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{query: func(ctx context.Context, expression string) ([]float64, error) {
			if expression == "Risk0" {
				<-ctx.Done()
				return nil, fmt.Errorf("no response: %w", risk.ErrUnreachable)
			}
			time.Sleep(time.Second)
			return []float64{0}, nil
		}}
		e := risk.New(clock.RealClock{}, s, risk.Options{Parallel: 1})
		var got risk.Answers
		for range 3 {
			got = e.Evaluate(t.Context(), risks(20))
			time.Sleep(time.Until(got.Next))
		}
		for name, condition := range got.Applies {
			if name == "Risk0" {
				assert.Equal(t, metav1.ConditionUnknown, condition.Status)
			} else {
				assert.Equal(t, metav1.ConditionFalse, condition.Status, name)
			}
		}
	})
}

// TestEvaluateContinuesAfterItsTimeLimit evaluates more slow rules than fit into one evaluation.
//
//threat:query-overloads
func TestEvaluateContinuesAfterItsTimeLimit(t *testing.T) {
	const n = 400
	for name, result := range map[string]error{"answered": nil, "failed": errors.New("the query takes too long")} {
		t.Run("it reaches every query that is "+name+" after 50 seconds", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &source{query: func(ctx context.Context, _ string) ([]float64, error) {
					select {
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-time.After(50 * time.Second):
						return []float64{0}, result
					}
				}}
				e := risk.New(clock.RealClock{}, s, risk.Options{})
				for start := time.Now(); time.Since(start) < 4*time.Hour; {
					begin := time.Now()
					got := e.Evaluate(t.Context(), risks(n))
					require.LessOrEqual(t, time.Since(begin), 2*time.Minute)
					if len(s.asked) < n {
						last := got.Applies[fmt.Sprintf("Risk%d", n-1)]
						require.Equal(t, metav1.ConditionUnknown, last.Status)
						require.Contains(t, last.Message, "(the evaluation was interrupted (not all rules were evaluated within 2m0s))")
					}
					time.Sleep(max(time.Until(got.Next), 5*time.Second))
				}
				assert.Len(t, s.asked, n)
			})
		})
	}
}

// TestInterruptedRuleIsNotSkipped checks that a later rule decides only after an earlier rule has failed.
func TestInterruptedRuleIsNotSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{query: func(ctx context.Context, expression string) ([]float64, error) {
			if expression == "no" {
				return []float64{0}, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		e := risk.New(clock.RealClock{}, s, risk.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got := e.Evaluate(ctx, []configv1.ConditionalUpdateRisk{ruled("A", query("slow"), query("no")), ruled("B", query("no"))})
		assert.Equal(t, metav1.ConditionUnknown, got.Applies["A"].Status)
		assert.Equal(t, metav1.ConditionFalse, got.Applies["B"].Status)
	})
}

// TestEvaluateDoesNotCountCanceledQueriesAsFailures ends the context during the evaluation. This does not count as a failure of the rules.
func TestEvaluateDoesNotCountCanceledQueriesAsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{query: func(ctx context.Context, _ string) ([]float64, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		e := risk.New(clock.RealClock{}, s, risk.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got := e.Evaluate(ctx, risks(20))
		assert.Len(t, got.Applies, 20)
		for _, condition := range got.Applies {
			assert.Equal(t, metav1.ConditionUnknown, condition.Status)
			assert.Contains(t, condition.Message, "(the evaluation was interrupted (context deadline exceeded))")
		}
		assert.Equal(t, 10*time.Second, time.Until(got.Next))
		s.query = func(context.Context, string) ([]float64, error) { return []float64{1}, nil }
		for _, condition := range e.Evaluate(t.Context(), risks(20)).Applies {
			assert.Equal(t, metav1.ConditionTrue, condition.Status)
		}
	})
}

// TestEvaluateHandlesRisksWithTheSameName covers different risks with the same name in several updates.
func TestEvaluateHandlesRisksWithTheSameName(t *testing.T) {
	s := &source{query: func(_ context.Context, expression string) ([]float64, error) {
		return map[string][]float64{"yes": {1}, "no": {0}}[expression], nil
	}}
	got := risk.New(clock.RealClock{}, s, risk.Options{}).Evaluate(t.Context(), []configv1.ConditionalUpdateRisk{
		ruled("A", query("no")), ruled("A", query("yes")), ruled("A", query("no")),
	})
	assert.Equal(t, metav1.ConditionTrue, got.Applies["A"].Status, "the strongest reason against updates counts")
	got = risk.New(clock.RealClock{}, s, risk.Options{}).Evaluate(t.Context(), nil)
	assert.Empty(t, got.Applies)
	assert.True(t, got.Next.IsZero())
}
