package control

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/engine/report"
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

// TestPreflightModeIsKeptByAnotherProcess shows that an update requested as a preflight never starts, even if the API server drops the mode and
// another process takes over.
//
//threat:preflight-becomes-update
func TestPreflightModeIsKeptByAnotherProcess(t *testing.T) {
	lacking := everyField()
	lacking.Mode = false
	update := configv1.Update{Image: "r@1.1.0", Version: "1.1.0", Architecture: configv1.ClusterVersionArchitectureMulti, Force: true}
	asked := update
	asked.Mode = configv1.UpdateModePreflight
	successor := func(stored *puts) *Control {
		k := New(testingclock.NewFakeClock(noon()), stored)
		k.Follow(stored.Look())
		return k
	}
	save := func(k *Control) { k.Step(logr.Discard(), func() *report.Progress { return nil })(t.Context()) }
	mode := func(k *Control, update *configv1.Update, generation int64, schema Schema) configv1.UpdateMode {
		return k.KeepMode(update, generation, schema).Mode
	}
	first := func() (*Control, *puts) {
		stored := &puts{}
		k := successor(stored)
		k.KeepMode(&asked, 8, everyField())
		save(k)
		return k, stored
	}
	_, stored := first()
	assert.Equal(t, configv1.UpdateModePreflight, mode(successor(stored), &update, 8, lacking))
	assert.Equal(t, configv1.UpdateModePreflight, mode(successor(stored), &update, 9, lacking), "another field changed")
	assert.Empty(t, mode(successor(stored), &update, 9, everyField()), "an administrator removed the mode")
	other := update
	other.Force = false
	assert.Empty(t, mode(successor(stored), &other, 9, lacking))

	k, stored := first()
	require.Nil(t, k.KeepMode(nil, 9, lacking))
	save(k)
	assert.Empty(t, mode(successor(stored), &update, 10, lacking), "a new request")
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
