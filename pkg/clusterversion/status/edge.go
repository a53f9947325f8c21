package status

import (
	"slices"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// IsEdge reports whether two statuses differ in something that the rollout or a client waits for: a release was accepted, rejected, started
// or completed; the rollout started to fail or recovered; or the spec became invalid. Counts and texts do not make an edge. Runlevels are
// not in the status.
func IsEdge(before, after configv1.ClusterVersionStatus) bool {
	return !sameRequest(before, after) || !sameAnswer(before, after) ||
		slices.ContainsFunc([]configv1.ClusterStatusConditionType{
			configv1.OperatorAvailable, api.Failing, configv1.OperatorProgressing, api.Invalid,
		}, func(kind configv1.ClusterStatusConditionType) bool {
			return statusOf(before, kind) != statusOf(after, kind)
		})
}

// sameRequest reports whether both statuses name the same release with the same state, start, capabilities and content. A rollout starts
// only after the status names it, see Recorded.
func sameRequest(before, after configv1.ClusterVersionStatus) bool {
	if before.VersionHash != after.VersionHash || !slices.Equal(before.Capabilities.EnabledCapabilities, after.Capabilities.EnabledCapabilities) {
		return false
	}
	if len(before.History) == 0 || len(after.History) == 0 {
		return len(before.History) == len(after.History)
	}
	was, is := before.History[0], after.History[0]
	return was.Image == is.Image && was.Version == is.Version && was.State == is.State && was.StartedTime.Equal(&is.StartedTime)
}

// sameAnswer reports whether both statuses give the same answer about the requested release, or the later one gives no answer. A release
// that is still being retrieved or checked has no answer.
func sameAnswer(before, after configv1.ClusterVersionStatus) bool {
	is := api.FindCondition(after.Conditions, api.ReleaseAccepted)
	if is == nil || is.Status == configv1.ConditionUnknown {
		return true
	}
	was := api.FindCondition(before.Conditions, api.ReleaseAccepted)
	return was != nil && was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message
}

// statusOf returns the status of a condition, empty if it is missing.
func statusOf(status configv1.ClusterVersionStatus, kind configv1.ClusterStatusConditionType) configv1.ConditionStatus {
	if c := api.FindCondition(status.Conditions, kind); c != nil {
		return c.Status
	}
	return ""
}
