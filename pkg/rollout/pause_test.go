package rollout_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/observe"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// three is an update of three runlevels, of which the middle one has two components and a gate.
func three(t *testing.T, mode release.Mode) *rollout.Plan {
	t.Helper()
	return newPlan(t, mode,
		configMap(t, "10_a_01", "first"),
		configMap(t, "20_b_01", "second"), clusterOperator(t, "20_b_02", "gate", "1.1.0"), configMap(t, "20_c_01", "beside"),
		configMap(t, "30_d_01", "third"),
	)
}

func TestPauseBeforeAnything(t *testing.T) {
	c := newCluster()
	plan, passer := three(t, release.Updating), c.passer()
	passer.Pause(rollout.NoBoundary)

	progress, _, err := passer.Run(t.Context(), plan, rollout.Settled{})

	require.NoError(t, err)
	assert.Empty(t, c.took(), "nothing has begun")
	assert.Equal(t, &rollout.Pause{Before: 10, Reached: true}, progress.Paused)
	assert.False(t, progress.Complete)
	assert.Empty(t, progress.Problems, "to wait by request is no problem")
}

func TestPauseInTheMiddle(t *testing.T) {
	c := newCluster()
	plan, passer := three(t, release.Updating), c.passer()
	progress, settled, err := passer.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	require.Equal(t, "gate=NotObserved", waitsFor(progress))
	c.took()

	passer.Pause(rollout.NoBoundary)
	progress, settled, err = passer.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Equal(t, &rollout.Pause{Before: 30}, progress.Paused, "what has begun goes on")

	c.report("gate", "True", "False", "1.1.0")
	progress, settled, err = passer.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Equal(t, &rollout.Pause{Before: 30, Reached: true}, progress.Paused)
	assert.NotContains(t, c.took(), "apply third")

	c.touch("first", func(s *observe.State) { s.Fields, s.Writer = [16]byte{9}, "somebody" })
	progress, settled, err = passer.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Contains(t, c.took(), "apply first", "drift of what has settled is repaired")
	assert.NotNil(t, progress.Paused)

	passer.Pause(10)
	progress, _, err = passer.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Equal(t, 30, progress.Paused.Before, "asked for twice it stays where it is")

	passer.Resume()
	progress, _, err = passer.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Contains(t, c.took(), "apply third")
	assert.Nil(t, progress.Paused)
	assert.True(t, progress.Complete)
}

// TestPauseByAnotherProcess: a process that has just started has seen nothing begin.
func TestPauseByAnotherProcess(t *testing.T) {
	for _, test := range []struct {
		name   string
		before int
	}{
		{"finds the boundary by what has settled", rollout.NoBoundary},
		{"takes up the boundary of its predecessor", 30},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster()
			plan := three(t, release.Updating)
			_, settled := c.roll(t, plan, rollout.Settled{}) // second and beside have settled, gate has not
			passer := c.passer()
			passer.Pause(test.before)
			c.report("gate", "True", "False", "1.1.0")
			progress, _, err := passer.Run(t.Context(), plan, settled)
			require.NoError(t, err)
			assert.Equal(t, &rollout.Pause{Before: 30, Reached: true}, progress.Paused)
			assert.NotContains(t, c.took(), "apply third")
		})
	}
}

// TestPauseDuringAPass pauses from within an apply: the rest of its runlevel goes on, the next one does not begin.
func TestPauseDuringAPass(t *testing.T) {
	c := newCluster()
	plan, passer := three(t, release.Updating), c.passer()
	c.report("gate", "True", "False", "1.1.0")
	c.onApply = func(_ context.Context, name string) error {
		if name == "second" {
			passer.Pause(rollout.NoBoundary)
		}
		return nil
	}
	progress, settled, err := passer.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	log := c.took()
	assert.Contains(t, log, "apply beside")
	assert.Contains(t, log, "apply gate")
	assert.NotContains(t, log, "apply third")
	assert.Equal(t, &rollout.Pause{Before: 30, Reached: true}, progress.Paused)
	passer.Resume()
	progress, _, err = passer.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.True(t, progress.Complete)
}

func TestPauseInTheLastRunlevelHoldsNothing(t *testing.T) {
	c := newCluster()
	plan, passer := three(t, release.Updating), c.passer()
	c.report("gate", "True", "False", "1.1.0")
	c.onApply = func(_ context.Context, name string) error {
		if name == "third" {
			passer.Pause(rollout.NoBoundary)
		}
		return nil
	}
	progress, _, err := passer.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	assert.True(t, progress.Complete)
	assert.Nil(t, progress.Paused)
}

func TestPauseIsForUpdatesAlone(t *testing.T) {
	for _, mode := range []release.Mode{release.Initializing, release.Reconciling} {
		t.Run(string(mode), func(t *testing.T) {
			c := newCluster()
			c.report("gate", "True", "False", "1.1.0")
			passer := c.passer()
			passer.Pause(rollout.NoBoundary)
			progress, _, err := passer.Run(t.Context(), three(t, mode), rollout.Settled{})
			require.NoError(t, err)
			assert.True(t, progress.Complete)
			assert.Nil(t, progress.Paused)
		})
	}
}
