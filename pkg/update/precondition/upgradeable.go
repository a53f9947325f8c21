package precondition

import (
	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

// isUpgradeable rejects updates to another minor version while there are obstacles; see condition Upgradeable. Updates within the minor
// version pass, because they may remove the obstacles.
func isUpgradeable(in Input) *Objection {
	current, target, objection := versions(in)
	if objection != nil {
		return nil // rollback reports this
	}
	if !upgradeable.Concerns(current.String(), target.String()) {
		return warnWithinMinor(in, current, target)
	}
	if in.Upgradeable != nil {
		reason := in.Upgradeable.Reason
		if in.Upgradeable.Status != configv1.ConditionFalse {
			reason = "UnknownError" // maybe there are no obstacles; the check is repeated
		}
		return &Objection{Reason: reason, Message: in.Upgradeable.Message}
	}
	if in.Accepted != nil {
		return &Objection{Reason: in.Accepted.Reason, Message: in.Accepted.Message, Warning: true}
	}
	return nil
}

// warnWithinMinor warns of conditions that make an update within a minor version riskier.
func warnWithinMinor(in Input, current, target semver.Version) *Objection {
	if upgradeable.Overridden(in.ClusterVersion.Spec.Overrides) {
		return warn(upgradeable.ReasonOverrides, upgradeable.OverridesMessage)
	}
	from, ok := lastCompleted(in.ClusterVersion.Status)
	if !ok || !progressing(in.ClusterVersion.Status) || sameMinor(from, current) || !sameMinor(target, current) {
		return nil
	}
	reason, level := "MinorVersionClusterUpdateInProgress", "minor"
	if from.Major != current.Major {
		reason, level = "MajorVersionClusterUpdateInProgress", "major"
	}
	return warn(reason, "Retarget to %s while a %s version update from %s to %s is in progress", target, level, from, current)
}

func sameMinor(a, b semver.Version) bool { return a.Major == b.Major && a.Minor == b.Minor }

// lastCompleted returns the latest version that the cluster has completed.
func lastCompleted(status configv1.ClusterVersionStatus) (semver.Version, bool) {
	for _, entry := range status.History {
		if entry.State == configv1.CompletedUpdate {
			v, err := semver.Parse(entry.Version)
			return v, err == nil
		}
	}
	return semver.Version{}, false
}

func progressing(status configv1.ClusterVersionStatus) bool {
	c := api.FindCondition(status.Conditions, configv1.OperatorProgressing)
	return c != nil && c.Status == configv1.ConditionTrue
}
