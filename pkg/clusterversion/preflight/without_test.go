package preflight

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/clusterversion/request"
)

// underUpdate returns a ClusterVersion during an update from 1.0.0 to 1.1.0.
func underUpdate() *configv1.ClusterVersion {
	cv := &configv1.ClusterVersion{}
	cv.Status.History = []configv1.UpdateHistory{
		{State: configv1.PartialUpdate, Version: "1.1.0", Image: "r@1.1.0"},
		{State: configv1.PartialUpdate, Version: "1.0.5", Image: "r@1.0.5"},
		{State: configv1.CompletedUpdate, Version: "1.0.0", Image: "r@1.0.0"},
	}
	return cv
}

func TestPreflightNeverBecomesTheTarget(t *testing.T) {
	asked := func(mode configv1.UpdateMode) *configv1.ClusterVersion {
		cv := underUpdate()
		cv.Spec.DesiredUpdate = &configv1.Update{Image: "r@2", Version: "1.2.0", Mode: mode}
		return cv
	}
	t.Run("ignores a normal update", func(t *testing.T) {
		cv := asked("")
		rest, target := Without(cv, "r@1.0.0")
		assert.Same(t, cv, rest)
		assert.Nil(t, target)
	})
	t.Run("examines another release while the update under way continues", func(t *testing.T) {
		cv := asked(configv1.UpdateModePreflight)
		rest, target := Without(cv, "r@1.0.0")
		require.NotNil(t, target)
		assert.Equal(t, request.Target{Image: "r@2", Version: "1.2.0"}, *target)
		assert.NotNil(t, cv.Spec.DesiredUpdate, "the spec itself is unchanged")
		assert.Equal(t, "r@1.1.0", request.Choose(rest, "r@1.0.0", true).Image, "the update under way is not reversed")
	})
	t.Run("never makes its release the target, even with force", func(t *testing.T) {
		cv := asked(configv1.UpdateModePreflight)
		cv.Spec.DesiredUpdate.Force = true
		for _, own := range []string{"r@1.0.0", "r@1.1.0", "r@2", "r@other"} {
			rest, _ := Without(cv, own)
			assert.Equal(t, "r@1.1.0", request.Choose(rest, own, true).Image)
		}
	})
	t.Run("waits for a cluster without a history", func(t *testing.T) {
		cv := asked(configv1.UpdateModePreflight)
		cv.Status.History = nil
		rest, target := Without(cv, "r@1.0.0")
		assert.Nil(t, target)
		assert.Equal(t, "r@1.0.0", request.Choose(rest, "r@1.0.0", true).Image)
	})
}
