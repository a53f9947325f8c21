package rollout_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// three returns an update with three runlevels. The middle runlevel has two components and a gate.
func three(t *testing.T, mode release.Mode) *rollout.Plan {
	t.Helper()
	return newPlan(t, mode,
		configMap(t, "10_a_01", "first"),
		configMap(t, "20_b_01", "second"), clusterOperator(t, "20_b_02", "gate", "1.1.0"), configMap(t, "20_c_01", "beside"),
		configMap(t, "30_d_01", "third"),
	)
}

func TestPauseHoldsTheFirstRunlevel(t *testing.T) {
	c := newCluster()
	plan, executor := three(t, release.Updating), c.executor()
	executor.Pause(rollout.NoBoundary)

	progress, _, err := executor.Run(t.Context(), plan, rollout.Settled{})

	require.NoError(t, err)
	assert.Empty(t, c.takeLog(), "no runlevel has started")
	assert.Equal(t, &report.Pause{Before: 10, Reached: true}, progress.Paused)
	assert.False(t, progress.Complete)
	assert.Empty(t, progress.Problems, "a requested wait is not a problem")
}

func TestPauseHoldsTheNextRunlevel(t *testing.T) {
	c := newCluster()
	plan, executor := three(t, release.Updating), c.executor()
	progress, settled, err := executor.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	require.Equal(t, "gate=NotObserved", waitsFor(progress))
	c.takeLog()

	executor.Pause(rollout.NoBoundary)
	progress, settled, err = executor.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Equal(t, &report.Pause{Before: 30}, progress.Paused, "the current runlevel continues")

	c.report("gate", "True", "False", "1.1.0")
	progress, settled, err = executor.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Equal(t, &report.Pause{Before: 30, Reached: true}, progress.Paused)
	assert.NotContains(t, c.takeLog(), "apply third")

	c.touch("first", func(s *observe.State) { s.Fields, s.Writer = [16]byte{9}, "kubectl" })
	progress, settled, err = executor.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Contains(t, c.takeLog(), "apply first", "drift of settled objects is repaired")
	assert.NotNil(t, progress.Paused)

	executor.Pause(10)
	progress, _, err = executor.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Equal(t, 30, progress.Paused.Before, "a second request does not move the boundary")

	executor.Resume()
	progress, _, err = executor.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Contains(t, c.takeLog(), "apply third")
	assert.Nil(t, progress.Paused)
	assert.True(t, progress.Complete)
}

// TestPauseIsTheReasonForUncheckedTombstones has a tombstone below the boundary of the pause and one above it.
func TestPauseIsTheReasonForUncheckedTombstones(t *testing.T) {
	c := newCluster()
	tombstone := func(place, name string) *manifest.Manifest {
		return parse(t, place, `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: `+name+`, annotations: {release.openshift.io/delete: "true"}}}`)
	}
	plan := newPlan(t, release.Updating, clusterOperator(t, "20_b_01", "gate", "1.1.0"), tombstone("20_b_02", "below"), tombstone("30_d_01", "above"))
	executor := c.executor()
	c.report("gate", "False", "False", "1.1.0")
	progress, settled, err := executor.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	const waits = "ConfigMap ns/below is not checked until the objects before it in the release have settled, ConfigMap ns/above is not checked "
	assert.Equal(t, waits+"until the objects before it in the release have settled", progress.UnknownDeletions.Reason)

	executor.Pause(rollout.NoBoundary)
	progress, settled, err = executor.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Equal(t, waits+"while the rollout is paused before runlevel 30", progress.UnknownDeletions.Reason)
	assert.NotEmpty(t, settled.Progress(plan).UnknownDeletions)
	c.report("gate", "True", "False", "1.1.0")
	progress, _, err = executor.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.Equal(t, "ConfigMap ns/above is not checked while the rollout is paused before runlevel 30", progress.UnknownDeletions.Reason)
}

// TestPauseOfAnotherProcessIsKept checks a new process, in which no runlevel has started yet.
func TestPauseOfAnotherProcessIsKept(t *testing.T) {
	for _, test := range []struct {
		name   string
		before int
	}{
		{"derives the boundary from the settled nodes", rollout.NoBoundary},
		{"continues at the boundary of its predecessor", 30},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster()
			plan := three(t, release.Updating)
			_, settled := c.roll(t, plan, rollout.Settled{}) // second and beside have settled, but gate has not
			executor := c.executor()
			executor.Pause(test.before)
			c.report("gate", "True", "False", "1.1.0")
			progress, _, err := executor.Run(t.Context(), plan, settled)
			require.NoError(t, err)
			assert.Equal(t, &report.Pause{Before: 30, Reached: true}, progress.Paused)
			assert.NotContains(t, c.takeLog(), "apply third")
		})
	}
}

// TestPauseLetsTheCurrentRunlevelFinish pauses during an apply. The rest of its runlevel continues, and the next runlevel does not start.
func TestPauseLetsTheCurrentRunlevelFinish(t *testing.T) {
	c := newCluster()
	plan, executor := three(t, release.Updating), c.executor()
	c.report("gate", "True", "False", "1.1.0")
	c.onApply = func(_ context.Context, name string) error {
		if name == "second" {
			executor.Pause(rollout.NoBoundary)
		}
		return nil
	}
	progress, settled, err := executor.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	log := c.takeLog()
	assert.Contains(t, log, "apply beside")
	assert.Contains(t, log, "apply gate")
	assert.NotContains(t, log, "apply third")
	assert.Equal(t, &report.Pause{Before: 30, Reached: true}, progress.Paused)
	executor.Resume()
	progress, _, err = executor.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.True(t, progress.Complete)
}

func TestPauseInTheLastRunlevelHasNoEffect(t *testing.T) {
	c := newCluster()
	plan, executor := three(t, release.Updating), c.executor()
	c.report("gate", "True", "False", "1.1.0")
	c.onApply = func(_ context.Context, name string) error {
		if name == "third" {
			executor.Pause(rollout.NoBoundary)
		}
		return nil
	}
	progress, _, err := executor.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	assert.True(t, progress.Complete)
	assert.Nil(t, progress.Paused)
}

func TestPauseAffectsOnlyUpdates(t *testing.T) {
	for _, mode := range []release.Mode{release.Initializing, release.Reconciling} {
		t.Run(string(mode), func(t *testing.T) {
			c := newCluster()
			c.report("gate", "True", "False", "1.1.0")
			executor := c.executor()
			executor.Pause(rollout.NoBoundary)
			progress, _, err := executor.Run(t.Context(), three(t, mode), rollout.Settled{})
			require.NoError(t, err)
			assert.True(t, progress.Complete)
			assert.Nil(t, progress.Paused)
		})
	}
}
