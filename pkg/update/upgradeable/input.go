package upgradeable

import (
	"slices"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// Rollout is the state of a release's rollout.
type Rollout struct {
	// Version, Image and Manifests describe the accepted release. Version is empty if no release is accepted yet, as after a restart.
	Version, Image string
	Manifests      []*manifest.Manifest
	// Complete: every part of the release has settled.
	Complete bool
	// Deletions names the objects whose deletion was requested and is not complete. DeletionsErr is the reason why it may lack some; nil if
	// it is complete.
	Deletions    []string
	DeletionsErr error
}

// InputOf returns the input of Find for a ClusterVersion. It anticipates the status that the caller is about to write, so
// that condition Upgradeable changes together with the others.
func InputOf(cv *configv1.ClusterVersion, cluster Cluster, rollout Rollout) Input {
	history := cv.Status.History
	in := Input{
		Cluster: cluster, Current: cv.Status.Desired.Version, Overrides: cv.Spec.Overrides, Deletions: rollout.Deletions,
		Installed: reported.HasCompleted(history),
	}
	if rollout.Version == "" { // the conditions also stay as they are
		c := api.FindCondition(cv.Status.Conditions, configv1.OperatorProgressing)
		in.Updating = c != nil && c.Status == configv1.ConditionTrue
		in.DeletionsErr = rollout.DeletionsErr // the running release may delete objects
		return in
	}
	in.Current = rollout.Version
	newest := len(history) > 0 && history[0].Image == rollout.Image
	in.Updating = !newest || history[0].State != configv1.CompletedUpdate && !rollout.Complete
	if slices.ContainsFunc(rollout.Manifests, (*manifest.Manifest).Tombstone) {
		in.DeletionsErr = rollout.DeletionsErr
	}
	in.BringsGates = hasConfigMap(rollout.Manifests, api.ConfigManagedNamespace, api.AdminGatesConfigMap)
	in.BringsAcks = hasConfigMap(rollout.Manifests, api.ConfigNamespace, api.AdminAcksConfigMap)
	return in
}

// hasConfigMap reports whether a release has a manifest for a ConfigMap.
func hasConfigMap(manifests []*manifest.Manifest, namespace, name string) bool {
	return slices.ContainsFunc(manifests, func(m *manifest.Manifest) bool {
		return m.Object.GetName() == name && m.Object.GetNamespace() == namespace && m.Is("", "ConfigMap") && !m.Tombstone()
	})
}
