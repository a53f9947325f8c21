// Package assess turns the problems of a rollout into an assessment for the conditions Failing and Progressing. It decides whether the
// rollout fails, is slow or only waits. It is pure: the same problems result in the same texts.
package assess

import (
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Times that OpenShift's operator considers normal for a wait.
const (
	slowAfter              = 30 * time.Minute
	slowAfterMachineConfig = 90 * time.Minute
	degradedFailsAfter     = 40 * time.Minute
	// grace is how long failed requests are retried before they are reported. It is also how long an object of a settled release may be
	// unsettled. A Deployment is unsettled between each change and its controller's answer, and most such states are transient.
	grace = 10 * time.Second
)

// Assessment is the result of assessing a rollout's problems, for the Failing and Progressing conditions.
type Assessment struct {
	Failing         configv1.ConditionStatus
	Reason, Message string
	// Summary is the short form of a failure for Progressing. Waiting names the pending gates of a healthy rollout.
	Summary, Waiting string
	// WaitReason is the reason of Progressing during the wait.
	WaitReason string
	// Recheck is the time after which the assessment may change without an event; 0 for never.
	Recheck time.Duration
}

// cause is one reason why the rollout of one or more objects is not done.
type cause struct {
	reason, message string
	patience        gate.Patience
	names           []string
	since           []time.Time
	operators       bool
	workload        bool
	// pod names the pod that keeps a workload waiting, and the reason; empty if unknown.
	pod string
	// exceeded are the names that have run out of patience.
	exceeded []string
}

// plurals maps the reason of a single ClusterOperator to the reason and the message for several.
func plurals() map[string][2]string {
	return map[string][2]string{
		api.ReasonClusterOperatorNotAvailable: {api.ReasonClusterOperatorsNotAvailable, "Cluster operators %s are not available"},
		api.ReasonClusterOperatorDegraded:     {api.ReasonClusterOperatorsDegraded, "Cluster operators %s are degraded"},
		api.ReasonClusterOperatorUpdating:     {api.ReasonClusterOperatorsUpdating, "Cluster operators %s are updating versions"},
		api.ReasonClusterOperatorNoVersions:   {api.ReasonClusterOperatorsNoVersions, "Cluster operators %s do not declare expected versions"},
	}
}

// Rollout turns problems into an assessment.
func Rollout(problems []report.Problem, mode release.Mode, now time.Time) Assessment {
	a := Assessment{Failing: configv1.ConditionFalse}
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
	a.wait(soft, mode, now)
	return a
}

// Fails reports whether Failing counts the problem as a failure. Until then the rollout waits for the object.
func Fails(problem report.Problem, mode release.Mode, now time.Time) bool {
	return Rollout([]report.Problem{problem}, mode, now).Failing == configv1.ConditionTrue
}

// Patiently changes failed objects of a snapshot to waiting ones as long as Failing has patience with them, so that no view reports a failure
// that the ClusterVersion does not report.
func Patiently(snapshot *report.Snapshot) {
	progress := &snapshot.Progress
	progress.Problems = slices.Clone(progress.Problems)
	failed := map[manifest.ID]bool{}
	for i := range progress.Problems {
		p := &progress.Problems[i]
		if p.State != gate.Failed {
			continue
		}
		if failed[p.ID] = Fails(*p, progress.Mode, snapshot.At); !failed[p.ID] {
			p.State = gate.Waiting
		}
	}
	for i := range snapshot.Objects {
		// An object that failed after the last report of progress has failed only now.
		if o := &snapshot.Objects[i]; o.State == report.StateFailed && !failed[o.ID] {
			o.State = report.StateWaiting
		}
	}
}

// trouble is the key under which ClusterOperators share a sentence.
type trouble struct {
	reason   string
	patience gate.Patience
}

// causes groups ClusterOperators with the same trouble and omits problems within their grace.
func causes(problems []report.Problem, mode release.Mode, now time.Time, a *Assessment) []cause {
	var out []cause
	index := map[trouble]int{}
	for _, p := range problems {
		if p.Patience == gate.Notice {
			continue
		}
		isTransient := p.Err != nil || p.Reason == api.ReasonDeleting && p.Patience == gate.None || mode == release.Reconciling && p.Patience == gate.UntilSlow && !p.IsClusterOperator()
		if left := grace - now.Sub(p.Since); isTransient && left > 0 {
			a.recheckIn(left)
			continue
		}
		// A new operator whose pod has just started reports that it is not available. A new Deployment reports a replica failure until its
		// namespace has the service account. The rollout waits for both as for an updating operator.
		if left := grace - now.Sub(p.Since); left > 0 && mode != release.Reconciling && mayBeNew(p) {
			p.Patience = gate.UntilSlow
			a.recheckIn(left)
		}
		name := p.ID.Name
		if p.ID.Namespace != "" && !p.IsClusterOperator() {
			name = p.ID.Namespace + "/" + name
		}
		c := cause{reason: p.Reason, message: p.Message, patience: p.Patience, names: []string{name}, since: []time.Time{p.Since}}
		c.operators, c.workload, c.pod = p.IsClusterOperator() && p.Err == nil, p.IsWorkload() && p.Err == nil, p.Pod
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

// mayBeNew reports whether an object that was just created can have the problem.
func mayBeNew(p report.Problem) bool {
	switch p.Reason {
	case api.ReasonClusterOperatorNotAvailable:
		return true
	case api.ReasonWorkloadNotAvailable, api.ReasonWorkloadNotProgressing:
		return p.IsWorkload()
	}
	return false
}

// pluralize sets the plural reason and message of a cause that several ClusterOperators share.
func (c *cause) pluralize() {
	if plural, ok := plurals()[c.reason]; ok && len(c.names) > 1 {
		c.reason, c.message = plural[0], fmt.Sprintf(plural[1], sortedList(c.names))
	}
}

func sortedList(names []string) string {
	return strings.Join(slices.Sorted(slices.Values(names)), ", ")
}

// tolerated reports whether the cause is part of a healthy rollout. While reconciling, no cause is tolerated.
func (c *cause) tolerated(mode release.Mode, now time.Time, a *Assessment) bool {
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
	case gate.None, gate.Report, gate.Notice:
	}
	return false
}

func (a *Assessment) recheckIn(d time.Duration) {
	if a.Recheck == 0 || d < a.Recheck {
		a.Recheck = max(d, time.Second)
	}
}

func (a *Assessment) fail(hard []cause) {
	a.Failing = configv1.ConditionTrue
	if len(hard) == 1 {
		a.Reason, a.Message, a.Summary = hard[0].reason, hard[0].message, hard[0].summarize()
		return
	}
	messages := make([]string, len(hard))
	for i, c := range hard {
		messages[i] = c.message
	}
	slices.Sort(messages)
	a.Reason = api.ReasonMultipleErrors
	a.Message = "Multiple errors are preventing progress:\n* " + strings.Join(slices.Compact(messages), "\n* ")
	a.Summary = (&cause{reason: api.ReasonMultipleErrors}).summarize()
}

func (a *Assessment) wait(soft []cause, mode release.Mode, now time.Time) {
	var operators, limited, workloads, others []string
	var slow, verySlow []string
	for _, c := range soft {
		switch {
		case c.patience == gate.UntilFailed:
			limited = append(limited, c.names...)
		case c.operators:
			operators = append(operators, c.names...)
		case c.workload:
			workloads = append(workloads, c.names[0]+parenthesis(c.pod))
		default:
			others = append(others, c.names...)
		}
		if c.operators && a.WaitReason == "" || c.patience == gate.UntilFailed {
			a.WaitReason = c.reason
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
	if len(operators) > 0 {
		others = nil
		if mode != release.Initializing {
			workloads = nil
		}
	}
	a.Waiting = waitingText(operators, limited, named(workloads, others))
	if i := slices.IndexFunc(soft, func(c cause) bool { return c.reason == api.ReasonOperatorHandover }); i >= 0 {
		a.Waiting, a.WaitReason = soft[i].message, soft[i].reason // only the replacement of this process is left
	}
	if text := slowText(slow, verySlow); text != "" {
		a.Failing, a.Reason, a.Message = configv1.ConditionUnknown, api.ReasonSlowClusterOperator, text
		a.Waiting = text
	}
}

// The maximum numbers of workloads and of other objects in the text about a wait.
const (
	maxWorkloads = 50
	maxOthers    = 3
)

func parenthesis(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// named returns the names of workloads and then of other objects, each sorted, and the number of names that it leaves out.
func named(workloads, others []string) []string {
	slices.Sort(workloads)
	slices.Sort(others)
	shownWorkloads := min(len(workloads), maxWorkloads)
	shownOthers := min(len(others), max(maxOthers-shownWorkloads, 0))
	shown := slices.Concat(workloads[:shownWorkloads], others[:shownOthers])
	if more := len(workloads) + len(others) - len(shown); more > 0 {
		shown[len(shown)-1] += fmt.Sprintf(" and %d more", more)
	}
	return shown
}

// waitingText names operators first. An update names other objects only if every operator has reached its version: an operator in a lower
// runlevel that degrades again therefore does not hide the pending objects of the current level. An install waits for everything at once.
func waitingText(operators, limited, others []string) string {
	slices.Sort(operators)
	slices.Sort(limited)
	var parts []string
	if names := slices.Concat(operators, others); len(names) > 0 {
		parts = append(parts, "waiting on "+strings.Join(names, ", "))
	}
	if len(limited) > 0 {
		parts = append(parts, fmt.Sprintf("waiting up to %d minutes on %s", int(degradedFailsAfter.Minutes()), strings.Join(limited, ", ")))
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

// summarize returns the short form for Progressing. Its texts are those of OpenShift's operator.
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
	case api.ReasonNoAcceptedRelease:
		return "no release is accepted, so nothing is applied or repaired"
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
	case api.ReasonClusterOperatorsNoVersions:
		return fmt.Sprintf("the cluster operators %s do not declare expected versions", list)
	case api.ReasonClusterOperatorUpdating:
		return fmt.Sprintf("the cluster operator %s is updating versions", list)
	case api.ReasonClusterOperatorsUpdating:
		return fmt.Sprintf("the cluster operators %s are updating versions", list)
	case api.ReasonOperatorHandover:
		return "the operator of the release has not taken over yet"
	case api.ReasonNotObserved:
		return fmt.Sprintf("the state of %s has not been observed yet", list)
	case api.ReasonDeleting:
		return fmt.Sprintf("%s is being deleted", list)
	case api.ReasonFight:
		return fmt.Sprintf("another client keeps changing %s", list)
	case api.ReasonNotEstablished:
		return fmt.Sprintf("the custom resource definition %s is not established", list)
	case api.ReasonNamesNotAccepted:
		return fmt.Sprintf("the names of the custom resource definition %s are not accepted", list)
	case api.ReasonNotAvailable:
		return fmt.Sprintf("the API service %s is not available", list)
	case api.ReasonMultipleErrors:
		// OpenShift's operator uses exactly this text, and runbooks and searches look for it. Failing lists the errors.
		return "an unknown error has occurred: " + c.reason
	case api.ReasonSlowClusterOperator:
		return fmt.Sprintf("the cluster operator %s takes longer than expected", list)
	case api.ReasonInvalidClusterVersion:
		return "the cluster version is invalid"
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
