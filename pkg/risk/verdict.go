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

// verdict is what the rules of a risk come to.
type verdict struct {
	match bool
	// err is why that is not known; with known it is why an old answer has to do.
	err   error
	known bool
	// next is when that may change, zero for never.
	next time.Time
	// wanted is the expression that has to be asked for first, if any.
	wanted string
}

// record takes over what the source said of an expression.
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
	} else if !now.Before(e.outage.until) { // or it is one of those that were asked at the same time
		e.outage.failures++
		e.outage.err, e.outage.until = err, now.Add(retry(e.outage.failures))
	}
	if err != nil {
		a.failures++
		a.err, a.due = err, now.Add(retry(a.failures))
		return
	}
	*a = answer{match: match, found: now, used: now, due: now.Add(e.options.Fresh)}
}

// verdict goes through rules in their order: the first that can be evaluated decides. An expression that has to be asked
// for ends it, if it may be.
func (e *Evaluator) verdict(rules []configv1.ClusterCondition, now time.Time, may func(expression string) bool) verdict {
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
			v = e.look(rule.PromQL.PromQL, now, may)
		default:
			continue // of a type that comes with later releases
		}
		next = earlier(next, v.next)
		if v.known || v.wanted != "" {
			v.next = next
			return v
		}
		failed = append(failed, v.err)
	}
	if len(failed) == 0 {
		failed = append(failed, errors.New("it has no rule of a type that is known here"))
	}
	return verdict{err: allOf(failed), next: next}
}

// allOf is several errors on one line, whose text is the same in whichever order they came.
func allOf(errs []error) error {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	slices.Sort(texts)
	return api.Reworded(errors.Join(errs...), strings.Join(slices.Compact(texts), "; "))
}

// look tells what is known of an expression.
func (e *Evaluator) look(expression string, now time.Time, may func(string) bool) verdict {
	a := e.answers[expression]
	if a == nil {
		a = &answer{due: now}
	} else {
		a.used = now
	}
	out := now.Before(e.outage.until)
	if !now.Before(a.due) && !out && may(expression) {
		return verdict{wanted: expression}
	}
	v := verdict{match: a.match, err: a.err, next: a.due}
	switch {
	case out && a.err != nil && e.outage.until.After(a.due):
		v.next = e.outage.until
	case out && !now.Before(a.due):
		v.err, v.next = e.outage.err, e.outage.until
	case !now.Before(a.due): // nobody came to ask
		v.next = now.Add(firstRetry)
	}
	v.known = !a.found.IsZero() && now.Before(a.found.Add(2*e.options.Fresh))
	if !v.known && v.err == nil {
		v.err = errors.New("the evaluation was broken off")
	}
	return v
}

// earlier is the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// conclude tells from what is known which risks apply.
func (e *Evaluator) conclude(ctx context.Context, risks []configv1.ConditionalUpdateRisk) Answers {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	answers := Answers{Applies: map[string]metav1.Condition{}}
	for _, risk := range risks {
		v := e.verdict(risk.MatchingRules, now, func(string) bool { return false })
		if !v.known && ctx.Err() != nil {
			v.err = fmt.Errorf("%w (%w)", v.err, context.Cause(ctx))
		}
		answers.Next = earlier(answers.Next, v.next)
		condition := v.condition(risk)
		condition.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
		answers.Applies[risk.Name] = worse(answers.Applies, risk.Name, condition)
	}
	return answers
}

// condition is Applies of a risk whose rules come to this.
func (v verdict) condition(risk configv1.ConditionalUpdateRisk) metav1.Condition {
	condition := metav1.Condition{Type: Applies, Status: metav1.ConditionFalse, Message: "The risk does not apply to this cluster."}
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
		condition.Message += fmt.Sprintf(" That is the last answer, and could not be confirmed (%v).", v.err)
	}
	return condition
}
