package status

import (
	"errors"
	"slices"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

// Obstacles returns the obstacles to updates to another minor version, as of the last watch events and the known state of the rollout.
// accepted and progress are nil if unknown. stuck is the reason why the rollout can make no pass; nil if it can.
func Obstacles(
	cv *configv1.ClusterVersion, cluster upgradeable.Cluster, accepted *accept.Acceptance, progress *report.Progress, stuck *report.Problem,
) []upgradeable.Obstacle {
	var rollout upgradeable.Rollout
	if accepted != nil {
		rollout.Version, rollout.Image = accepted.Payload.Release.Version, accepted.Image()
		rollout.Manifests = accepted.Payload.Manifests
	}
	switch {
	case progress != nil && progress.UnknownDeletions == report.Unknown{}:
	case stuck != nil && accepted == nil: // nothing is being deleted, and another release is the remedy
	case stuck != nil:
		rollout.DeletionsErr = stuck.Err
	case progress != nil && !progress.UnknownDeletions.Pending:
		rollout.DeletionsErr = errors.New(progress.UnknownDeletions.Reason)
	default:
		rollout.DeletionsErr = upgradeable.ErrPending
	}
	if progress != nil {
		rollout.Complete = progress.Complete
		for _, d := range progress.Deletions {
			rollout.Deletions = append(rollout.Deletions, d.ID.String())
		}
	}
	return upgradeable.Find(upgradeable.InputOf(cv, cluster, rollout))
}

// obsoleteConditions returns the types of conditions that earlier versions of OpenShift's operator left behind.
func obsoleteConditions() []configv1.ClusterStatusConditionType {
	return []configv1.ClusterStatusConditionType{
		"UpgradeableAdminAckRequired", "UpgradeableDeletesInProgress", "UpgradeableClusterOperators",
		"UpgradeableClusterVersionOverrides", "UpgradeableUpgradeInProgress", "ImplicitlyEnabled",
	}
}

// setUpgradeable sets condition Upgradeable from the obstacles. It keeps the condition until everything has been read, so that a start of
// the operator does not toggle it.
func setUpgradeable(status *configv1.ClusterVersionStatus, set setter, in Observed) {
	condition, objects := upgradeable.Condition(in.Obstacles)
	pending := upgradeable.Pending(in.Obstacles)
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool {
		return slices.Contains(obsoleteConditions(), c.Type) || c.Type == configv1.OperatorUpgradeable && !objects && !pending
	})
	if objects && !pending {
		set(condition.Type, condition.Status, condition.Reason, condition.Message)
	}
}
