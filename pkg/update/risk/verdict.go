package risk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// verdict is the result of a risk's rules.
type verdict struct {
	match bool
	// err is the reason why the result is unknown or, if known is set, why an old result is used.
	err   error
	known bool
	// next is the time when the result may change; zero means never.
	next time.Time
	// wanted is the expression that must be queried first; empty if there is none.
	wanted string
}

// record stores the result of an expression.
func (e *Evaluator) record(expression string, match bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	a := e.answers[expression]
	if a == nil {
		a = &answer{}
		e.answers[expression] = a
	}
	a.used = now
	if !errors.Is(err, ErrUnreachable) {
		e.outage = outage{}
	} else if !now.Before(e.outage.until) { // otherwise the query ran in parallel with a failure that already counts
		e.outage.failures++
		e.outage.err, e.outage.until = err, now.Add(retryDelay.After(e.outage.failures))
	}
	if err != nil {
		a.failures++
		a.err, a.due = err, now.Add(retryDelay.After(a.failures))
		return
	}
	*a = answer{match: match, found: now, used: now, due: now.Add(e.options.Fresh)}
}

// errInterrupted is the reason why an expression has no answer although no query for it has failed.
var errInterrupted = errors.New("the evaluation was interrupted")

// verdict evaluates the rules in order. The first rule that can be evaluated decides. It stops at an expression that must be queried first,
// if mayQuery allows the query, and at one whose query was interrupted, because that rule may still decide.
func (e *Evaluator) verdict(rules []configv1.ClusterCondition, now time.Time, mayQuery func(expression string) bool) verdict {
	var failed []error
	var next time.Time
	for _, rule := range rules {
		var v verdict
		switch {
		case rule.Type == always && rule.PromQL == nil:
			return verdict{match: true, known: true, next: next}
		case rule.Type == always:
			v.err = errors.New("a rule that always applies cannot have a query")
		case rule.Type == promQL && (rule.PromQL == nil || strings.TrimSpace(rule.PromQL.PromQL) == ""):
			v.err = errors.New("a rule of type PromQL has no query")
		case rule.Type == promQL:
			v = e.lookup(rule.PromQL.PromQL, now, mayQuery)
		default:
			continue // a type that comes with later releases
		}
		next = earlier(next, v.next)
		if v.known || v.wanted != "" || errors.Is(v.err, errInterrupted) {
			v.next = next
			return v
		}
		failed = append(failed, v.err)
	}
	if len(failed) == 0 {
		failed = append(failed, errors.New("no rule of a known type"))
	}
	return verdict{err: allOf(failed), next: next}
}

// allOf joins errors into one line. The text does not depend on their order.
func allOf(errs []error) error {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	slices.Sort(texts)
	return api.Reworded(errors.Join(errs...), strings.Join(slices.Compact(texts), "; "))
}

// lookup returns the known result of an expression.
func (e *Evaluator) lookup(expression string, now time.Time, mayQuery func(string) bool) verdict {
	a := e.answers[expression]
	if a == nil {
		a = &answer{due: now}
	} else {
		a.used = now
	}
	inOutage := now.Before(e.outage.until)
	if !now.Before(a.due) && !inOutage && mayQuery(expression) {
		return verdict{wanted: expression}
	}
	v := verdict{match: a.match, err: a.err, next: a.due}
	switch {
	case inOutage && a.err != nil && e.outage.until.After(a.due):
		v.next = e.outage.until
	case inOutage && !now.Before(a.due):
		v.err, v.next = e.outage.err, e.outage.until
	case !now.Before(a.due): // due, but not queried yet
		v.next = now.Add(retryDelay.First)
	}
	v.known = !a.found.IsZero() && now.Before(a.found.Add(2*e.options.Fresh))
	if !v.known && v.err == nil {
		v.err = errInterrupted
	}
	return v
}

// earlier returns the earlier of two times, where zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// conclude derives the Applies conditions of risks from the known answers.
func (e *Evaluator) conclude(ctx context.Context, risks []configv1.ConditionalUpdateRisk) Answers {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	answers := Answers{Applies: map[string]metav1.Condition{}}
	for _, risk := range risks {
		v := e.verdict(risk.MatchingRules, now, func(string) bool { return false })
		if errors.Is(v.err, errInterrupted) && ctx.Err() != nil {
			v.err = fmt.Errorf("%w (%w)", v.err, context.Cause(ctx))
		}
		answers.Next = earlier(answers.Next, v.next)
		condition := v.condition(risk)
		condition.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
		answers.Applies[risk.Name] = worse(answers.Applies, risk.Name, condition)
	}
	return answers
}

// condition returns the Applies condition of a risk with this verdict.
func (v verdict) condition(risk configv1.ConditionalUpdateRisk) metav1.Condition {
	condition := metav1.Condition{Type: api.RiskApplies, Status: metav1.ConditionFalse, Message: "The risk does not apply to this cluster."}
	switch {
	case !v.known:
		condition.Status = metav1.ConditionUnknown
		condition.Message = fmt.Sprintf("Could not evaluate exposure to update risk %s (%v)\n  %s description: %s\n  %s URL: %s",
			risk.Name, v.err, risk.Name, risk.Message, risk.Name, risk.URL)
	case v.match:
		condition.Status, condition.Message = metav1.ConditionTrue, "The risk applies to this cluster."
	}
	condition.Reason = reasonOf(condition.Status)
	if v.known && v.err != nil {
		condition.Message += fmt.Sprintf(" This is the last known answer; it could not be confirmed (%v).", v.err)
	}
	return condition
}
