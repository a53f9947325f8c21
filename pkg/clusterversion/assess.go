package clusterversion

import (
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// How long a wait counts as normal (OpenShift's operator).
const (
	slowAfter              = 30 * time.Minute
	slowAfterMachineConfig = 90 * time.Minute
	degradedFailsAfter     = 40 * time.Minute
	// grace is how long failed requests are retried in silence, and how long an object of a release that is only kept as
	// it is may be unsettled, as every Deployment is between a change and its controller's answer; most pass by themselves.
	grace = 10 * time.Second
)

// assessment is what the problems of a rollout mean for the Failing and Progressing conditions.
type assessment struct {
	failing         configv1.ConditionStatus
	reason, message string
	// summary is the short form of a failure for Progressing; waiting is what a healthy rollout waits for.
	summary, waiting string
	// waitReason is the reason of Progressing while waiting.
	waitReason string
	// recheck is when time alone may change the answer; 0 for never.
	recheck time.Duration
}

// cause is one reason for not being done, of one or several objects.
type cause struct {
	reason, message string
	patience        gate.Patience
	names           []string
	since           []time.Time
	operators       bool
	// exceeded are the names that patience has run out with.
	exceeded []string
}

// plurals are the reasons that several ClusterOperators share, by the reason of a single one, with the message.
func plurals() map[string][2]string {
	return map[string][2]string{
		api.ReasonClusterOperatorNotAvailable: {api.ReasonClusterOperatorsNotAvailable, "Cluster operators %s are not available"},
		api.ReasonClusterOperatorDegraded:     {api.ReasonClusterOperatorsDegraded, "Cluster operators %s are degraded"},
		api.ReasonClusterOperatorUpdating:     {api.ReasonClusterOperatorsUpdating, "Cluster operators %s are updating versions"},
		api.ReasonClusterOperatorNoVersions:   {"ClusterOperatorsNoVersions", "Cluster operators %s do not declare expected versions"},
	}
}

// assess turns problems into an assessment. It is pure, and the same problems give the same texts.
func assess(problems []rollout.Problem, mode release.Mode, now time.Time) assessment {
	a := assessment{failing: configv1.ConditionFalse}
	var hard, soft []cause
	for _, c := range causes(problems, mode, now, &a) {
		if c.tolerated(mode, now, &a) {
			soft = append(soft, c)
		} else {
			hard = append(hard, c)
		}
	}
	if len(hard) > 0 {
		a.fail(hard)
		return a
	}
	a.wait(soft, now)
	return a
}

// trouble is what ClusterOperators must have in common to be told of in one sentence.
type trouble struct {
	reason   string
	patience gate.Patience
}

// causes groups the ClusterOperators that have the same trouble, and leaves out what has its grace.
func causes(problems []rollout.Problem, mode release.Mode, now time.Time, a *assessment) []cause {
	var out []cause
	index := map[trouble]int{}
	for _, p := range problems {
		passing := p.Err != nil || p.Reason == rollout.ReasonDeleting && p.Patience == gate.None || mode == release.Reconciling && p.Patience == gate.UntilSlow && !p.IsClusterOperator()
		if left := grace - now.Sub(p.Since); passing && left > 0 {
			a.recheckIn(left)
			continue
		}
		if left := grace - now.Sub(p.Since); left > 0 && mode != release.Reconciling && p.Reason == api.ReasonClusterOperatorNotAvailable {
			// An operator whose pod has only just started says so; it is waited for like one that updates.
			p.Patience = gate.UntilSlow
			a.recheckIn(left)
		}
		name := p.ID.Name
		if p.ID.Namespace != "" && !p.IsClusterOperator() {
			name = p.ID.Namespace + "/" + name
		}
		c := cause{reason: p.Reason, message: p.Message, patience: p.Patience, names: []string{name}, since: []time.Time{p.Since}, operators: p.IsClusterOperator() && p.Err == nil}
		kind := trouble{p.Reason, p.Patience}
		_, shared := plurals()[p.Reason]
		if at, ok := index[kind]; c.operators && shared && ok {
			out[at].names = append(out[at].names, name)
			out[at].since = append(out[at].since, p.Since)
			continue
		}
		if c.operators {
			index[kind] = len(out)
		}
		out = append(out, c)
	}
	for i := range out {
		out[i].pluralize()
	}
	return out
}

// pluralize words a cause that several ClusterOperators share.
func (c *cause) pluralize() {
	if plural, ok := plurals()[c.reason]; ok && len(c.names) > 1 {
		c.reason, c.message = plural[0], fmt.Sprintf(plural[1], sortedList(c.names))
	}
}

func sortedList(names []string) string {
	return strings.Join(slices.Sorted(slices.Values(names)), ", ")
}

// tolerated reports whether the cause is part of a healthy rollout. A reconciled release tolerates nothing.
func (c *cause) tolerated(mode release.Mode, now time.Time, a *assessment) bool {
	if mode == release.Reconciling {
		return false
	}
	switch c.patience {
	case gate.UntilSlow:
		return true
	case gate.UntilFailed:
		for i, since := range c.since {
			if left := degradedFailsAfter - now.Sub(since); left <= 0 {
				c.exceeded = append(c.exceeded, c.names[i])
			} else {
				a.recheckIn(left)
			}
		}
		return len(c.exceeded) == 0
	case gate.None, gate.Report:
	}
	return false
}

func (a *assessment) recheckIn(d time.Duration) {
	if a.recheck == 0 || d < a.recheck {
		a.recheck = max(d, time.Second)
	}
}

func (a *assessment) fail(hard []cause) {
	a.failing = configv1.ConditionTrue
	if len(hard) == 1 {
		a.reason, a.message, a.summary = hard[0].reason, hard[0].message, hard[0].summarize()
		return
	}
	messages := make([]string, len(hard))
	for i, c := range hard {
		messages[i] = c.message
	}
	slices.Sort(messages)
	a.reason = api.ReasonMultipleErrors
	a.message = "Multiple errors are preventing progress:\n* " + strings.Join(slices.Compact(messages), "\n* ")
	a.summary = "an unknown error has occurred: " + api.ReasonMultipleErrors
}

func (a *assessment) wait(soft []cause, now time.Time) {
	var operators, limited, others []string
	var slow, verySlow []string
	for _, c := range soft {
		switch {
		case c.patience == gate.UntilFailed:
			limited = append(limited, c.names...)
		case c.operators:
			operators = append(operators, c.names...)
		default:
			others = append(others, c.names...)
		}
		if c.operators && a.waitReason == "" || c.patience == gate.UntilFailed {
			a.waitReason = c.reason
		}
		if c.operators && c.patience == gate.UntilSlow {
			for i, name := range c.names {
				limit, list := slowAfter, &slow
				if name == api.MachineConfigOperator {
					limit, list = slowAfterMachineConfig, &verySlow
				}
				if c.since[i].IsZero() {
					continue
				}
				if left := limit - now.Sub(c.since[i]); left > 0 {
					a.recheckIn(left)
				} else {
					*list = append(*list, name)
				}
			}
		}
	}
	a.waiting = waitingText(operators, limited, others)
	if i := slices.IndexFunc(soft, func(c cause) bool { return c.reason == api.ReasonOperatorHandover }); i >= 0 {
		a.waiting, a.waitReason = soft[i].message, soft[i].reason // nothing else of this rollout is this process's to do
	}
	if text := slowText(slow, verySlow); text != "" {
		a.failing, a.reason, a.message = configv1.ConditionUnknown, api.ReasonSlowClusterOperator, text
		a.waiting = text
	}
}

// waitingText names operators first; other objects only if no operator is waited for, and three at most.
func waitingText(operators, limited, others []string) string {
	slices.Sort(operators)
	slices.Sort(limited)
	slices.Sort(others)
	var parts []string
	if len(operators) > 0 {
		parts = append(parts, "waiting on "+strings.Join(operators, ", "))
	}
	if len(limited) > 0 {
		parts = append(parts, fmt.Sprintf("waiting up to %d minutes on %s", int(degradedFailsAfter.Minutes()), strings.Join(limited, ", ")))
	}
	if len(parts) == 0 && len(others) > 0 {
		more := ""
		if len(others) > 3 {
			more = fmt.Sprintf(" and %d more", len(others)-3)
			others = others[:3]
		}
		parts = append(parts, "waiting on "+strings.Join(others, ", ")+more)
	}
	return strings.Join(parts, "; ")
}

func slowText(slow, verySlow []string) string {
	slices.Sort(slow)
	var parts []string
	if len(slow) > 0 {
		parts = append(parts, fmt.Sprintf("%s over %d minutes", strings.Join(slow, ", "), int(slowAfter.Minutes())))
	}
	if len(verySlow) > 0 {
		parts = append(parts, fmt.Sprintf("%s over %d minutes", strings.Join(verySlow, ", "), int(slowAfterMachineConfig.Minutes())))
	}
	if len(parts) == 0 {
		return ""
	}
	return "waiting on " + strings.Join(parts, " and ") + " which is longer than expected"
}

// summarize is the short form for Progressing, in the words of OpenShift's operator.
func (c *cause) summarize() string {
	list := sortedList(c.names)
	if len(c.exceeded) > 0 {
		return fmt.Sprintf("wait has exceeded %d minutes for these operators: %s", int(degradedFailsAfter.Minutes()), sortedList(c.exceeded))
	}
	switch c.reason {
	case api.ReasonResourceNotFound, api.ReasonResourceConflict:
		return "some resources could not be updated"
	case api.ReasonClusterDown:
		return "the control plane is down or not responding"
	case api.ReasonClusterError:
		return "the control plane is reporting an internal error"
	case api.ReasonClusterOverloaded:
		return "the control plane is overloaded and is not accepting updates"
	case api.ReasonClusterUnauthorized:
		return "could not authenticate to the server"
	case api.ReasonPayloadRetrievalFailed:
		return "could not download the update"
	case api.ReasonResourceForbidden:
		return "the server is rejecting updates"
	case api.ReasonResourceTypeMissing:
		return "a required extension is not available to update"
	case api.ReasonResourceInvalid:
		return "some cluster configuration is invalid"
	case api.ReasonPayloadIntegrity:
		return "the contents of the update are invalid"
	case api.ReasonImageVerificationFailed:
		return "the image may not be safe to use"
	case api.ReasonPreconditionCheckFailed:
		return "it may not be safe to apply this update"
	case api.ReasonOperatorNotStarting:
		return "the operator of the release does not start"
	case api.ReasonClusterOperatorDegraded:
		return fmt.Sprintf("the cluster operator %s is degraded", list)
	case api.ReasonClusterOperatorsDegraded:
		return "some cluster operators are degraded"
	case api.ReasonClusterOperatorNotAvailable:
		return fmt.Sprintf("the cluster operator %s is not available", list)
	case api.ReasonClusterOperatorsNotAvailable:
		return "some cluster operators are not available"
	case api.ReasonClusterOperatorNoVersions:
		return fmt.Sprintf("the cluster operator %s does not declare expected versions", list)
	case api.ReasonWorkloadNotAvailable:
		return fmt.Sprintf("the workload %s has not yet successfully rolled out", list)
	case api.ReasonWorkloadNotProgressing:
		return fmt.Sprintf("the workload %s cannot roll out", list)
	}
	if strings.HasPrefix(c.reason, "UpdatePayload") {
		return "the update could not be applied"
	}
	return fmt.Sprintf("%s has an unknown error: %s", list, c.reason)
}
