package precondition

import (
	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// isUpgradeable refuses to leave the minor version while something objects to that: see condition Upgradeable. What stays
// in the minor version passes whatever objects, because that is how what objects gets mended.
func isUpgradeable(in Input) *Objection {
	current, target, objection := versions(in)
	if objection != nil {
		return nil // rollback has said so
	}
	if target.LTE(current) || sameMinor(target, current) {
		return warnWithinMinor(in, current, target)
	}
	if in.Upgradeable != nil {
		reason := in.Upgradeable.Reason
		if in.Upgradeable.Status != configv1.ConditionFalse {
			reason = "UnknownError" // it may be that nothing objects; it is asked again
		}
		return &Objection{Reason: reason, Message: in.Upgradeable.Message}
	}
	if in.Accepted != nil {
		return &Objection{Reason: in.Accepted.Reason, Message: in.Accepted.Message, Warning: true}
	}
	return nil
}

// warnWithinMinor tells what makes an update within a minor version riskier than others.
func warnWithinMinor(in Input, current, target semver.Version) *Objection {
	for _, override := range in.ClusterVersion.Spec.Overrides {
		if override.Unmanaged {
			return warn("ClusterVersionOverridesSet", "Disabling ownership via cluster version overrides prevents updates between minor or major versions. Please remove overrides before requesting a minor or major version update.")
		}
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

// lastCompleted is the newest version that the cluster has completed.
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
