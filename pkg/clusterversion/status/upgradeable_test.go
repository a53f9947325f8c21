package status

import (
	"errors"
	"slices"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

// TestUpgradeableChangesWithProgressing covers what the reconciler knows of a rollout: an update in progress is an obstacle
// exactly as long as condition Progressing is True.
func TestUpgradeableChangesWithProgressing(t *testing.T) {
	accepted := acceptedRelease("1.1.0")
	for _, tt := range []struct {
		name     string
		cv       *configv1.ClusterVersion
		progress *report.Progress
		updating bool
	}{
		{name: "rests", cv: clusterAt(completed("1.1.0")), progress: progressOf("1.1.0", 2, 2)},
		{name: "rests while something fails", cv: clusterAt(completed("1.1.0")), progress: progressOf("1.1.0", 1, 2)},
		{name: "installs", cv: clusterAt(partial("1.1.0")), progress: progressOf("1.1.0", 1, 2), updating: true},
		{name: "updates", cv: clusterAt(partial("1.1.0"), completed("1.0.0")), progress: progressOf("1.1.0", 1, 2), updating: true},
		{name: "is about to start", cv: clusterAt(completed("1.0.0")), updating: true},
		{name: "is about to complete", cv: clusterAt(partial("1.1.0"), completed("1.0.0")), progress: progressOf("1.1.0", 2, 2)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found := Obstacles(tt.cv, upgradeable.Cluster{}, &accepted, tt.progress, nil)
			status, _ := Next(tt.cv, Observed{Target: accepted.Target, Latest: accepted, Accepted: &accepted, Progress: tt.progress, Obstacles: found, Now: now})
			progressing := api.FindCondition(status.Conditions, configv1.OperatorProgressing).Status == configv1.ConditionTrue
			assert.Equal(t, tt.updating, progressing)
			assert.Equal(t, tt.updating, api.FindCondition(status.Conditions, configv1.OperatorUpgradeable) != nil)
		})
	}
}

func TestPendingDeletionsAreObstacles(t *testing.T) {
	accepted, progress := acceptedRelease("1.1.0"), progressOf("1.1.0", 2, 2)
	progress.Deletions = []report.Deletion{{ID: manifest.ID{Kind: "Service", Namespace: "ns", Name: "old"}}}
	found := Obstacles(clusterAt(completed("1.1.0")), upgradeable.Cluster{}, &accepted, progress, nil)
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Message, "resources=Service ns/old")
}

func TestUnknownDeletionsAreObstacles(t *testing.T) {
	unknown := progressOf("1.1.0", 1, 2)
	unknown.UnknownDeletions.Pending = true
	examined := progressOf("1.1.0", 1, 2)
	examined.UnknownDeletions.Reason = "old is not checked"
	stuck := &report.Problem{Err: errors.New("no inventory")}
	old := acceptedRelease("1.1.0").Payload.Manifests[0].Object.DeepCopy()
	old.SetAnnotations(map[string]string{"release.openshift.io/delete": "true"})
	for _, tt := range []struct {
		name          string
		progress      *report.Progress
		stuck         *report.Problem
		blocks, waits bool
	}{
		{"before the first report", nil, nil, true, true},
		{"before every tombstone was visited", unknown, nil, true, true},
		{"and nothing waits for them once a pass has ended", examined, nil, true, false},
		{"and nothing waits for them if no pass is possible", nil, stuck, true, false},
		{"or if no further pass is possible", unknown, stuck, true, false},
		{"but not after every tombstone was visited", progressOf("1.1.0", 1, 2), nil, false, false},
		{"even if no further pass is possible", progressOf("1.1.0", 1, 2), stuck, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			accepted := acceptedRelease("1.1.0")
			accepted.Payload.Manifests = append(accepted.Payload.Manifests, &manifest.Manifest{Object: old})
			found := Obstacles(clusterAt(completed("1.1.0")), upgradeable.Cluster{}, &accepted, tt.progress, tt.stuck)
			blocks := slices.ContainsFunc(found, func(o upgradeable.Obstacle) bool { return o.Source == upgradeable.SourceDeletions && o.Unknown })
			assert.Equal(t, []bool{tt.blocks, tt.waits}, []bool{blocks, upgradeable.Pending(found)}, "%+v", found)
		})
	}
}

// TestNoDeletionIsUnknownWithoutARelease covers a release in the history that can no longer be verified: condition Failing recommends an
// update, so nothing that only a release can clear may stand in its way.
func TestNoDeletionIsUnknownWithoutARelease(t *testing.T) {
	stuck := &report.Problem{Err: errors.New("the release is not verified")}
	assert.Empty(t, Obstacles(clusterAt(completed("1.1.0")), upgradeable.Cluster{}, nil, nil, stuck))
}

func TestUpgradeableFollowsObstacles(t *testing.T) {
	cv := clusterAt(completed("1.1.0"))
	cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
		{Type: "UpgradeableAdminAckRequired", Status: "False"}, {Type: "ImplicitlyEnabled", Status: "False"}, {Type: "SomebodyElses", Status: "True"},
	}
	accepted := acceptedRelease("1.1.0")
	next := func(obstacles ...upgradeable.Obstacle) configv1.ClusterVersionStatus {
		status, _ := Next(cv, Observed{Target: accepted.Target, Latest: accepted, Accepted: &accepted, Progress: progressOf("1.1.0", 2, 2), Obstacles: obstacles, Now: now})
		return status
	}
	objects := upgradeable.Obstacle{Source: "X", Reason: "Y", Message: "Z."}
	pending := upgradeable.Obstacle{Source: "P", Reason: "EvaluationFailed", Message: "?", Unknown: true, Pending: true}

	status := next()
	assert.Empty(t, said(status, configv1.OperatorUpgradeable), "the condition is absent without an obstacle")
	assert.Empty(t, said(status, "UpgradeableAdminAckRequired"))
	assert.Empty(t, said(status, "ImplicitlyEnabled"))
	assert.Equal(t, "True||", said(status, "SomebodyElses"))
	assert.Empty(t, said(next(objects, pending), configv1.OperatorUpgradeable), "the condition does not appear before everything is known")
	cv.Status = next(objects)
	assert.Equal(t, "False|Y|Z.", said(cv.Status, configv1.OperatorUpgradeable))
	assert.Equal(t, "False|Y|Z.", said(next(pending), configv1.OperatorUpgradeable), "the condition stays until everything is known")
	assert.Empty(t, said(next(), configv1.OperatorUpgradeable))
	pending.Pending = false
	assert.Equal(t, "Unknown|EvaluationFailed|?", said(next(pending), configv1.OperatorUpgradeable))
}
