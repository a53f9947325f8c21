package clusterversion

import (
	"context"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/precondition"
	"github.com/cluster-version/cvo/pkg/rollout"
	"github.com/cluster-version/cvo/pkg/upgradeable"
)

// lookForObstacles collects what keeps the cluster from another minor version. If that has changed since a release was
// refused by preconditions, they are asked again at once.
func (c *Reconciler) lookForObstacles(_ context.Context, r *round) error {
	r.obstacles = c.findObstacles(r.cv)
	if r.latest.Err != nil && !slices.Equal(r.obstacles, r.latest.weighed) {
		c.weighAgain()
	}
	return nil
}

// findObstacles takes what watches have told, and what is known of the rollout. It makes no request.
func (c *Reconciler) findObstacles(cv *configv1.ClusterVersion) []upgradeable.Obstacle {
	var cluster upgradeable.Cluster
	if c.stages.Cluster != nil {
		cluster = c.stages.Cluster()
	}
	c.mu.Lock()
	accepted, progress := c.memory.accepted, c.memory.progress
	c.mu.Unlock()
	return upgradeable.Find(obstacleInput(cv, cluster, accepted, progress))
}

// obstacleInput foresees what status will say of the cluster once this round has written it, so that condition Upgradeable
// goes together with the others.
func obstacleInput(cv *configv1.ClusterVersion, cluster upgradeable.Cluster, accepted *Acceptance, progress *rollout.Progress) upgradeable.Input {
	in := upgradeable.Input{
		Cluster: cluster, Current: cv.Status.Desired.Version, Overrides: cv.Spec.Overrides,
		Installed: slices.ContainsFunc(cv.Status.History, func(e configv1.UpdateHistory) bool { return e.State == configv1.CompletedUpdate }),
	}
	if progress != nil {
		for _, d := range progress.Deletions {
			in.Deletions = append(in.Deletions, d.ID.String())
		}
	}
	if accepted == nil { // as after a restart: the conditions stay as they are, too
		c := api.FindCondition(cv.Status.Conditions, configv1.OperatorProgressing)
		in.Updating = c != nil && c.Status == configv1.ConditionTrue
		return in
	}
	in.Current = accepted.Payload.Release.Version
	newest := len(cv.Status.History) > 0 && cv.Status.History[0].Image == accepted.Image()
	completed := newest && (cv.Status.History[0].State == configv1.CompletedUpdate || progress != nil && progress.Complete)
	in.Updating = !completed
	in.BringsGates = brings(*accepted, api.ConfigManagedNamespace, api.AdminGatesConfigMap)
	in.BringsAcks = brings(*accepted, api.ConfigNamespace, api.AdminAcksConfigMap)
	return in
}

// brings reports whether a release has a manifest for a ConfigMap.
func brings(a Acceptance, namespace, name string) bool {
	return slices.ContainsFunc(a.Payload.Manifests, func(m *manifest.Manifest) bool {
		return m.Object.GetName() == name && m.Object.GetNamespace() == namespace && m.Is("", "ConfigMap") && !m.Tombstone()
	})
}

// preconditions collects what a release is weighed by. Risks that an administrator has accepted by name do not hold it up.
func (in acceptInput) preconditions(ctx context.Context, a *Acceptance) precondition.Input {
	out := precondition.Input{ClusterVersion: in.cv, Target: a.Payload.Release, Manifests: managed(*a, in.cv.Spec.Overrides)}
	if in.Server != nil {
		out.Server = in.Server(ctx)
	}
	a.weighed = nil
	if in.obstacles != nil {
		a.weighed = in.obstacles(in.cv)
	}
	names := sets.New[string]()
	if update := in.cv.Spec.DesiredUpdate; update != nil {
		for _, risk := range update.AcceptRisks {
			names.Insert(risk.Name)
		}
	}
	var accepted, open []upgradeable.Obstacle
	for _, o := range a.weighed {
		if names.Has(o.Risk) {
			accepted = append(accepted, o)
		} else {
			open = append(open, o)
		}
	}
	out.Upgradeable, out.Accepted = conditionOf(open), conditionOf(accepted)
	return out
}

func conditionOf(obstacles []upgradeable.Obstacle) *configv1.ClusterOperatorStatusCondition {
	if condition, ok := upgradeable.Condition(obstacles); ok {
		return &condition
	}
	return nil
}

// obsoleteConditions are those that earlier versions of OpenShift's operator left behind.
func obsoleteConditions() []configv1.ClusterStatusConditionType {
	return []configv1.ClusterStatusConditionType{
		"UpgradeableAdminAckRequired", "UpgradeableDeletesInProgress", "UpgradeableClusterOperators",
		"UpgradeableClusterVersionOverrides", "UpgradeableUpgradeInProgress", "ImplicitlyEnabled",
	}
}

// setUpgradeable makes condition Upgradeable of the obstacles. It stays as it is until everything has been read, so that it
// does not waver when an operator starts.
func setUpgradeable(status *configv1.ClusterVersionStatus, set setter, in observed) {
	condition, objects := upgradeable.Condition(in.obstacles)
	pending := upgradeable.Pending(in.obstacles)
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool {
		return slices.Contains(obsoleteConditions(), c.Type) || c.Type == configv1.OperatorUpgradeable && !objects && !pending
	})
	if objects && !pending {
		set(condition.Type, condition.Status, condition.Reason, condition.Message)
	}
}
