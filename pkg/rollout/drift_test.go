package rollout_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/observe"
	"github.com/cluster-version/cvo/pkg/ownership"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

func TestRunRepairsDrift(t *testing.T) {
	for _, tt := range []struct {
		name  string
		drift func(c *cluster)
		want  rollout.Drift
	}{
		{name: "leaves alone what is as it was", drift: func(*cluster) {}},
		{name: "leaves alone what only has another status", drift: func(c *cluster) { c.touch("a", func(*observe.State) {}) }},
		{name: "applies again what was deleted", drift: func(c *cluster) { c.vanish("a") }, want: rollout.DriftDeleted},
		{
			name:  "applies again what was replaced",
			drift: func(c *cluster) { c.touch("a", func(s *observe.State) { s.UID, s.Writer = "other", "kubectl" }) },
			want:  rollout.DriftReplaced,
		},
		{
			name: "applies again what lost a field of ours",
			drift: func(c *cluster) {
				c.touch("a", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "kubectl" })
			},
			want: rollout.DriftChanged,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster()
			plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"), configMap(t, "10_a_02", "b"))
			progress, settled := c.roll(t, plan, rollout.Settled{})
			assert.True(t, progress.Complete)
			c.took()

			tt.drift(c)
			var told []rollout.Repaired
			passer := c.passer()
			passer.Repaired = func(r rollout.Repaired) { told = append(told, r) }
			_, settled, err := passer.Run(t.Context(), plan, settled)
			require.NoError(t, err)
			if tt.want == "" {
				assert.Empty(t, c.took())
				assert.Empty(t, told)
				return
			}
			assert.Equal(t, []string{"apply a"}, c.took())
			require.Len(t, told, 1)
			assert.Equal(t, tt.want, told[0].Reason)
			assert.Equal(t, "a", told[0].ID.Name)
			assert.False(t, told[0].Fight)
			assert.Equal(t, 1, passer.Objects()[0].Repairs)

			progress, _ = c.roll(t, plan, settled)
			assert.Empty(t, c.took(), "repaired once")
			assert.True(t, progress.Complete)
		})
	}
}

func TestRunDoesNotTakeLateWatchesForDeletion(t *testing.T) {
	c := newCluster()
	c.silent = true
	plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
	_, settled := c.roll(t, plan, rollout.Settled{})
	assert.Equal(t, []string{"apply a"}, c.took())
	_, settled = c.roll(t, plan, settled)
	assert.Empty(t, c.took(), "the watch has not delivered it yet")
	c.silent = false
	_, _ = c.roll(t, plan, settled)
	assert.Equal(t, []string{"apply a"}, c.took(), "the watch is past it, and it is not there")
}

func TestRunMakesSureOfSpecsAtMostOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
		_, settled := c.roll(t, plan, rollout.Settled{})
		c.touch("a", func(s *observe.State) { s.Generation = 2 })
		progress, settled := c.roll(t, plan, settled)
		assert.Equal(t, []string{"apply a"}, c.took(), "only what was applied first")
		assert.Equal(t, time.Minute, time.Until(progress.RetryAt))

		time.Sleep(time.Minute)
		var told []rollout.Repaired
		passer := c.passer()
		passer.Repaired = func(r rollout.Repaired) { told = append(told, r) }
		_, settled, err := passer.Run(t.Context(), plan, settled)
		require.NoError(t, err)
		assert.Equal(t, []string{"apply a"}, c.took())
		assert.Empty(t, told, "it turned out to be as it should be")
		assert.Equal(t, rollout.Unchanged, passer.Objects()[0].Result)

		progress, settled = c.roll(t, plan, settled)
		assert.Zero(t, progress.RetryAt, "and is sure from then on")
		for i := range 30 { // a scaler at work
			c.touch("a", func(s *observe.State) { s.Generation = int64(3 + i) })
			_, settled = c.roll(t, plan, settled)
			time.Sleep(10 * time.Second)
		}
		assert.InDelta(t, 5, len(c.took()), 1, "in five minutes")
	})
}

func TestRunTricklesWhatHasNoGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"), configMap(t, "10_a_01", "b"))
		_, settled := c.roll(t, plan, rollout.Settled{})
		c.took()
		c.touch("a", func(*observe.State) {})
		progress, settled := c.roll(t, plan, settled)
		assert.Equal(t, time.Hour, time.Until(progress.RetryAt))
		time.Sleep(time.Hour)
		progress, settled = c.roll(t, plan, settled)
		assert.Equal(t, []string{"apply a"}, c.took(), "b was not written by anybody")
		assert.Zero(t, progress.RetryAt)
		progress, _ = c.roll(t, plan, settled)
		assert.Zero(t, progress.RetryAt)
	})
}

func TestRunHoldsBackRepairsInAFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"), configMap(t, "10_a_02", "b"))
		progress, settled := c.roll(t, plan, rollout.Settled{})
		c.took()
		var told []rollout.Repaired
		passer := c.passer()
		passer.Repaired = func(r rollout.Repaired) { told = append(told, r) }
		fight := func(times int) {
			for range times {
				c.touch("a", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "other-operator" })
				var err error
				progress, settled, err = passer.Run(t.Context(), plan, settled)
				require.NoError(t, err)
				time.Sleep(time.Second)
			}
		}
		fight(30)
		assert.Len(t, told, 10, "then the other one has its way for a while")
		assert.True(t, told[9].Fight)
		assert.Equal(t, "a="+rollout.ReasonFight, waitsFor(progress))
		assert.Contains(t, progress.Problems[0].Message, `by field manager "other-operator"`)
		assert.True(t, progress.Complete, "it keeps nothing from going on")
		assert.Equal(t, told[9].HeldBack, progress.RetryAt)

		c.touch("b", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "kubectl" })
		c.took()
		fight(1)
		assert.Equal(t, []string{"apply b"}, c.took(), "nobody else is held back")

		time.Sleep(time.Until(told[9].HeldBack))
		told = nil
		fight(100)
		require.Len(t, told, 1, "one more after a truce, and the next truce is longer")
		assert.Equal(t, 2*time.Minute, told[0].HeldBack.Sub(told[0].At))

		time.Sleep(time.Hour)
		fight(1) // the last one of the fight, which is over
		told = nil
		time.Sleep(time.Hour)
		fight(5)
		assert.Len(t, told, 5)
		assert.False(t, told[0].Fight)
	})
}

func TestRunAppliesNothingThatStands(t *testing.T) {
	c := newCluster()
	before := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "same"), configMap(t, "10_a_02", "drifted"), configMap(t, "10_a_03", "other"))
	_, settled := c.roll(t, before, rollout.Settled{})
	c.took()
	c.touch("drifted", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "kubectl" })
	changed := parse(t, "10_a_03", "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: other}, data: {k: v}}")
	after := newPlan(t, release.Updating, configMap(t, "10_a_01", "same"), configMap(t, "10_a_02", "drifted"), changed)
	progress, _ := c.roll(t, after, settled.Restart(true))
	assert.Equal(t, []string{"apply drifted", "apply other"}, c.took())
	assert.True(t, progress.Complete)
}

func TestRunDoubtsWhatNoWatchConfirms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Updating, configMap(t, "10_a_01", "a"), configMap(t, "10_a_02", "b"))
		_, settled := c.roll(t, plan, rollout.Settled{})
		c.took()
		c.unsynced = true
		progress, settled := c.roll(t, plan, settled)
		assert.True(t, progress.Complete, "what was applied in this rollout is known")
		settled = settled.Restart(true)
		progress, settled = c.roll(t, plan, settled)
		assert.False(t, progress.Complete)
		assert.Empty(t, progress.Problems, "a watch that has just begun is no trouble")
		assert.Equal(t, 10*time.Second, time.Until(progress.RetryAt))
		time.Sleep(10 * time.Second)
		progress, settled = c.roll(t, plan, settled)
		assert.Equal(t, []string{"apply a"}, c.took(), "a watch is not waited for for ever")
		c.unsynced = false
		progress, _ = c.roll(t, plan, settled)
		assert.Empty(t, c.took(), "the watch confirms b")
		assert.True(t, progress.Complete)
	})
}

func TestRestore(t *testing.T) {
	c := newCluster()
	a, b, gone := configMap(t, "10_a_01", "a"), configMap(t, "10_a_02", "b"), configMap(t, "10_a_03", "gone")
	plan := newPlan(t, release.Reconciling, a, b, gone)
	_, settled := c.roll(t, plan, rollout.Settled{})
	c.took()
	inv := inventory.Inventory{}.With(settled.Records(plan)...)
	require.Len(t, inv.Records, 3)
	assert.Equal(t, "1.1.0", inv.Records[a.ID()].Release)

	c.touch("b", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "kubectl" })
	c.vanish("gone")
	restored := rollout.Restore(inv, "1.1.0")
	passer := c.passer()
	progress, restored, err := passer.Run(t.Context(), plan, restored)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"apply b", "apply gone"}, c.took(), "what happened while nobody looked")
	assert.True(t, progress.Complete)
	assert.Equal(t, 3, progress.Done)
	_, _ = c.roll(t, plan, restored)
	assert.Empty(t, c.took())
}

func TestRunFollowsTombstones(t *testing.T) {
	tombstone := func(kind string) *manifest.Manifest {
		return parse(t, "10_a_01", `{apiVersion: apps/v1, kind: `+kind+`, metadata: {namespace: ns, name: a, annotations: {release.openshift.io/delete: "true"}}}`)
	}
	t.Run("holds nothing back while it is being deleted", func(t *testing.T) {
		c := newCluster()
		c.answers["a"] = apply.Change{Action: apply.Deleting, UID: "1", Message: "waiting for its finalizers x"}
		c.states["a"] = observe.State{UID: "1", Deleting: true, Finalizers: []string{"x"}}
		plan := newPlan(t, release.Updating, tombstone("Deployment"), configMap(t, "10_a_02", "b"))
		progress, settled := c.roll(t, plan, rollout.Settled{})
		assert.Equal(t, []string{"apply a", "apply b"}, c.took())
		assert.True(t, progress.Complete)
		require.Len(t, progress.Deletions, 1)
		assert.Equal(t, "waiting for its finalizers x", progress.Deletions[0].Message)

		c.unsynced = true
		progress, settled = c.roll(t, plan, settled)
		assert.Len(t, progress.Deletions, 1, "a watch that tells nothing does not tell that it is gone")
		c.unsynced = false
		progress, settled = c.roll(t, plan, settled)
		assert.Len(t, progress.Deletions, 1)

		c.vanish("a")
		progress, settled = c.roll(t, plan, settled)
		assert.Empty(t, c.took())
		assert.Empty(t, progress.Deletions)

		c.touch("a", func(s *observe.State) { s.UID = "2" })
		c.answers["a"] = apply.Change{Action: apply.Deleted}
		_, settled = c.roll(t, plan, settled)
		assert.Equal(t, []string{"apply a"}, c.took(), "it is deleted again when it reappears")
		c.vanish("a")
		_, _ = c.roll(t, plan, settled)
		assert.Empty(t, c.took())
	})
	t.Run("is waited for by what takes its name", func(t *testing.T) {
		c := newCluster()
		c.answers["a"] = apply.Change{Action: apply.Deleting, UID: "1", Message: "waiting for the server to end it"}
		c.states["a"] = observe.State{UID: "1", Deleting: true}
		next := parse(t, "10_a_02", `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: a}}`)
		plan := newPlan(t, release.Updating, tombstone("Deployment"), next)
		progress, settled := c.roll(t, plan, rollout.Settled{})
		assert.Equal(t, []string{"apply a"}, c.took())
		assert.Equal(t, "a="+rollout.ReasonDeleting, waitsFor(progress))
		c.unsynced = true
		progress, settled = c.roll(t, plan, settled)
		assert.Empty(t, c.took(), "it may be there still")
		assert.Equal(t, "a="+rollout.ReasonDeleting, waitsFor(progress))
		c.unsynced = false
		c.vanish("a")
		delete(c.answers, "a")
		_, _ = c.roll(t, plan, settled)
		assert.Equal(t, []string{"apply a"}, c.took(), "the living one")
	})
}

func TestRunDoesNotTakeLateWatchesForWhatReappears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling,
			parse(t, "10_a_01", `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: a, annotations: {release.openshift.io/delete: "true"}}}`))
		c.states["a"] = observe.State{UID: "1", ResourceVersion: "1"}
		c.answers["a"] = apply.Change{Action: apply.Deleted, UID: "1"}
		var told []rollout.Repaired
		passer := c.passer()
		passer.Repaired = func(r rollout.Repaired) { told = append(told, r) }
		_, settled, err := passer.Run(t.Context(), plan, rollout.Settled{})
		require.NoError(t, err)
		assert.Equal(t, []string{"apply a"}, c.took())
		progress, settled, err := passer.Run(t.Context(), plan, settled)
		require.NoError(t, err)
		assert.True(t, progress.Complete)
		assert.Empty(t, c.took(), "the watch has not told of the deletion yet")
		assert.Equal(t, 10*time.Second, time.Until(progress.RetryAt))

		time.Sleep(10 * time.Second)
		_, settled, err = passer.Run(t.Context(), plan, settled)
		require.NoError(t, err)
		assert.Equal(t, []string{"apply a"}, c.took(), "it is there all the same")
		assert.Empty(t, told)

		c.touch("a", func(s *observe.State) { s.UID = "2" })
		_, _, err = passer.Run(t.Context(), plan, settled)
		require.NoError(t, err)
		require.Len(t, told, 1)
		assert.Equal(t, rollout.DriftReappeared, told[0].Reason)
	})
}

func TestRunLetsFinishedJobsGo(t *testing.T) {
	job := func(ttl string) *manifest.Manifest {
		return parse(t, "10_a_01", "{apiVersion: batch/v1, kind: Job, metadata: {namespace: ns, name: a}, spec: {"+ttl+"}}")
	}
	for _, tt := range []struct {
		name, ttl string
		again     bool
	}{
		{name: "that the cluster cleans up", ttl: "ttlSecondsAfterFinished: 60"},
		{name: "but creates others again", again: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster()
			c.finish("a")
			plan := newPlan(t, release.Reconciling, job(tt.ttl))
			progress, settled := c.roll(t, plan, rollout.Settled{})
			require.True(t, progress.Complete)
			c.took()
			c.vanish("a")
			for _, next := range []rollout.Settled{
				settled, settled.Restart(true), rollout.Restore(inventory.Inventory{}.With(settled.Records(plan)...), "1.2.0"),
			} {
				progress, _ = c.roll(t, plan, next)
				assert.Equal(t, tt.again, len(c.took()) > 0)
				assert.Equal(t, !tt.again, progress.Complete)
				c.vanish("a")
			}
		})
	}
}

func TestRunTellsOfDeletionsByOthers(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
	_, settled := c.roll(t, plan, rollout.Settled{})
	c.took()
	c.touch("a", func(s *observe.State) { s.Deleting, s.Finalizers = true, []string{"example.com/x"} })
	progress, settled := c.roll(t, plan, settled)
	assert.Empty(t, c.took(), "an object that ends is not to be kept")
	assert.True(t, progress.Complete)
	require.Len(t, progress.Problems, 1)
	assert.Contains(t, progress.Problems[0].Message, "finalizers example.com/x")
	c.vanish("a")
	_, _ = c.roll(t, plan, settled)
	assert.Equal(t, []string{"apply a"}, c.took())
}

func TestRunTellsOfLoosenedSecurity(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
	_, settled := c.roll(t, plan, rollout.Settled{})
	c.took()
	c.live["a"] = map[string]any{"spec": map[string]any{"hostPID": true, "hostIPC": false}}
	c.touch("a", func(s *observe.State) { s.Loosened = []string{"kubectl: spec.hostIPC", "kubectl: spec.hostPID"} })
	progress, settled := c.roll(t, plan, settled)
	assert.Equal(t, []string{"read a"}, c.took(), "theirs is theirs")
	require.Len(t, progress.Loosened, 1)
	assert.Equal(t, []string{"kubectl: spec.hostPID"}, progress.Loosened[0].Fields, "by its value")
	progress, settled = c.roll(t, plan, settled)
	assert.Empty(t, c.took(), "it is read once")
	assert.Len(t, progress.Loosened, 1)
	c.touch("a", func(s *observe.State) { s.Loosened = nil })
	progress, _ = c.roll(t, plan, settled)
	assert.Empty(t, progress.Loosened)
}

func TestRunWaitsForWhatHasToGoFirst(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change apply.Change
		// known: a watch has told before it is applied.
		known    bool
		patience gate.Patience
	}{
		{"a recreated object", apply.Change{Action: apply.Deleting, UID: "1", Message: "waiting for its finalizers x"}, false, gate.UntilSlow},
		{"an object that somebody else deletes", apply.Change{Action: apply.Applied, Deleting: true, UID: "1", ResourceVersion: "1"}, false, gate.None},
		{"an object of which is known that somebody else deletes it", apply.Change{}, true, gate.None},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster()
			c.answers["a"] = tt.change
			c.states["a"] = observe.State{UID: "1", Deleting: tt.known}
			plan := newPlan(t, release.Updating, configMap(t, "10_a_01", "a"), configMap(t, "10_a_02", "b"))
			progress, settled := c.roll(t, plan, rollout.Settled{})
			if tt.known {
				assert.Empty(t, c.took(), "what is applied now goes with the object")
			} else {
				assert.Equal(t, []string{"apply a"}, c.took())
			}
			require.Equal(t, "a="+rollout.ReasonDeleting, waitsFor(progress))
			assert.Equal(t, tt.patience, progress.Problems[0].Patience, "what others delete needs an administrator")
			c.states["a"] = observe.State{UID: "1", Deleting: true}
			progress, settled = c.roll(t, plan, settled)
			assert.Empty(t, c.took(), "its end is waited for")
			assert.Equal(t, "a="+rollout.ReasonDeleting, waitsFor(progress))

			c.vanish("a")
			delete(c.answers, "a")
			progress, _ = c.roll(t, plan, settled)
			assert.Equal(t, []string{"apply a", "apply b"}, c.took())
			assert.True(t, progress.Complete)
		})
	}
}
