package accept_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
)

// TestInstallRejectsOlderReleases replaces a release during an install. The replacement is verified and must not be older. No other
// precondition applies.
func TestInstallRejectsOlderReleases(t *testing.T) {
	cv := func() *configv1.ClusterVersion { return installingAt(true, partial("1.0.0")) }
	requested := func(version string, force bool) request.Target {
		return request.Target{Image: imageOf(version), Requested: true, Force: force}
	}
	s := newShelf("3.0.0", "0.9.0")
	a, _ := try(t, accept.Input{Stages: s.stages(), ClusterVersion: cv()}, requested("3.0.0", false))
	require.NoError(t, a.Err)
	assert.Empty(t, a.Risks)
	a, _ = try(t, accept.Input{Stages: s.stages(), ClusterVersion: cv()}, requested("0.9.0", false))
	require.ErrorContains(t, a.Err, "0.9.0 is less than 1.0.0, the release that is being installed, and the cluster has not completed any release to go back to")
	assert.Equal(t, api.ReasonPreconditionChecks, a.Step)
	both := installingAt(true, partial("1.0.0"), partial("0.9.0"))
	a, _ = try(t, accept.Input{Stages: s.stages(), ClusterVersion: both}, requested("0.9.0", false))
	require.Error(t, a.Err, "the replaced release is not a rollback target")
	a, _ = try(t, accept.Input{Stages: s.stages(), ClusterVersion: cv()}, requested("0.9.0", true))
	require.NoError(t, a.Err)
	assert.Contains(t, a.Risks, "0.9.0 is less than 1.0.0")
	clear(s.signed)
	a, _ = try(t, accept.Input{Stages: s.stages(), ClusterVersion: cv()}, requested("3.0.0", false))
	require.ErrorIs(t, a.Err, errUnsigned)
	a, _ = try(t, accept.Input{Stages: s.stages(), ClusterVersion: installingAt(false)}, request.Target{Image: imageOf("3.0.0"), Continued: true})
	require.ErrorIs(t, a.Err, errUnsigned)
	require.ErrorContains(t, a.Err, "the cluster continues with it after its ClusterVersion was recreated")
	assert.True(t, accept.IsTransient(a))
}
