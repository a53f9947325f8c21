package progress_test

import (
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cluster-version/cvo/pkg/node/progress"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// describe lists the conditions that are true, then those in progress.
func describe(s mcfgv1.MachineConfigNodeStatus) string {
	var done, underWay []string
	for _, c := range s.Conditions {
		switch c.Status {
		case "True":
			done = append(done, c.Type)
		case "Unknown":
			underWay = append(underWay, c.Type)
		}
	}
	return strings.Join(done, " ") + " | " + strings.Join(underWay, " ")
}

func TestStatusFollowsTheSteps(t *testing.T) {
	for _, tt := range []struct {
		name    string
		step    progress.Step
		failure string
		want    string
	}{
		{"updated", progress.Updated, "", "Updated | "},
		{"preparing", progress.Preparing, "", " | UpdatePrepared"},
		{"draining", progress.Draining, "", "UpdatePrepared | UpdateExecuted Cordoned Drained"},
		{"applying", progress.Applying, "", "UpdatePrepared Cordoned Drained | UpdateExecuted AppliedFilesAndOS"},
		{
			"rebooting", progress.Rebooting, "",
			"UpdatePrepared Cordoned Drained AppliedFilesAndOS | UpdateExecuted UpdatePostActionComplete RebootedNode",
		},
		{
			"resuming", progress.Resuming, "",
			"UpdatePrepared UpdateExecuted Cordoned Drained AppliedFilesAndOS UpdatePostActionComplete Resumed | UpdateComplete Uncordoned",
		},
		{"failed", progress.Applying, "no space", "UpdatePrepared Cordoned Drained NodeDegraded | UpdateExecuted AppliedFilesAndOS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := progress.Status(mcfgv1.MachineConfigNodeStatus{}, progress.Progress{
				Step: tt.step, Failure: tt.failure, Current: "rendered-worker-1", Desired: "rendered-worker-2", Generation: 3,
			}, epoch)

			assert.Equal(t, tt.want, describe(s))
			assert.LessOrEqual(t, len(s.Conditions), 20, "the API's limit")
			for _, c := range s.Conditions {
				assert.NotEmpty(t, c.Reason, c.Type)
			}
			assert.EqualValues(t, 3, s.ObservedGeneration)
			assert.Equal(t, &mcfgv1.MachineConfigNodeStatusMachineConfigVersion{Current: "rendered-worker-1", Desired: "rendered-worker-2"}, s.ConfigVersion)
		})
	}
}

func TestStatusRemembersTheReboot(t *testing.T) {
	status := mcfgv1.MachineConfigNodeStatus{}
	for _, tt := range []struct {
		step progress.Step
		want string
	}{
		{progress.Applying, "False"},
		{progress.Rebooting, "Unknown"},
		{progress.Resuming, "True"},
		{progress.Updated, "False"},
		{progress.Resuming, "False"}, // the next update does not reboot
	} {
		status = progress.Status(status, progress.Progress{Step: tt.step, Desired: "b"}, epoch)
		c := meta.FindStatusCondition(status.Conditions, "RebootedNode")
		require.NotNil(t, c)
		assert.EqualValues(t, tt.want, c.Status, tt.step)
	}
}

func TestStatusKeepsWhatDoesNotChange(t *testing.T) {
	before := mcfgv1.MachineConfigNodeStatus{ObservedGeneration: 5}
	before.PinnedImageSets = []mcfgv1.MachineConfigNodeStatusPinnedImageSet{{Name: "images"}}
	draining := progress.Status(before, progress.Progress{Step: progress.Draining, Desired: "b", Generation: 4}, epoch)
	applying := progress.Status(draining, progress.Progress{Step: progress.Applying, Desired: "b", Generation: 4}, epoch.Add(time.Minute))

	assert.EqualValues(t, 5, applying.ObservedGeneration, "the API rejects a lower generation")
	assert.Equal(t, before.PinnedImageSets, applying.PinnedImageSets)
	for kind, since := range map[string]time.Time{"UpdatePrepared": epoch, "UpdateExecuted": epoch, "Drained": epoch.Add(time.Minute)} {
		c := meta.FindStatusCondition(applying.Conditions, kind)
		require.NotNil(t, c)
		assert.Equal(t, since, c.LastTransitionTime.Time, kind)
	}
}

// TestNodeWithoutAConfigHasNoVersion has a node before its first update, and one that has lost its config.
func TestNodeWithoutAConfigHasNoVersion(t *testing.T) {
	known := mcfgv1.MachineConfigNodeStatus{ConfigVersion: &mcfgv1.MachineConfigNodeStatusMachineConfigVersion{Current: "a", Desired: "b"}}
	for _, before := range []mcfgv1.MachineConfigNodeStatus{{}, known} {
		s := progress.Status(before, progress.Progress{Step: progress.Preparing, Desired: "b"}, epoch)
		assert.Nil(t, s.ConfigVersion, "the API rejects an empty name")
	}
}
