package upgradeable_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

func TestInputFollowsTheRollout(t *testing.T) {
	completed := configv1.UpdateHistory{State: configv1.CompletedUpdate, Image: "new"}
	older := configv1.UpdateHistory{State: configv1.CompletedUpdate, Image: "old"}
	partial := configv1.UpdateHistory{State: configv1.PartialUpdate, Image: "new"}
	running := upgradeable.Rollout{Version: "1.1.0", Image: "new"}
	settled := upgradeable.Rollout{Version: "1.1.0", Image: "new", Complete: true}
	for _, tt := range []struct {
		name                string
		history             []configv1.UpdateHistory
		rollout             upgradeable.Rollout
		current             string
		updating, installed bool
	}{
		{name: "rests", history: []configv1.UpdateHistory{completed}, rollout: settled, current: "1.1.0", installed: true},
		{name: "rests while something fails", history: []configv1.UpdateHistory{completed}, rollout: running, current: "1.1.0", installed: true},
		{name: "rested before a restart", history: []configv1.UpdateHistory{completed}, current: "1.0.0", installed: true},
		{name: "installs", history: []configv1.UpdateHistory{partial}, rollout: running, current: "1.1.0", updating: true},
		{name: "updates", history: []configv1.UpdateHistory{partial, older}, rollout: running, current: "1.1.0", updating: true, installed: true},
		{name: "is about to start", history: []configv1.UpdateHistory{older}, rollout: running, current: "1.1.0", updating: true, installed: true},
		{name: "is about to complete", history: []configv1.UpdateHistory{partial, older}, rollout: settled, current: "1.1.0", installed: true},
		{name: "has no history", rollout: running, current: "1.1.0", updating: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cv := &configv1.ClusterVersion{}
			cv.Status.Desired.Version, cv.Status.History = "1.0.0", tt.history
			in := upgradeable.InputOf(cv, upgradeable.Cluster{}, tt.rollout)
			assert.Equal(t, []any{tt.current, tt.updating, tt.installed}, []any{in.Current, in.Updating, in.Installed})
		})
	}
	t.Run("was updating before a restart", func(t *testing.T) {
		cv := &configv1.ClusterVersion{}
		cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{{Type: configv1.OperatorProgressing, Status: configv1.ConditionTrue}}
		assert.True(t, upgradeable.InputOf(cv, upgradeable.Cluster{}, upgradeable.Rollout{}).Updating)
	})
}

func TestInputKnowsConfigMapsOfTheRelease(t *testing.T) {
	configMap := func(namespace, name string) *manifest.Manifest {
		return &manifest.Manifest{Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": namespace, "name": name},
		}}}
	}
	in := upgradeable.InputOf(&configv1.ClusterVersion{}, upgradeable.Cluster{}, upgradeable.Rollout{Version: "1.1.0", Manifests: []*manifest.Manifest{
		configMap(api.ConfigManagedNamespace, api.AdminGatesConfigMap), configMap("elsewhere", api.AdminAcksConfigMap),
	}})
	assert.True(t, in.BringsGates)
	assert.False(t, in.BringsAcks)
}

// TestReportedOnlyReads covers a caller that shares the ClusterOperator with a cache, which hands out no copies.
func TestReportedOnlyReads(t *testing.T) {
	co := &configv1.ClusterOperator{}
	co.Status.Conditions = []configv1.ClusterOperatorStatusCondition{{
		Type: configv1.OperatorUpgradeable, Status: configv1.ConditionFalse, Reason: "X", LastTransitionTime: metav1.Now(),
	}}
	before := co.DeepCopy()
	said := upgradeable.Reported(co)
	assert.Equal(t, "X", said.Reason)
	assert.Zero(t, said.LastTransitionTime)
	assert.Equal(t, before, co)
	assert.Zero(t, upgradeable.Reported(&configv1.ClusterOperator{}))
}

// TestUnknownDeletionsAreAnObstacle covers rollouts that have not looked for the objects that the release deletes.
func TestUnknownDeletionsAreAnObstacle(t *testing.T) {
	tombstone := &manifest.Manifest{Object: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "old", "namespace": "ns", "annotations": map[string]any{"release.openshift.io/delete": "true"}},
	}}}
	completed := []configv1.UpdateHistory{{State: configv1.CompletedUpdate, Image: "a", Version: "1.0.0"}}
	for _, tt := range []struct {
		name     string
		history  []configv1.UpdateHistory
		updating bool
		rollout  upgradeable.Rollout
		want     bool
	}{
		{"while the running release is unknown", completed, false, upgradeable.Rollout{}, true},
		{"but not while an unknown release is rolled out", completed, true, upgradeable.Rollout{}, false},
		{"but not before the first release", nil, false, upgradeable.Rollout{}, false},
		{"of a release with tombstones", completed, false, upgradeable.Rollout{Version: "1.0.0", Image: "a", Manifests: []*manifest.Manifest{tombstone}}, true},
		{"but not of a release without tombstones", completed, false, upgradeable.Rollout{Version: "1.0.0", Image: "a"}, false},
		{"but not beside another update", completed, false, upgradeable.Rollout{Version: "1.1.0", Image: "b", Manifests: []*manifest.Manifest{tombstone}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cv := &configv1.ClusterVersion{Status: configv1.ClusterVersionStatus{History: tt.history}}
			if tt.updating {
				cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{{Type: configv1.OperatorProgressing, Status: configv1.ConditionTrue}}
			}
			tt.rollout.DeletionsErr = upgradeable.ErrPending
			found := upgradeable.Find(upgradeable.InputOf(cv, upgradeable.Cluster{}, tt.rollout))
			assert.Equal(t, tt.want, upgradeable.Pending(found), "%+v", found)
		})
	}
}
