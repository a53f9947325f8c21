package clusterversion

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
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

// progressEvents tells what is new between two looks at a rollout; before is nil at the first.
func progressEvents(before *rollout.Progress, after rollout.Progress) []event {
	if before == nil {
		before = &rollout.Progress{}
	}
	var list []event
	if after.HandedOver && !before.HandedOver && after.Mode != release.Reconciling {
		list = append(list, nodesHandedOver(after.Release.Version))
	}
	for _, d := range after.Dropped {
		if !slices.ContainsFunc(before.Dropped, func(told rollout.Dropped) bool { return told.ID == d.ID }) {
			list = append(list, fieldDropped(d))
		}
	}
	for _, l := range after.Loosened {
		told := slices.ContainsFunc(before.Loosened, func(told rollout.Loosened) bool {
			return told.ID == l.ID && slices.Equal(told.Fields, l.Fields)
		})
		if !told {
			list = append(list, securityLoosened(l))
		}
	}
	return list
}

func failureEvent(step string) string {
	switch step {
	case api.ReasonLoadPayload:
		return api.EventLoadPayloadFailed
	case api.ReasonVerifyPayloadVersion:
		return api.EventVerifyPayloadVersionFailed
	case api.ReasonPreconditionChecks:
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
