package status

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/history"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestPredecessorCountIsKept(t *testing.T) {
	saying := func(message string) configv1.ClusterVersionStatus {
		return configv1.ClusterVersionStatus{Conditions: []configv1.ClusterOperatorStatusCondition{{Type: configv1.OperatorProgressing, Message: message}}}
	}
	const counted = "Working towards 1.1.0: 139 of 859 done (16% complete), waiting on etcd"
	for _, tt := range []struct {
		name     string
		before   configv1.ClusterVersionStatus
		progress *report.Progress
		want     int
		resumed  bool
	}{
		{"keeps the count of the predecessor", saying(counted), progressOf("1.1.0", 0, 859), 139, true},
		{"uses its own count when it reaches the kept one", saying(counted), progressOf("1.1.0", 139, 859), 139, false},
		{"uses its own count beyond the kept one", saying(counted), progressOf("1.1.0", 140, 859), 140, false},
		{"starts at its own count if the total differs", saying(counted), progressOf("1.1.0", 3, 860), 3, false},
		{"starts at its own count for another release", saying(counted), progressOf("1.1.1", 3, 859), 3, false},
		{"ignores a number above the total", saying("Working towards 1.1.0: 900 of 859 done (104% complete)"), progressOf("1.1.0", 3, 859), 3, false},
		{"ignores text in place of a number", saying("Working towards 1.1.0: many of 859 done"), progressOf("1.1.0", 3, 859), 3, false},
		{"keeps no count of a complete rollout", saying(counted), &report.Progress{Done: 1, Total: 859, Complete: true}, 1, false},
		{"keeps no count without a condition", configv1.ClusterVersionStatus{}, progressOf("1.1.0", 3, 859), 3, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			done := tt.progress.Done
			got, resumed := NotLess(tt.progress, tt.before)
			assert.Equal(t, tt.want, got.Done)
			assert.Equal(t, tt.resumed, resumed)
			assert.Equal(t, done, tt.progress.Done, "the input does not change")
		})
	}
}

func TestPausedTextNamesTheRunlevel(t *testing.T) {
	assert.Equal(t, "waiting on a", pausedText(&report.Progress{}, "waiting on a"))
	assert.Equal(t, "waiting on a", pausedText(nil, "waiting on a"))
	assert.Equal(t, "waiting on a, pausing before runlevel 05", pausedText(&report.Progress{Paused: &report.Pause{Before: 5}}, "waiting on a"))
	p := *progressOf("1.1.0", 10, 20)
	p.Paused = &report.Pause{Before: 20, Reached: true}
	assert.Equal(t, "Working towards 1.1.0: 10 of 20 done (50% complete), paused before runlevel 20", workingText("1.1.0", &p, pausedText(&p, "")))
}

func TestProgressingReportsAWaitingRequest(t *testing.T) {
	a := acceptedRelease("1.0.0")
	in := Observed{Accepted: &a, Latest: a, Target: a.Target, Now: now, Pending: "the requested update to 1.0.1 starts after the install"}
	for want, progress := range map[string]int{
		"True||Working towards 1.0.0: the requested update to 1.0.1 starts after the install":                             0,
		"True||Working towards 1.0.0: 1 of 4 done (25% complete), the requested update to 1.0.1 starts after the install": 1,
	} {
		in.Progress = progressOf("1.0.0", progress, 4)
		status, _ := Next(clusterAt(partial("1.0.0")), in)
		assert.Equal(t, want, said(status, configv1.OperatorProgressing))
	}
	in.Progress = progressOf("1.0.0", 1, 4, unavailable("dns"))
	status, _ := Next(clusterAt(partial("1.0.0")), in)
	assert.Equal(t, "True|ClusterOperatorNotAvailable|Unable to apply 1.0.0: the cluster operator dns is not available, the requested update to 1.0.1 starts after the install",
		said(status, configv1.OperatorProgressing))
	assert.Equal(t, release.Initializing, history.Mode(clusterAt(partial("1.0.1"), partial("1.0.0")), imageOf("1.0.1")))
}

// TestContinuedReleaseKeepsRunlevelOrder uses a recreated ClusterVersion: its history has no completed release, but the cluster is not new.
func TestContinuedReleaseKeepsRunlevelOrder(t *testing.T) {
	continued := acceptedRelease("1.1.0")
	continued.Target.Continued = true
	first := acceptedRelease("1.1.0")
	for _, tt := range []struct {
		name     string
		history  []configv1.UpdateHistory
		accepted accept.Acceptance
		want     release.Mode
	}{
		{"installs a first release", []configv1.UpdateHistory{partial("1.1.0")}, first, release.Initializing},
		{"updates to a continued release", []configv1.UpdateHistory{partial("1.1.0")}, continued, release.Updating},
		{"reconciles a continued release that has completed", []configv1.UpdateHistory{completed("1.1.0")}, continued, release.Reconciling},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cv := clusterAt(tt.history...)
			assert.Equal(t, tt.want, RolloutMode(cv.Status, tt.accepted))
			assert.Equal(t, tt.want, nextMode(cv.Status, Observed{Accepted: &tt.accepted}, false), "status and rollout agree")
		})
	}
}
