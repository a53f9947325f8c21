package clusterversion

import (
	"context"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/precondition"
	"github.com/cluster-version/cvo/pkg/rollout"
	"github.com/cluster-version/cvo/pkg/upgradeable"
)

func TestObstacleInput(t *testing.T) {
	accepted := acceptedRelease("1.1.0")
	for _, tt := range []struct {
		name      string
		cv        *configv1.ClusterVersion
		accepted  *Acceptance
		progress  *rollout.Progress
		current   string
		updating  bool
		installed bool
	}{
		{name: "it rests", cv: clusterAt(completed("1.1.0")), accepted: &accepted, progress: progressOf("1.1.0", 2, 2), current: "1.1.0", installed: true},
		{name: "it rests though something fails", cv: clusterAt(completed("1.1.0")), accepted: &accepted, progress: progressOf("1.1.0", 1, 2), current: "1.1.0", installed: true},
		{name: "it has rested before a restart", cv: clusterAt(completed("1.1.0")), current: "1.1.0", installed: true},
		{name: "it is installed", cv: clusterAt(partial("1.1.0")), accepted: &accepted, progress: progressOf("1.1.0", 1, 2), current: "1.1.0", updating: true},
		{name: "it updates", cv: clusterAt(partial("1.1.0"), completed("1.0.0")), accepted: &accepted, progress: progressOf("1.1.0", 1, 2), current: "1.1.0", updating: true, installed: true},
		{name: "it is about to begin", cv: clusterAt(completed("1.0.0")), accepted: &accepted, current: "1.1.0", updating: true, installed: true},
		{name: "it is about to complete", cv: clusterAt(partial("1.1.0"), completed("1.0.0")), accepted: &accepted, progress: progressOf("1.1.0", 2, 2), current: "1.1.0", installed: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := obstacleInput(tt.cv, upgradeable.Cluster{}, tt.accepted, tt.progress)
			assert.Equal(t, []any{tt.current, tt.updating, tt.installed}, []any{in.Current, in.Updating, in.Installed})
			if tt.accepted == nil {
				return
			}
			status, _ := nextStatus(tt.cv, observed{target: accepted.Target, latest: accepted, accepted: tt.accepted, progress: tt.progress, obstacles: upgradeable.Find(in), now: now})
			progressing := api.FindCondition(status.Conditions, configv1.OperatorProgressing).Status == configv1.ConditionTrue
			assert.Equal(t, tt.updating, progressing, "the conditions go together")
			assert.Equal(t, tt.updating, api.FindCondition(status.Conditions, configv1.OperatorUpgradeable) != nil)
		})
	}
	t.Run("it was updating before a restart", func(t *testing.T) {
		cv := clusterAt(partial("1.1.0"), completed("1.0.0"))
		cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{{Type: configv1.OperatorProgressing, Status: configv1.ConditionTrue}}
		assert.True(t, obstacleInput(cv, upgradeable.Cluster{}, nil, nil).Updating)
	})
	t.Run("it deletes", func(t *testing.T) {
		progress := progressOf("1.1.0", 2, 2)
		progress.Deletions = []rollout.Deletion{{ID: manifest.ID{Kind: "Service", Namespace: "ns", Name: "old"}}}
		assert.Equal(t, []string{"Service ns/old"}, obstacleInput(clusterAt(completed("1.1.0")), upgradeable.Cluster{}, &accepted, progress).Deletions)
	})
}

func TestObstacleInputKnowsWhatTheReleaseBrings(t *testing.T) {
	p, err := payload.Load(files("1.1.0",
		"release-manifests/0000_00_a_01.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: openshift-config-managed, name: admin-gates, annotations: {include.release.openshift.io/self-managed-high-availability: \"true\"}}\n",
		"release-manifests/0000_00_a_02.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: elsewhere, name: admin-acks, annotations: {include.release.openshift.io/self-managed-high-availability: \"true\"}}\n",
	), imageOf("1.1.0"), payload.Options{})
	require.NoError(t, err)
	accepted := acceptedRelease("1.1.0")
	accepted.Payload = p
	in := obstacleInput(clusterAt(completed("1.1.0")), upgradeable.Cluster{}, &accepted, nil)
	assert.True(t, in.BringsGates)
	assert.False(t, in.BringsAcks)
}

func TestSetUpgradeable(t *testing.T) {
	cv := clusterAt(completed("1.1.0"))
	cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
		{Type: "UpgradeableAdminAckRequired", Status: "False"}, {Type: "ImplicitlyEnabled", Status: "False"}, {Type: "SomebodyElses", Status: "True"},
	}
	accepted := acceptedRelease("1.1.0")
	next := func(obstacles ...upgradeable.Obstacle) configv1.ClusterVersionStatus {
		status, _ := nextStatus(cv, observed{target: accepted.Target, latest: accepted, accepted: &accepted, progress: progressOf("1.1.0", 2, 2), obstacles: obstacles, now: now})
		return status
	}
	objects := upgradeable.Obstacle{Source: "X", Reason: "Y", Message: "Z."}
	pending := upgradeable.Obstacle{Source: "P", Reason: "EvaluationFailed", Message: "?", Unknown: true, Pending: true}

	status := next()
	assert.Empty(t, said(status, configv1.OperatorUpgradeable), "it is absent when nothing objects")
	assert.Empty(t, said(status, "UpgradeableAdminAckRequired"))
	assert.Empty(t, said(status, "ImplicitlyEnabled"))
	assert.Equal(t, "True||", said(status, "SomebodyElses"))
	assert.Empty(t, said(next(objects, pending), configv1.OperatorUpgradeable), "it is not made before everything is known")
	cv.Status = next(objects)
	assert.Equal(t, "False|Y|Z.", said(cv.Status, configv1.OperatorUpgradeable))
	assert.Equal(t, "False|Y|Z.", said(next(pending), configv1.OperatorUpgradeable), "it stays until everything is known")
	assert.Empty(t, said(next(), configv1.OperatorUpgradeable))
	pending.Pending = false
	assert.Equal(t, "Unknown|EvaluationFailed|?", said(next(pending), configv1.OperatorUpgradeable))
}

func TestWeigh(t *testing.T) {
	objects := upgradeable.Obstacle{Source: "X", Reason: "Y", Message: "Z.", Risk: "SomeRisk"}
	accepting := func(names ...string) *configv1.ClusterVersion {
		cv := clusterAt(completed("1.0.0"))
		cv.Spec.DesiredUpdate = &configv1.Update{}
		for _, name := range names {
			cv.Spec.DesiredUpdate.AcceptRisks = append(cv.Spec.DesiredUpdate.AcceptRisks, configv1.AcceptRisk{Name: name})
		}
		return cv
	}
	for _, tt := range []struct {
		name          string
		cv            *configv1.ClusterVersion
		server        precondition.Server
		refused, risk string
	}{
		{name: "refuses a minor update that something objects to", cv: accepting(), refused: `Precondition "ClusterVersionUpgradeable" failed because of "Y": Z.`},
		{name: "is not impressed by other risks", cv: accepting("OtherRisk"), refused: `Precondition "ClusterVersionUpgradeable" failed because of "Y": Z.`},
		{name: "lets an accepted risk pass, and records it", cv: accepting("SomeRisk"), risk: `Precondition "ClusterVersionUpgradeable" failed because of "Y": Z.`},
		{name: "lets what was begun already go on", cv: clusterAt(partial("1.1.0"), completed("1.0.0")), server: precondition.Server{Err: context.DeadlineExceeded}},
		{
			name: "refuses while the API server does not answer", cv: accepting("SomeRisk"), server: precondition.Server{Err: context.DeadlineExceeded},
			refused: `Precondition "RemovedAPI" failed because of "UnknownError": What the API server serves is not known: context deadline exceeded`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stages := newShelf("1.1.0").stages()
			stages.Server = func(context.Context) precondition.Server { return tt.server }
			stages.obstacles = func(*configv1.ClusterVersion) []upgradeable.Obstacle { return []upgradeable.Obstacle{objects} }
			a, _ := try(t, acceptInput{Stages: stages, cv: tt.cv}, Target{Image: imageOf("1.1.0")})
			if tt.refused != "" {
				require.EqualError(t, a.Err, tt.refused)
				assert.Equal(t, []upgradeable.Obstacle{objects}, a.weighed)
				return
			}
			require.NoError(t, a.Err)
			assert.Equal(t, tt.risk, a.Risks)
		})
	}
}
