package accept

import (
	"fmt"
	"strings"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/release"
)

// Events returns the events for the changes between two states of an acceptance.
func Events(before, after Acceptance) []event.Event {
	var events []event.Event
	if after.Step == api.ReasonRetrievePayload && after.Err == nil && (before.Step != after.Step || before.Target != after.Target) {
		events = append(events, event.Normal(api.EventRetrievePayload, "%s", after.Message))
	}
	if after.Step == api.ReasonLoadPayload && before.Step != after.Step && after.Err == nil {
		events = append(events, event.Normal(api.EventLoadPayload, "%s", after.Message))
	}
	if after.IsForced() && !before.IsForced() {
		events = append(events, event.Warning(api.EventRetrievePayload, "%s", after.forcedText()))
	}
	if after.Err != nil && (before.Err == nil || before.Message != after.Message) {
		events = append(events, event.Warning(FailureEvent(after.Step), "%s", after.Message))
	}
	if after.Done && !before.Done {
		switch {
		case after.Warned != "":
			events = append(events, event.Warning(api.EventPreconditionWarn, "Precondition warning for payload loaded %s: %s", after.Describe(), after.Warned))
		case !after.Target.Own && !after.Target.Return:
			events = append(events, event.Normal(api.EventPreconditionsPassed, "Preconditions passed for payload loaded %s", after.Describe()))
		}
		events = append(events, event.Normal(api.EventPayloadLoaded, "%s%s", after.Message, signers(after.Verified)))
		if enables := after.EnablesText(); enables != "" {
			events = append(events, event.Normal(api.EventCapabilityEnabled, "%s", enables))
		}
		if nothing := after.Nothing(); nothing != "" {
			events = append(events, event.Warning(api.EventNothingIncluded, "The cluster gets no component: %s", nothing))
		}
		if skipped := after.Payload.Skipped; len(skipped) > 0 {
			texts := make([]string, len(skipped))
			for i, s := range skipped {
				texts[i] = s.String()
			}
			events = append(events, event.Warning(api.EventFilesSkipped, "This operator cannot read files of release %s: %s",
				after.Payload.Release.Version, printable.List(texts, printable.Few)))
		}
	}
	return events
}

// FailureEvent returns the event reason for a failed step.
func FailureEvent(step string) string {
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

// signers lists the signers for the event about an accepted release.
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
