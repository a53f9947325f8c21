package reported

import (
	"fmt"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// RequestedPreflight returns the requested preflight, or nil.
func RequestedPreflight(cv *configv1.ClusterVersion) *configv1.Update {
	if asked := cv.Spec.DesiredUpdate; asked != nil && asked.Mode == configv1.UpdateModePreflight {
		return asked
	}
	return nil
}

// Requested returns the requested update, or nil. A preflight is not an update, because its release is never rolled out.
func Requested(cv *configv1.ClusterVersion) *configv1.Update {
	wanted := cv.Spec.DesiredUpdate
	if wanted == nil || wanted.Mode == configv1.UpdateModePreflight || wanted.Version == "" && wanted.Image == "" && wanted.Architecture == "" {
		return nil
	}
	return wanted
}

// Runs reports whether the operator is rolling out the requested update.
func Runs(cv *configv1.ClusterVersion, wanted *configv1.Update) bool {
	desired := cv.Status.Desired
	if wanted.Version != "" && wanted.Version != desired.Version {
		return false
	}
	// A mirror has another name for the same image, but the digest is the same.
	if digest := release.Pullspec(wanted.Image).Digest(); digest != "" && digest != release.Pullspec(desired.Image).Digest() {
		return false
	}
	if wanted.Architecture != "" && wanted.Architecture != desired.Architecture {
		return false
	}
	if wanted.Image != "" && wanted.Image != desired.Image && release.Pullspec(wanted.Image).Digest() == "" {
		// A tag does not identify an image. The operator reports whether it has accepted the request.
		accepted := api.FindCondition(cv.Status.Conditions, api.ReleaseAccepted)
		return accepted == nil || accepted.Status == configv1.ConditionTrue
	}
	return true
}

// WaitsForInstall reports whether a requested update that the operator does not roll out waits for the first install. Condition
// ReleaseAccepted then concerns the release that is being installed; only its message names that release.
func WaitsForInstall(cv *configv1.ClusterVersion, wanted *configv1.Update) bool {
	if HasCompleted(cv.Status.History) {
		return false
	}
	accepted := api.FindCondition(cv.Status.Conditions, api.ReleaseAccepted)
	return wanted.Image == "" || accepted != nil && !names(accepted, wanted)
}

// names reports whether the message of condition ReleaseAccepted names the image of a requested update.
func names(accepted *configv1.ClusterOperatorStatusCondition, wanted *configv1.Update) bool {
	return strings.Contains(accepted.Message, fmt.Sprintf("image=%q", wanted.Image))
}

// Unrecorded returns the operator's reason for not recording a request by tag, or "". The operator does not observe such a request.
func Unrecorded(cv *configv1.ClusterVersion) string {
	wanted, accepted := Requested(cv), api.FindCondition(cv.Status.Conditions, api.ReleaseAccepted)
	if wanted == nil || wanted.Image == "" || release.Pullspec(wanted.Image).Digest() != "" || cv.Status.ObservedGeneration == cv.Generation ||
		accepted == nil || accepted.Status != configv1.ConditionFalse || !names(accepted, wanted) || !strings.Contains(accepted.Message, api.CannotRecord) {
		return ""
	}
	return accepted.Message
}

// Completed reports whether the rollout of the operator's current release is complete.
func Completed(cv *configv1.ClusterVersion) bool {
	history := cv.Status.History
	return len(history) > 0 && history[0].State == configv1.CompletedUpdate &&
		history[0].Version == cv.Status.Desired.Version && history[0].Image == cv.Status.Desired.Image
}
