package clusterversion

import (
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// event tells what has happened to the ClusterVersion.
type event struct{ kind, reason, message string }

func normal(reason, format string, args ...any) event {
	return event{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)}
}

func warning(reason, format string, args ...any) event {
	return event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)}
}

// acceptanceEvents tells what is new between two looks at the acceptance of a target.
func acceptanceEvents(before, after Acceptance) []event {
	var events []event
	if after.Step == api.ReasonRetrievePayload && after.Err == nil && (before.Step != after.Step || before.Target != after.Target) {
		events = append(events, normal(api.EventRetrievePayload, "%s", after.Message))
	}
	if after.Step == api.ReasonLoadPayload && before.Step != after.Step && after.Err == nil {
		events = append(events, normal(api.EventLoadPayload, "%s", after.Message))
	}
	if after.Verified.Forced != nil && before.Verified.Forced == nil {
		events = append(events, warning(api.EventRetrievePayload, "%s", after.forcedText()))
	}
	if after.Err != nil && (before.Err == nil || before.Message != after.Message) {
		events = append(events, warning(failureEvent(after.Step), "%s", after.Message))
	}
	if after.Done && !before.Done {
		switch {
		case after.Warned != "":
			events = append(events, warning(api.EventPreconditionWarn, "Precondition warning for payload loaded %s: %s", after.describe(), after.Warned))
		case !after.Target.Own && !after.Target.Return:
			events = append(events, normal(api.EventPreconditionsPassed, "Preconditions passed for payload loaded %s", after.describe()))
		}
		events = append(events, normal(api.EventPayloadLoaded, "%s%s", after.Message, signers(after.Verified)))
	}
	return events
}

// restated reports whether what is to be told of an acceptance stands in status already: after a restart, the same
// question gets the same answer. A status that says that a release is being retrieved may be this attempt's own.
func restated(cv *configv1.ClusterVersion, after Acceptance) bool {
	c := api.FindCondition(cv.Status.Conditions, api.ReleaseAccepted)
	if c == nil || c.Status == configv1.ConditionUnknown {
		return false
	}
	if after.answered() {
		return c.Message == after.Message
	}
	return strings.Contains(c.Message, fmt.Sprintf("image=%q", after.Target.Image))
}

// failingEvents tells of a rollout that has come to fail, or that goes on again.
func failingEvents(before, after configv1.ClusterVersionStatus) []event {
	failing := func(status configv1.ClusterVersionStatus) *configv1.ClusterOperatorStatusCondition {
		if c := api.FindCondition(status.Conditions, api.Failing); c != nil && c.Status == configv1.ConditionTrue {
			return c
		}
		return nil
	}
	was, is := failing(before), failing(after)
	switch {
	case was == nil && is != nil:
		return []event{warning(api.EventRolloutFailing, "%s: %s", is.Reason, is.Message)}
	case was != nil && is == nil:
		return []event{normal(api.EventRolloutRecovered, "Recovered from %s, which began at %s", was.Reason, was.LastTransitionTime.UTC().Format(time.RFC3339))}
	}
	return nil
}

// operatorWait is how long a rollout waits for a ClusterOperator until an event tells of it. It is longer than most
// operators take for an update and far shorter than what status calls slow.
const operatorWait = 5 * time.Minute

// story is what has been told of a rollout. It is a value; what comes next is a new one.
type story struct {
	// started is when the rollout began.
	started time.Time
	// reached counts the runlevels that were reached, each with all those below it; reachedAt is when the last one was,
	// as far as this process has seen it.
	reached    int
	reachedAt  time.Time
	handedOver bool
	dropped    []rollout.Dropped
	loosened   []rollout.Loosened
	// waited are the ClusterOperators that were waited for longer than operatorWait.
	waited []string
}

// newStory begins where a rollout stands before its first pass, so that nothing is told again after a restart.
func newStory(known rollout.Progress, started time.Time) story {
	return story{
		started: started, reached: reachedRunlevels(known), handedOver: known.HandedOver,
		dropped: known.Dropped, loosened: known.Loosened,
	}
}

// progressEvents tells what is new in the progress of a rollout, and returns the story that includes it.
func progressEvents(s story, after rollout.Progress, now time.Time) ([]event, story) {
	var list []event
	if after.Mode == release.Updating {
		for reached := reachedRunlevels(after); s.reached < reached; s.reached++ {
			list = append(list, runlevelReached(after, s, now))
			s.reachedAt = now
		}
	}
	if after.HandedOver && !s.handedOver && after.Mode != release.Reconciling {
		list, s.handedOver = append(list, nodesHandedOver(after.Release.Version)), true
	}
	for _, p := range slowOperators(after, s) {
		if wait := now.Sub(p.Since); wait >= operatorWait {
			list = append(list, operatorWaitedFor(p, after.Release.Version, wait))
			s.waited = append(slices.Clone(s.waited), p.ID.Name)
		}
	}
	for _, d := range after.Dropped {
		if !slices.ContainsFunc(s.dropped, func(told rollout.Dropped) bool { return told.ID == d.ID }) {
			list = append(list, fieldDropped(d))
		}
	}
	for _, l := range after.Loosened {
		told := slices.ContainsFunc(s.loosened, func(told rollout.Loosened) bool {
			return told.ID == l.ID && slices.Equal(told.Fields, l.Fields)
		})
		if !told {
			list = append(list, securityLoosened(l))
		}
	}
	s.dropped, s.loosened = after.Dropped, after.Loosened
	return list, s
}

// reachedRunlevels counts the runlevels that were reached with all those below.
func reachedRunlevels(p rollout.Progress) int {
	open := slices.IndexFunc(p.Runlevels, func(l rollout.Runlevel) bool { return l.Done < l.Total })
	if open < 0 {
		return len(p.Runlevels)
	}
	return open
}

// slowOperators are the ClusterOperators that an unfinished rollout waits for and that were not told of.
func slowOperators(p rollout.Progress, s story) []rollout.Problem {
	if p.Mode == release.Reconciling {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Problems), func(p rollout.Problem) bool {
		return !p.IsClusterOperator() || p.Err != nil || p.State == gate.Settled || p.Since.IsZero() || slices.Contains(s.waited, p.ID.Name)
	})
}

// nextStory is how long it takes until there is something to tell though nothing happens; 0 if there is nothing.
func nextStory(s story, p rollout.Progress, now time.Time) time.Duration {
	next := time.Duration(0)
	for _, p := range slowOperators(p, s) {
		if left := max(operatorWait-now.Sub(p.Since), time.Millisecond); next == 0 || left < next {
			next = left
		}
	}
	return next
}

// unsaid drops events that were written before, as this process learned when it took a rollout over.
func unsaid(list []event, said map[string]bool) []event {
	return slices.DeleteFunc(list, func(e event) bool { return said[headline(e.reason, e.message)] })
}

// headline is what an event is about: its message up to the first comma. What follows may differ the next time, such as
// how long something took.
func headline(reason, message string) string {
	about, _, _ := strings.Cut(message, ",")
	return reason + ": " + about
}

func failureEvent(step string) string {
	switch step {
	case api.ReasonLoadPayload:
		return api.EventLoadPayloadFailed
	case api.ReasonVerifyPayloadVersion:
		return api.EventVerifyPayloadVersionFailed
	case api.ReasonPreconditionChecks, api.ReasonPermissions:
		return api.EventPreconditionBlock
	}
	return api.EventRetrievePayloadFailed
}

// signers names who signed, for the event that tells that a release was accepted.
func signers(v release.Verified) string {
	if len(v.Evidence) == 0 {
		return ""
	}
	parts := make([]string, len(v.Evidence))
	for i, e := range v.Evidence {
		parts[i] = fmt.Sprintf("%s key %s", e.Method, e.KeyID)
		switch {
		case e.Issuer != "":
			parts[i] += fmt.Sprintf(" (%s, by issuer %s)", e.Identity, e.Issuer)
		case e.Identity != "":
			parts[i] += " (" + e.Identity + ")"
		}
		parts[i] += " found in " + e.Store
	}
	return " signed by " + strings.Join(parts, ", ")
}

func updateStarted(from, to string) event {
	if from == "" {
		return normal(api.EventUpdateStarted, "Started to install %s", to)
	}
	return normal(api.EventUpdateStarted, "Started to update from %s to %s", from, to)
}

func updateCompleted(version string, took time.Duration) event {
	return normal(api.EventUpdateCompleted, "Completed %s in %s", version, took.Round(time.Second))
}

func runlevelReached(p rollout.Progress, s story, now time.Time) event {
	level := p.Runlevels[s.reached]
	text := fmt.Sprintf("Reached runlevel %d of %s, %s after the start", level.Runlevel, p.Release.Version, now.Sub(s.started).Round(time.Second))
	if !s.reachedAt.IsZero() {
		text += fmt.Sprintf(" and %s after runlevel %d", now.Sub(s.reachedAt).Round(time.Second), p.Runlevels[s.reached-1].Runlevel)
	}
	return normal(api.EventRunlevelReached, "%s", text)
}

func operatorWaitedFor(p rollout.Problem, version string, wait time.Duration) event {
	return normal(api.EventClusterOperatorWaitedFor, "Waited for ClusterOperator %s at runlevel %d of %s, for %s so far: %s",
		p.ID.Name, p.Runlevel, version, wait.Round(time.Second), p.Message)
}

func nodesHandedOver(version string) event {
	return normal(api.EventNodesHandedOver, "The control plane is at %s; the nodes are handed over to %s", version, api.MachineConfigOperator)
}

func fieldDropped(d rollout.Dropped) event {
	return warning(api.EventFieldDropped, "%s (%s): left out %s, which the API server's schema does not have", d.ID, d.File, strings.Join(d.Fields, ", "))
}

// securityLoosened tells of additions by others: they are theirs and stay, but somebody should know.
func securityLoosened(l rollout.Loosened) event {
	return warning(api.EventSecurityLoosened, "Others set fields of %s that loosen the security of its pods: %s", l.ID, strings.Join(l.Fields, ", "))
}

func driftRepaired(r rollout.Repaired) event {
	by := ""
	if r.Manager != "" {
		by = fmt.Sprintf(" by field manager %q", r.Manager)
	}
	return normal(api.EventDriftRepaired, "Repaired %s, which was %s%s", r.ID, r.Reason, by)
}

func repairsHeldBack(r rollout.Repaired) event {
	return warning(api.EventRepairsHeldBack, "Repairs of %s are held back until %s: field manager %q and the version operator change it in turn",
		r.ID, r.HeldBack.UTC().Format("15:04:05Z"), r.Manager)
}

func orphanPruned(r inventory.Record) event {
	return normal(api.EventOrphanPruned, "Deleted %s, last part of release %s, which release %s names no more", r.ID, r.Release, r.Dropped)
}

func statusRefused(err error) event {
	return warning(api.EventStatusRefused, "The API server refuses part of the status, which is left out: %v", err)
}
