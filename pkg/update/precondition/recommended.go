package precondition

import (
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// recommendedUpdate warns if the update service does not recommend the update to this cluster, or does not know it. It never blocks,
// because the administrator may have good reasons for the update. Without a service and a channel, no one recommends updates, and the
// release's signature is the only statement about it.
func recommendedUpdate(in Input) *Objection {
	status, version := in.ClusterVersion.Status, in.Target.Version
	if version == status.Desired.Version {
		return nil // not an update
	}
	for _, available := range status.AvailableUpdates {
		if available.Version == version {
			return nil
		}
	}
	for _, conditional := range status.ConditionalUpdates {
		if conditional.Release.Version == version {
			return conditionally(status.Desired.Version, in.Target, conditional.Conditions)
		}
	}
	unknown := fmt.Sprintf("so the recommended status of updating from %s to %s is unknown.", status.Desired.Version, version)
	switch spec := in.ClusterVersion.Spec; {
	case spec.Channel == "" && spec.Upstream == "" && !in.NamesService:
		return nil
	case spec.Channel == "":
		return warn("NoChannel", "Configured channel is unset, %s", unknown)
	}
	retrieved := api.FindCondition(status.Conditions, configv1.RetrievedUpdates)
	switch {
	case retrieved == nil:
		return warn("UnknownUpdate", "No %s, %s", configv1.RetrievedUpdates, unknown)
	case retrieved.Status == configv1.ConditionTrue:
		return warn("UnknownUpdate", "%s=%s (%s), so the update from %s to %s is probably neither recommended nor supported.",
			retrieved.Type, retrieved.Status, retrieved.Reason, status.Desired.Version, version)
	}
	return warn("UnknownUpdate", "%s=%s (%s), %s", retrieved.Type, retrieved.Status, retrieved.Reason, unknown)
}

// conditionally checks the conditions of a conditional update.
func conditionally(from string, to release.Release, conditions []metav1.Condition) *Objection {
	for _, c := range conditions {
		switch {
		case c.Type != api.UpdateRecommended:
			continue
		case c.Status == metav1.ConditionTrue:
			return nil
		case c.Status == metav1.ConditionFalse:
			return warn(c.Reason, "Update from %s to %s is not recommended:\n\n%s", from, to.Version, c.Message)
		}
		return warn(c.Reason, "Update from %s to %s is %s=%s: %s: %s", from, to.Version, c.Type, c.Status, c.Reason, c.Message)
	}
	return warn("UnknownConditionType", "Update from %s to %s has a status.conditionalUpdates entry, but no Recommended condition.", from, to.Version)
}

func warn(reason, format string, args ...any) *Objection {
	return &Objection{Reason: reason, Message: fmt.Sprintf(format, args...), Warning: true}
}
