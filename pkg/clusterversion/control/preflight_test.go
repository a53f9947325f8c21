package control

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
)

func TestCanceledPreflightReportsNothing(t *testing.T) {
	k := New(nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	k.ReportPreflight(ctx, api.Preflight{State: api.PreflightRunning})
	require.NotNil(t, k.preflight)
	cancel()
	assert.True(t, k.EndPreflight())
	k.ReportPreflight(ctx, api.Preflight{State: api.PreflightRunning})
	assert.Nil(t, k.preflight, "no process would complete it")
	assert.False(t, k.EndPreflight())
}

// TestPreflightIsNotRepeatedAfterARestart shows that a restart does not repeat a thousand dry runs.
func TestPreflightIsNotRepeatedAfterARestart(t *testing.T) {
	target := request.Target{Image: "r@1.1.0"}
	for _, tt := range []struct {
		name     string
		reported api.Preflight
		again    bool
	}{
		{"does not repeat a passed preflight", api.Preflight{Image: target.Image, State: api.PreflightPassed}, false},
		{"does not repeat a blocked preflight", api.Preflight{Image: target.Image, State: api.PreflightObjected}, false},
		{"continues an interrupted preflight", api.Preflight{Image: target.Image, State: api.PreflightRunning}, true},
		{"retries a failed preflight", api.Preflight{Image: target.Image, State: api.PreflightFailed}, true},
		{"examines another release", api.Preflight{Image: "r@1.2.0", State: api.PreflightPassed}, true},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			k := New(nil, nil)
			k.recall(&api.ReleaseRollout{Status: api.ReleaseRolloutStatus{Preflight: &tt.reported}})
			assert.False(t, k.KnowsPreflight(&target, false), "no preflight runs before a release is accepted")
			assert.Equal(t, tt.again, !k.KnowsPreflight(&target, true))
			assert.False(t, k.KnowsPreflight(&target, true), "a later request is examined again")
		})
	}
}
