package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestRunRepairsDrift(t *testing.T) {
	for _, tt := range []struct {
		name  string
		drift func(c *cluster)
		want  report.Drift
	}{
		{name: "does not reapply an unchanged object", drift: func(*cluster) {}},
		{name: "does not reapply an object whose status changed", drift: func(c *cluster) { c.touch("a", func(*observe.State) {}) }},
		{name: "recreates a deleted object", drift: func(c *cluster) { c.vanish("a") }, want: report.DriftDeleted},
		{name: "reapplies an object that lost our label", drift: func(c *cluster) { c.unlabel("a") }, want: report.DriftChanged},
		{
			name:  "reapplies a replaced object",
			drift: func(c *cluster) { c.touch("a", func(s *observe.State) { s.UID, s.Writer = "other", "kubectl" }) },
			want:  report.DriftReplaced,
		},
		{
			name: "reapplies an object that lost one of our fields",
			drift: func(c *cluster) {
				c.touch("a", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "kubectl" })
			},
			want: report.DriftChanged,
		},
		{
			name:  "reapplies an object that a writer with our manager's name changed",
			drift: func(c *cluster) { c.touch("a", forge) },
			want:  report.DriftChanged,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster()
			plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"), configMap(t, "10_a_02", "b"))
			progress, settled := c.roll(t, plan, rollout.Settled{})
			assert.True(t, progress.Complete)
			c.takeLog()

			tt.drift(c)
			var reported []report.Repaired
			executor := c.executor()
			executor.Repaired = func(r report.Repaired) { reported = append(reported, r) }
			_, settled, err := executor.Run(t.Context(), plan, settled)
			require.NoError(t, err)
			if tt.want == "" {
				assert.Empty(t, c.takeLog())
				assert.Empty(t, reported)
				return
			}
			assert.Equal(t, []string{"apply a"}, c.takeLog())
			require.Len(t, reported, 1)
			assert.Equal(t, tt.want, reported[0].Reason)
			assert.Equal(t, "a", reported[0].ID.Name)
			assert.False(t, reported[0].Fight)
			assert.Equal(t, 1, executor.Objects()[0].Repairs)

			progress, _ = c.roll(t, plan, settled)
			assert.Empty(t, c.takeLog(), "repaired once")
			assert.True(t, progress.Complete)
		})
	}
}

func TestRepairsNameTheClientThatScaledAWorkload(t *testing.T) {
	replicas, size := []string{"spec", "replicas"}, []string{"spec", "size"}
	for _, tt := range []struct {
		name, kind, spec string
		field            []string
		want             string
	}{
		{"names the client that scaled it", "Deployment", "{replicas: 3}", replicas, "console"},
		{"names another writer if the manifest sets no number", "Deployment", "{}", replicas, "kubectl"},
		{"names the client that scaled a custom resource", "Pool", "{size: 3}", size, "console"},
		{"names another writer if the custom resource sets no number", "Pool", "{replicas: 3}", size, "kubectl"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster()
			m := parse(t, "10_a_01", "{apiVersion: apps/v1, kind: "+tt.kind+", metadata: {namespace: ns, name: a}, spec: "+tt.spec+"}")
			plan := newPlan(t, release.Reconciling, m)
			_, settled := c.roll(t, plan, rollout.Settled{})
			c.touch("a", func(s *observe.State) {
				s.Fields, s.Writer, s.Scaler, s.ScaledField = ownership.Hash{1}, "kubectl", "console", tt.field
			})
			var reported []report.Repaired
			executor := c.executor()
			executor.Repaired = func(r report.Repaired) { reported = append(reported, r) }
			_, _, err := executor.Run(t.Context(), plan, settled)
			require.NoError(t, err)
			require.Len(t, reported, 1)
			assert.Equal(t, tt.want, reported[0].Manager)
		})
	}
}

func TestRunDoesNotTreatLateEventsAsDeletions(t *testing.T) {
	c := newCluster()
	c.silent = true
	plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
	_, settled := c.roll(t, plan, rollout.Settled{})
	assert.Equal(t, []string{"apply a"}, c.takeLog())
	_, settled = c.roll(t, plan, settled)
	assert.Empty(t, c.takeLog(), "the watch has not delivered it yet")
	c.silent = false
	_, _ = c.roll(t, plan, settled)
	assert.Equal(t, []string{"apply a"}, c.takeLog(), "the watch is newer than the apply and has no object")
}

// forge simulates a writer that uses our manager's name and sets other values: the fields stay the same, and the time changes.
func forge(s *observe.State) { s.Time, s.Writer = s.Time+100, api.FieldManager }

// sameSecond simulates such a write within the same second, so the time does not change either.
func sameSecond(s *observe.State) { s.Writer = api.FieldManager }

//threat:writer-uses-operator
func TestRunReappliesAfterAWriteInTheSameSecond(t *testing.T) {
	for _, tt := range []struct {
		name    string
		write   func(s *observe.State)
		repairs int
	}{
		{"repairs a tampered object without generation", sameSecond, 1},
		{"repairs a tampered object with a generation", func(s *observe.State) { s.Generation++; sameSecond(s) }, 1},
		{"counts no drift if the object is correct", func(*observe.State) {}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster()
				plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
				_, settled := c.roll(t, plan, rollout.Settled{})
				c.touch("a", tt.write)
				progress, settled := c.roll(t, plan, settled)
				assert.Equal(t, []string{"apply a"}, c.takeLog(), "only the first one")
				assert.Equal(t, 2*time.Second, time.Until(progress.RetryAt))
				assert.True(t, progress.Complete, "a no-op apply delays nothing")

				time.Sleep(2 * time.Second)
				reported := 0
				executor := c.executor()
				executor.Repaired = func(r report.Repaired) {
					reported++
					assert.Equal(t, report.DriftMutated, r.Reason)
				}
				_, settled, err := executor.Run(t.Context(), plan, settled)
				require.NoError(t, err)
				assert.Equal(t, []string{"apply a"}, c.takeLog())
				assert.Equal(t, tt.repairs, reported)
				progress, settled = c.roll(t, plan, settled)
				assert.Zero(t, progress.RetryAt)

				if tt.repairs == 0 {
					c.touch("a", tt.write)
					progress, settled = c.roll(t, plan, settled)
					assert.Equal(t, time.Minute, time.Until(progress.RetryAt), "the clock of another API server may be behind")
					time.Sleep(time.Minute)
					_, _ = c.roll(t, plan, settled)
					assert.Equal(t, []string{"apply a"}, c.takeLog())
				}
			})
		})
	}
}

func TestRunCountsNoDriftIfAnotherWritePrecedesAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
		_, settled := c.roll(t, plan, rollout.Settled{})
		c.touch("a", func(*observe.State) {})
		_, settled = c.roll(t, plan, settled)
		seen := c.states["a"]
		c.answers["a"] = apply.Change{
			Action: apply.Applied, UID: seen.UID, Fields: seen.Fields, Time: seen.Time, ResourceVersion: "1000",
		}
		time.Sleep(2 * time.Second)
		executor := c.executor()
		executor.Repaired = func(report.Repaired) { assert.Fail(t, "the apply changed nothing") }
		_, _, err := executor.Run(t.Context(), plan, settled)
		require.NoError(t, err)
		assert.Equal(t, report.Unchanged, executor.Objects()[0].Result)
	})
}

func TestRunDoesNotTreatWritesWithoutResponseAsDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
		_, settled := c.roll(t, plan, rollout.Settled{})
		changed := newPlan(t, release.Reconciling,
			parse(t, "10_a_01", "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: a}, data: {k: v}}"))
		c.onApply = func(context.Context, string) error { // the server writes the object, but its response is lost
			c.touch("a", func(s *observe.State) { s.Time += 100 })
			return errors.New("connection reset")
		}
		executor := c.executor()
		executor.Repaired = func(report.Repaired) { assert.Fail(t, "our own write is not drift") }
		_, settled, err := executor.Run(t.Context(), changed, settled)
		require.NoError(t, err)
		c.onApply = nil
		time.Sleep(time.Second)
		_, settled, err = executor.Run(t.Context(), changed, settled)
		require.NoError(t, err)
		assert.Equal(t, []string{"apply a", "fail a", "apply a"}, c.takeLog())
		_, _, err = executor.Run(t.Context(), changed, settled)
		require.NoError(t, err)
		assert.Empty(t, c.takeLog(), "the retry's response contains the time")
	})
}

func TestRunReappliesChangedSpecsAtMostOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
		_, settled := c.roll(t, plan, rollout.Settled{})
		time.Sleep(time.Hour)
		c.touch("a", func(s *observe.State) { s.Generation = 1 })
		_, settled = c.roll(t, plan, settled)
		assert.Equal(t, []string{"apply a", "apply a"}, c.takeLog(), "immediately, long after our write")
		c.touch("a", func(s *observe.State) { s.Generation = 2 })
		progress, settled := c.roll(t, plan, settled)
		assert.Empty(t, c.takeLog())
		assert.Equal(t, time.Minute, time.Until(progress.RetryAt))

		time.Sleep(time.Minute)
		var reported []report.Repaired
		executor := c.executor()
		executor.Repaired = func(r report.Repaired) { reported = append(reported, r) }
		_, settled, err := executor.Run(t.Context(), plan, settled)
		require.NoError(t, err)
		assert.Equal(t, []string{"apply a"}, c.takeLog())
		assert.Empty(t, reported, "the object was correct")
		assert.Equal(t, report.Unchanged, executor.Objects()[0].Result)

		progress, settled = c.roll(t, plan, settled)
		assert.Zero(t, progress.RetryAt, "no further check is planned")
		for i := range 30 { // an autoscaler keeps changing the spec
			c.touch("a", func(s *observe.State) { s.Generation = int64(3 + i) })
			_, settled = c.roll(t, plan, settled)
			time.Sleep(10 * time.Second)
		}
		assert.InDelta(t, 5, len(c.takeLog()), 1, "in five minutes")
	})
}

//threat:client-may-patch
func TestRunReappliesObjectsWithoutGenerationOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"), configMap(t, "10_a_01", "b"))
		_, settled := c.roll(t, plan, rollout.Settled{})
		c.takeLog()
		time.Sleep(10 * time.Minute) // long after our own write
		c.touch("a", func(*observe.State) {})
		progress, settled := c.roll(t, plan, settled)
		assert.Equal(t, 50*time.Minute, time.Until(progress.RetryAt))
		time.Sleep(50 * time.Minute)
		progress, settled = c.roll(t, plan, settled)
		assert.Equal(t, []string{"apply a"}, c.takeLog(), "no client wrote b")
		assert.Zero(t, progress.RetryAt)
		progress, _ = c.roll(t, plan, settled)
		assert.Zero(t, progress.RetryAt)
	})
}

//threat:two-writers-fight
func TestRunPausesRepairsInAFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"), configMap(t, "10_a_02", "b"))
		progress, settled := c.roll(t, plan, rollout.Settled{})
		c.takeLog()
		var reported []report.Repaired
		executor := c.executor()
		executor.Repaired = func(r report.Repaired) { reported = append(reported, r) }
		fight := func(times int) {
			for range times {
				c.touch("a", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "other-operator" })
				var err error
				progress, settled, err = executor.Run(t.Context(), plan, settled)
				require.NoError(t, err)
				time.Sleep(time.Second)
			}
		}
		fight(30)
		assert.Len(t, reported, 10, "then the repairs pause")
		assert.True(t, reported[9].Fight)
		assert.Equal(t, "a="+api.ReasonFight, waitsFor(progress))
		assert.Contains(t, progress.Problems[0].Message, `by field manager "other-operator"`)
		assert.True(t, progress.Complete, "a fight delays no other object")
		assert.Equal(t, reported[9].HeldBack, progress.RetryAt)

		c.touch("b", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "kubectl" })
		c.takeLog()
		fight(1)
		assert.Equal(t, []string{"apply b"}, c.takeLog(), "no other object is delayed")

		time.Sleep(time.Until(reported[9].HeldBack))
		reported = nil
		fight(100)
		require.Len(t, reported, 1, "one repair after a truce, then a longer truce")
		assert.Equal(t, 2*time.Minute, reported[0].HeldBack.Sub(reported[0].At))

		time.Sleep(time.Hour)
		fight(1) // the last write of the fight
		reported = nil
		time.Sleep(time.Hour)
		fight(5)
		assert.Len(t, reported, 5)
		assert.False(t, reported[0].Fight)
	})
}

func TestRunReportsRepairsThatSucceedLater(t *testing.T) {
	for name, drift := range map[string]struct {
		damage func(*cluster)
		want   report.Drift
	}{
		"changed": {func(c *cluster) {
			c.touch("a", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "kubectl" })
		}, report.DriftChanged},
		"deleted": {func(c *cluster) { c.vanish("a") }, report.DriftDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster()
				plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
				_, settled := c.roll(t, plan, rollout.Settled{})
				executor := c.executor()
				var reported []report.Repaired
				executor.Repaired = func(r report.Repaired) { reported = append(reported, r) }
				drift.damage(c)
				ctx, cancel := context.WithCancel(t.Context())
				c.onApply = func(ctx context.Context, _ string) error { cancel(); return ctx.Err() }
				_, settled, err := executor.Run(ctx, plan, settled)
				require.ErrorIs(t, err, context.Canceled)
				c.onApply = func(context.Context, string) error { return errors.New("the server is down") }
				progress, settled, err := executor.Run(t.Context(), plan, settled)
				require.NoError(t, err)
				require.Len(t, progress.Problems, 1)
				assert.Empty(t, reported)

				c.onApply = nil
				time.Sleep(time.Minute)
				_, settled, err = executor.Run(t.Context(), plan, settled)
				require.NoError(t, err)
				require.Len(t, reported, 1)
				assert.Equal(t, drift.want, reported[0].Reason)
				assert.False(t, c.options["a"].Changed, "also a repair that failed before is a repair")

				time.Sleep(time.Minute)
				_, _, err = executor.Run(t.Context(), plan, settled)
				require.NoError(t, err)
				assert.Len(t, reported, 1)
			})
		})
	}
}

// The cause of empty managedFields is unknown.
func TestRepairsOfCustomResourcesWithoutManagedFieldsNameNoCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		established := &gate.CRD{}
		established.UID, established.ResourceVersion = "d", "9"
		established.Status.Conditions = []metav1.Condition{{Type: "Established", Status: metav1.ConditionTrue}}
		c.objects["networks.example.com"], c.states["networks.example.com"] = established, observe.State{UID: "d", ResourceVersion: "9"}
		c.answers["networks.example.com"] = apply.Change{Action: apply.Applied, UID: "d", ResourceVersion: "9"}
		plan := newPlan(t, release.Reconciling,
			parse(t, "10_a_01", `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: networks.example.com}, spec: {
  group: example.com, names: {kind: Network, plural: networks}, scope: Cluster, versions: [{name: v1, served: true, storage: true}]}}`),
			parse(t, "10_a_02", "{apiVersion: example.com/v1, kind: Network, metadata: {name: a}}"), configMap(t, "10_a_03", "b"),
			parse(t, "10_a_04", "{apiVersion: example.net/v1, kind: Network, metadata: {name: c}}"))
		_, settled := c.roll(t, plan, rollout.Settled{})
		reported := map[string]report.Repaired{}
		var mutex sync.Mutex // workers report concurrently
		executor := c.executor()
		executor.Repaired = func(r report.Repaired) {
			mutex.Lock()
			defer mutex.Unlock()
			reported[r.ID.Name] = r
		}
		var progress report.Progress
		for n := range 11 {
			c.touch("a", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{}, "" })
			if n == 0 {
				c.touch("b", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{}, "" })
				c.touch("c", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{}, "" })
			}
			var err error
			progress, settled, err = executor.Run(t.Context(), plan, settled)
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		assert.True(t, reported["a"].Fight)
		assert.True(t, reported["a"].Unowned)
		assert.True(t, reported["c"].Unowned, "the release does not contain its CRD")
		assert.False(t, reported["b"].Unowned, "a built-in kind is readable in all versions")
		assert.Contains(t, progress.Problems[0].Message, "was repeatedly changed by an unknown client (managedFields were empty): "+
			"stop that client or exclude the object with an override in the ClusterVersion; "+
			"if that client writes another API version than the release, release the manifest in that version; next repair at ")
	})
}

func TestRunSkipsUnchangedObjects(t *testing.T) {
	c := newCluster()
	before := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "same"), configMap(t, "10_a_02", "drifted"), configMap(t, "10_a_03", "other"))
	_, settled := c.roll(t, before, rollout.Settled{})
	c.takeLog()
	c.touch("drifted", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "kubectl" })
	changed := parse(t, "10_a_03", "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: other}, data: {k: v}}")
	after := newPlan(t, release.Updating, configMap(t, "10_a_01", "same"), configMap(t, "10_a_02", "drifted"), changed)
	progress, _ := c.roll(t, after, settled.Restart(true))
	assert.Equal(t, []string{"apply drifted", "apply other"}, c.takeLog())
	assert.True(t, progress.Complete)
}

func TestRunReappliesObjectsThatNoWatchConfirms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Updating, configMap(t, "10_a_01", "a"), configMap(t, "10_a_02", "b"))
		_, settled := c.roll(t, plan, rollout.Settled{})
		c.takeLog()
		c.unsynced = true
		progress, settled := c.roll(t, plan, settled)
		assert.True(t, progress.Complete, "objects applied in this rollout need no confirmation")
		settled = settled.Restart(true)
		progress, settled = c.roll(t, plan, settled)
		assert.False(t, progress.Complete)
		assert.Empty(t, progress.Problems, "a new watch is not a problem")
		assert.Equal(t, 10*time.Second, time.Until(progress.RetryAt))
		time.Sleep(10 * time.Second)
		progress, settled = c.roll(t, plan, settled)
		assert.Equal(t, []string{"apply a"}, c.takeLog(), "the wait for a watch is bounded")
		assert.False(t, c.options["a"].Changed)
		c.unsynced = false
		progress, _ = c.roll(t, plan, settled)
		assert.Empty(t, c.takeLog(), "the watch confirms b")
		assert.True(t, progress.Complete)
	})
}

func TestRunReappliesObjectsOfAnUnservedResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"), configMap(t, "10_b_01", "b"))
		_, settled := c.roll(t, plan, rollout.Settled{})
		c.takeLog()
		c.unsynced = true
		progress, settled := c.roll(t, plan, settled)
		assert.Zero(t, progress.RetryAt, "the extension API server is down")

		for _, synced := range []bool{false, true, false} { // short interruptions do not add up
			c.unsynced, c.unserved = true, true
			progress, settled = c.roll(t, plan, settled)
			assert.Equal(t, 10*time.Second, time.Until(progress.RetryAt))
			assert.True(t, progress.Complete, "until then, the objects count as applied")
			time.Sleep(9 * time.Second)
			c.unsynced, c.unserved = !synced, false
			progress, settled = c.roll(t, plan, settled)
			assert.Zero(t, progress.RetryAt)
			time.Sleep(time.Hour)
		}

		c.unserved = true
		c.onApply = func(context.Context, string) error {
			return errors.New("the server could not find the requested resource")
		}
		_, settled = c.roll(t, plan, settled)
		time.Sleep(10 * time.Second)
		for begin := time.Now(); time.Since(begin) < 5*time.Minute; {
			progress, settled = c.roll(t, plan, settled)
			require.Len(t, progress.Problems, 2)
			assert.False(t, progress.Complete)
			time.Sleep(time.Until(progress.RetryAt))
		}
		assert.InDelta(t, 2*17, len(c.takeLog()), 4, "the delays increase")

		c.unserved, c.unsynced, c.onApply = false, false, nil
		progress, settled = c.roll(t, plan, settled)
		time.Sleep(time.Until(progress.RetryAt))
		progress, settled = c.roll(t, plan, settled)
		assert.ElementsMatch(t, []string{"apply a", "apply b"}, c.takeLog())
		assert.True(t, progress.Complete)
		progress, _ = c.roll(t, plan, settled)
		assert.Empty(t, c.takeLog())
		assert.Zero(t, progress.RetryAt)
	})
}

func TestRestoredObjectOfAnUnservedResourceIsAppliedAtOnce(t *testing.T) {
	c := newCluster()
	m := configMap(t, "10_a_01", "a")
	plan := newPlan(t, release.Reconciling, m)
	_, settled := c.roll(t, plan, rollout.Settled{})
	c.takeLog()
	restored := rollout.Restore(inventory.Inventory{}.With(settled.Records(plan)...), "1.1.0")

	c.unsynced = true
	_, settled = c.roll(t, plan, restored)
	assert.Empty(t, c.takeLog(), "the watch may still confirm the object")
	c.unserved = true
	progress, _ := c.roll(t, plan, settled)
	assert.Equal(t, []string{"apply a"}, c.takeLog())
	assert.True(t, progress.Complete)
}

// TestRunStartsTheWatchOfAnAppliedObject covers an object whose kind was unknown before the apply. Without the watch, no event would cause
// another pass.
func TestRunStartsTheWatchOfAnAppliedObject(t *testing.T) {
	c := newCluster()
	c.unsynced = true
	observer := &looking{cluster: c, count: map[string]int{}}
	executor := c.executor()
	executor.Observer = observer
	c.onApply = func(context.Context, string) error {
		assert.Equal(t, 1, observer.count["a"])
		return nil
	}
	_, _, err := executor.Run(t.Context(), newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a")), rollout.Settled{})
	require.NoError(t, err)
	assert.Equal(t, 2, observer.count["a"])
}

func TestRunRequestsOnlyUnfinishedDeletionsAgainIfUnserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		tombstone := func(name string) *manifest.Manifest {
			return parse(t, "10_a_01", `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: `+name+`, annotations: {release.openshift.io/delete: "true"}}}`)
		}
		plan := newPlan(t, release.Reconciling, tombstone("deleted"), tombstone("deleting"))
		c.states["deleted"], c.states["deleting"] = observe.State{UID: "1"}, observe.State{UID: "2"}
		c.answers["deleting"] = apply.Change{Action: apply.Deleting, UID: "2", Deleting: true}
		_, settled := c.roll(t, plan, rollout.Settled{})
		c.takeLog()

		c.unsynced, c.unserved = true, true
		_, settled = c.roll(t, plan, settled)
		time.Sleep(10 * time.Second)
		delete(c.answers, "deleting")
		_, settled = c.roll(t, plan, settled)
		assert.Equal(t, []string{"apply deleting"}, c.takeLog())
		_, settled = c.roll(t, plan, settled)
		time.Sleep(time.Hour)
		progress, _ := c.roll(t, plan, settled)
		assert.Empty(t, c.takeLog())
		assert.Zero(t, progress.RetryAt)
	})
}

//threat:killed-operator-leaves
func TestRestoreContinuesWithoutWrites(t *testing.T) {
	c := newCluster()
	a, b, gone := configMap(t, "10_a_01", "a"), configMap(t, "10_a_02", "b"), configMap(t, "10_a_03", "gone")
	plan := newPlan(t, release.Reconciling, a, b, gone)
	_, settled := c.roll(t, plan, rollout.Settled{})
	c.takeLog()
	inv := inventory.Inventory{}.With(settled.Records(plan)...)
	require.Len(t, inv.Records, 3)
	assert.Equal(t, "1.1.0", inv.Records[a.ID()].Release)

	c.touch("b", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "kubectl" })
	c.vanish("gone")
	restored := rollout.Restore(inv, "1.1.0")
	executor := c.executor()
	progress, restored, err := executor.Run(t.Context(), plan, restored)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"apply b", "apply gone"}, c.takeLog(), "only the objects that changed between the two processes")
	assert.True(t, progress.Complete)
	assert.Equal(t, 3, progress.Done)
	_, _ = c.roll(t, plan, restored)
	assert.Empty(t, c.takeLog())
}

//threat:client-may-patch
func TestRestoreDetectsTampering(t *testing.T) {
	for _, tt := range []struct {
		name       string
		generation int64
		tamper     func(s *observe.State)
		// want is the drift that is reported if the apply changes the object.
		want report.Drift
	}{
		{"detects a writer that uses our manager's name", 0, forge, report.DriftChanged},
		{"detects a write within the second of our own", 0, sameSecond, report.DriftMutated},
		{"detects a write within the second of our own, with a generation", 1, func(s *observe.State) { s.Generation++; sameSecond(s) }, report.DriftMutated},
		{"detects a replaced object", 0, func(s *observe.State) { s.UID, s.Writer = "other", "kubectl" }, report.DriftReplaced},
		{"ignores a writer that changes none of our fields", 0, func(*observe.State) {}, ""},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster()
				plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"), configMap(t, "10_a_02", "b"))
				c.states["a"] = observe.State{UID: "uid-a", Generation: tt.generation, Writer: "other"}
				_, settled := c.roll(t, plan, rollout.Settled{})
				c.takeLog()
				inv := inventory.Inventory{}.With(settled.Records(plan)...)
				c.touch("a", tt.tamper)
				time.Sleep(5 * time.Second) // no operator is running
				var reported []report.Repaired
				executor := c.executor()
				executor.Repaired = func(r report.Repaired) { reported = append(reported, r) }
				progress, restored, err := executor.Run(t.Context(), plan, rollout.Restore(inv, "1.1.0"))
				require.NoError(t, err)
				assert.True(t, progress.Complete)
				assert.Equal(t, []string{"apply a"}, c.takeLog(), "only the changed object")
				if tt.want == "" {
					assert.Empty(t, reported)
				} else if assert.Len(t, reported, 1) {
					assert.Equal(t, tt.want, reported[0].Reason)
				}
				again := inventory.Inventory{}.With(restored.Records(plan)...)
				_, _ = c.roll(t, plan, rollout.Restore(again, "1.1.0"))
				assert.Empty(t, c.takeLog(), "the record contains the response")
			})
		})
	}
}

func TestRestoreIgnoresTheStatusOfObjectsWithGeneration(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
	c.states["a"] = observe.State{UID: "uid-a", Generation: 3, Writer: "other"}
	_, settled := c.roll(t, plan, rollout.Settled{})
	c.takeLog()
	inv := inventory.Inventory{}.With(settled.Records(plan)...)
	for range 2 { // a process without changes writes equivalent records
		c.touch("a", func(*observe.State) {})
		_, settled = c.roll(t, plan, rollout.Restore(inv, "1.1.0"))
		assert.Empty(t, c.takeLog())
		inv = inventory.Inventory{}.With(settled.Records(plan)...)
	}
}

// TestRestoreProbesRecordsWithoutTime covers records of an earlier version, which contained neither time nor UID.
func TestRestoreProbesRecordsWithoutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		var manifests []*manifest.Manifest
		for i := range 120 {
			manifests = append(manifests, configMap(t, "10_a_01", fmt.Sprint("o", i)))
		}
		plan := newPlan(t, release.Reconciling, manifests...)
		_, settled := c.roll(t, plan, rollout.Settled{})
		c.takeLog()
		records := settled.Records(plan)
		for i := range records {
			records[i].UID, records[i].Time, records[i].Generation, records[i].ResourceVersion = "", 0, 0, ""
		}
		c.touch("o7", forge)
		executor := c.executor()
		reported := 0
		executor.Repaired = func(r report.Repaired) {
			reported++
			assert.Equal(t, "o7", r.ID.Name)
		}
		restored := rollout.Restore(inventory.Inventory{}.With(records...), "1.1.0")
		applied := 0
		for _, want := range []int{50, 50, 20, 0} {
			progress, next, err := executor.Run(t.Context(), plan, restored)
			require.NoError(t, err)
			assert.True(t, progress.Complete)
			assert.Len(t, c.takeLog(), want)
			restored, applied = next, applied+want
			unproved := 0
			for _, r := range restored.Records(plan) {
				if r.UID == "" {
					unproved++
				}
			}
			assert.Equal(t, 120-applied, unproved, "records without a no-op apply stay incomplete")
			time.Sleep(time.Second)
		}
		assert.Equal(t, 1, reported)
	})
}

func TestRunDeletesTombstonedObjects(t *testing.T) {
	tombstone := func(kind string) *manifest.Manifest {
		return parse(t, "10_a_01", `{apiVersion: apps/v1, kind: `+kind+`, metadata: {namespace: ns, name: a, annotations: {release.openshift.io/delete: "true"}}}`)
	}
	t.Run("delays nothing during a deletion", func(t *testing.T) {
		c := newCluster()
		c.answers["a"] = apply.Change{Action: apply.Deleting, UID: "1", Message: "waiting for its finalizers x"}
		c.states["a"] = observe.State{UID: "1", Deleting: true, Finalizers: []string{"x"}}
		plan := newPlan(t, release.Updating, tombstone("Deployment"), configMap(t, "10_a_02", "b"))
		assert.Equal(t, report.Unknown{Pending: true}, rollout.Settled{}.Progress(plan).UnknownDeletions)
		progress, settled := c.roll(t, plan, rollout.Settled{})
		assert.Equal(t, []string{"apply a", "apply b"}, c.takeLog())
		assert.True(t, progress.Complete)
		assert.Empty(t, progress.UnknownDeletions)
		require.Len(t, progress.Deletions, 1)
		assert.Equal(t, "waiting for its finalizers x", progress.Deletions[0].Message)

		c.unsynced = true
		progress, settled = c.roll(t, plan, settled)
		assert.Len(t, progress.Deletions, 1, "a watch that is not synced does not prove a deletion")
		c.unsynced = false
		progress, settled = c.roll(t, plan, settled)
		assert.Len(t, progress.Deletions, 1)

		c.vanish("a")
		progress, settled = c.roll(t, plan, settled)
		assert.Empty(t, c.takeLog())
		assert.Empty(t, progress.Deletions)

		c.touch("a", func(s *observe.State) { s.UID = "2" })
		c.answers["a"] = apply.Change{Action: apply.Deleted}
		_, settled = c.roll(t, plan, settled)
		assert.Equal(t, []string{"apply a"}, c.takeLog(), "a reappeared object is deleted again")
		c.vanish("a")
		_, _ = c.roll(t, plan, settled)
		assert.Empty(t, c.takeLog())
	})
	t.Run("delays the next object with the same name", func(t *testing.T) {
		c := newCluster()
		c.answers["a"] = apply.Change{Action: apply.Deleting, UID: "1", Message: "waiting for the server to remove it"}
		c.states["a"] = observe.State{UID: "1", Deleting: true}
		next := parse(t, "10_a_02", `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: a}}`)
		plan := newPlan(t, release.Updating, tombstone("Deployment"), next)
		progress, settled := c.roll(t, plan, rollout.Settled{})
		assert.Equal(t, []string{"apply a"}, c.takeLog())
		assert.Equal(t, "a="+api.ReasonDeleting, waitsFor(progress))
		c.unsynced = true
		progress, settled = c.roll(t, plan, settled)
		assert.Empty(t, c.takeLog(), "the old object may still exist")
		assert.Equal(t, "a="+api.ReasonDeleting, waitsFor(progress))
		c.unsynced = false
		c.vanish("a")
		delete(c.answers, "a")
		_, _ = c.roll(t, plan, settled)
		assert.Equal(t, []string{"apply a"}, c.takeLog(), "the new object")
	})
}

// TestRunKnowsDeletionsAfterItHasVisitedEveryTombstone makes passes that find out nothing about a tombstone.
func TestRunKnowsDeletionsAfterItHasVisitedEveryTombstone(t *testing.T) {
	c := newCluster()
	c.states["old"] = observe.State{UID: "1", Deleting: true, Finalizers: []string{"x"}}
	tombstone := parse(t, "10_a_02", `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: old, annotations: {release.openshift.io/delete: "true"}}}`)
	plan := newPlan(t, release.Updating, configMap(t, "10_a_01", "first"), tombstone)
	fails := func(name, text string) func(context.Context, string) error {
		return func(_ context.Context, n string) error {
			if n == name {
				return errors.New(text)
			}
			return nil
		}
	}
	c.onApply = fails("first", "no")
	progress, _ := c.roll(t, plan, rollout.Settled{})
	assert.Equal(t, "ConfigMap ns/old is not checked until the objects before it in the release have settled", progress.UnknownDeletions.Reason)

	c.onApply, c.unsynced = nil, true
	progress, settled := c.roll(t, plan, rollout.Settled{})
	assert.Equal(t, report.Unknown{Pending: true}, progress.UnknownDeletions, "the watch will report the object")

	c.unsynced = false
	c.answers["old"] = apply.Change{Action: apply.Deleting, UID: "1", Message: "waiting for its finalizers x"}
	progress, settled = c.roll(t, plan, settled)
	assert.Empty(t, progress.UnknownDeletions)
	assert.Len(t, progress.Deletions, 1)

	c.unsynced = true
	progress, _ = c.roll(t, plan, settled)
	assert.Empty(t, progress.UnknownDeletions, "an earlier pass of the rollout knows it")
	progress, _ = c.roll(t, plan, settled.Restart(false))
	assert.Equal(t, report.Unknown{Pending: true}, progress.UnknownDeletions, "another rollout")

	for _, address := range []string{"10.0.0.1:40001", "[fd00::1]:40002"} {
		c.onApply, c.unsynced = fails("old", "read tcp "+address+"->10.0.0.2:6443: reset"), false
		progress, _ = c.roll(t, plan, rollout.Settled{})
		assert.Equal(t, "read tcp 10.0.0.2:6443: reset", progress.UnknownDeletions.Reason, "the reason of a repeated failure")
	}
	c.onApply = fails("old", "no")
	progress, settled = c.roll(t, plan, rollout.Settled{})
	assert.Equal(t, "no", progress.UnknownDeletions.Reason, "the server rejects the deletion")
	assert.Len(t, progress.Problems, 1)
	c.vanish("old")
	require.Eventually(t, func() bool {
		progress, settled = c.roll(t, plan, settled)
		return progress.UnknownDeletions == report.Unknown{}
	}, time.Minute, 50*time.Millisecond, "another client has deleted the object")
	c.touch("old", func(s *observe.State) { s.UID = "2" })
	progress, _ = c.roll(t, plan, settled)
	assert.Equal(t, "no", progress.UnknownDeletions.Reason, "the server rejects a later deletion")
}

// TestRunWaitsForTheWatchOfGates has a tombstone that waits for a CRD, which the watch of the gates has not reported after a restart.
func TestRunWaitsForTheWatchOfGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling,
			parse(t, "10_a_01", `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: olds.example.com}, spec: {group: example.com, names: {kind: Old}}}`),
			parse(t, "10_a_02", `{apiVersion: example.com/v1, kind: Old, metadata: {name: old, annotations: {release.openshift.io/delete: "true"}}}`))
		progress, settled := c.roll(t, plan, rollout.Settled{})
		assert.Equal(t, report.Unknown{Pending: true}, progress.UnknownDeletions)
		assert.Equal(t, 10*time.Second, time.Until(progress.RetryAt))
		time.Sleep(10 * time.Second)
		progress, _ = c.roll(t, plan, settled)
		assert.Contains(t, progress.UnknownDeletions.Reason, "Old.example.com old is not checked")
	})
}

// TestRunLooksForTombstonesOfObjectsThatItApplied has a release that deletes an object of the release before.
func TestRunLooksForTombstonesOfObjectsThatItApplied(t *testing.T) {
	c := newCluster()
	_, settled := c.roll(t, newPlan(t, release.Updating, configMap(t, "10_a_01", "old")), rollout.Settled{})
	tombstone := parse(t, "10_a_01", `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: old, annotations: {release.openshift.io/delete: "true"}}}`)
	plan := newPlan(t, release.Updating, tombstone)
	settled = settled.Restart(true)
	assert.Equal(t, report.Unknown{Pending: true}, settled.Progress(plan).UnknownDeletions)
	progress, _ := c.roll(t, plan, settled)
	assert.Empty(t, progress.UnknownDeletions)
}

func TestRunDoesNotTreatLateEventsAsReappearance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling,
			parse(t, "10_a_01", `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: a, annotations: {release.openshift.io/delete: "true"}}}`))
		c.states["a"] = observe.State{UID: "1", ResourceVersion: "1"}
		c.answers["a"] = apply.Change{Action: apply.Deleted, UID: "1"}
		var reported []report.Repaired
		executor := c.executor()
		executor.Repaired = func(r report.Repaired) { reported = append(reported, r) }
		_, settled, err := executor.Run(t.Context(), plan, rollout.Settled{})
		require.NoError(t, err)
		assert.Equal(t, []string{"apply a"}, c.takeLog())
		progress, settled, err := executor.Run(t.Context(), plan, settled)
		require.NoError(t, err)
		assert.True(t, progress.Complete)
		assert.Empty(t, c.takeLog(), "the watch has not reported the deletion yet")
		assert.Equal(t, 10*time.Second, time.Until(progress.RetryAt))

		time.Sleep(10 * time.Second)
		_, settled, err = executor.Run(t.Context(), plan, settled)
		require.NoError(t, err)
		assert.Equal(t, []string{"apply a"}, c.takeLog(), "the object still exists")
		assert.Empty(t, reported)

		c.touch("a", func(s *observe.State) { s.UID = "2" })
		_, _, err = executor.Run(t.Context(), plan, settled)
		require.NoError(t, err)
		require.Len(t, reported, 1)
		assert.Equal(t, report.DriftReappeared, reported[0].Reason)
	})
}

func TestRunDoesNotRepeatFinishedJobs(t *testing.T) {
	job := func(ttl string) *manifest.Manifest {
		return parse(t, "10_a_01", "{apiVersion: batch/v1, kind: Job, metadata: {namespace: ns, name: a}, spec: {"+ttl+"}}")
	}
	for _, tt := range []struct {
		name, ttl string
		dropped   []string
		again     bool
	}{
		{name: "does not recreate a Job with a TTL", ttl: "ttlSecondsAfterFinished: 60"},
		{name: "does not recreate a Job with a TTL and dropped fields", ttl: "ttlSecondsAfterFinished: 60", dropped: []string{"spec.new"}},
		{name: "recreates a Job without a TTL", again: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster()
			c.finish("a")
			c.dropped["a"] = tt.dropped
			plan := newPlan(t, release.Reconciling, job(tt.ttl))
			progress, settled := c.roll(t, plan, rollout.Settled{})
			require.True(t, progress.Complete)
			c.takeLog()
			c.vanish("a")
			for _, next := range []rollout.Settled{
				settled, settled.Restart(true), rollout.Restore(inventory.Inventory{}.With(settled.Records(plan)...), "1.2.0"),
				// killed in the next rollout before it has come to the Job
				rollout.Restore(inventory.Inventory{}.With(settled.Restart(true).Records(plan)...), "1.1.0"),
			} {
				progress, _ = c.roll(t, plan, next)
				assert.Equal(t, tt.again, len(c.takeLog()) > 0)
				assert.Equal(t, !tt.again, progress.Complete)
				c.vanish("a")
			}
		})
	}
}

// TestChangedFinishedJobsRunAgain checks a finished Job with a TTL and dropped fields whose manifest the next release changes.
func TestChangedFinishedJobsRunAgain(t *testing.T) {
	job := func(ttl int) *rollout.Plan {
		return newPlan(t, release.Reconciling, parse(t, "10_a_01", fmt.Sprintf(
			"{apiVersion: batch/v1, kind: Job, metadata: {namespace: ns, name: a}, spec: {ttlSecondsAfterFinished: %d}}", ttl)))
	}
	c := newCluster()
	c.finish("a")
	c.dropped["a"] = []string{"spec.new"}
	_, settled := c.roll(t, job(60), rollout.Settled{})
	for _, next := range []rollout.Settled{
		settled.Restart(true), rollout.Restore(inventory.Inventory{}.With(settled.Records(job(60))...), "1.2.0"),
	} {
		c.vanish("a")
		c.takeLog()
		c.roll(t, job(61), next)
		assert.Equal(t, []string{"apply a"}, c.takeLog())
	}
}

// TestJobsThatAreDeletedOnCompletionDoNotRunAgain checks a Job whose deletion, in the foreground, begins before the pass after its
// completion.
func TestJobsThatAreDeletedOnCompletionDoNotRunAgain(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Updating, parse(t, "10_a_01",
		"{apiVersion: batch/v1, kind: Job, metadata: {namespace: ns, name: a}, spec: {ttlSecondsAfterFinished: 0}}"))
	_, settled := c.roll(t, plan, rollout.Settled{})
	c.takeLog()
	c.finish("a")
	c.objects["a"].SetDeletionTimestamp(new(metav1.Now()))
	c.touch("a", func(s *observe.State) { s.Deleting, s.Finalizers = true, []string{metav1.FinalizerDeleteDependents} })
	_, settled = c.roll(t, plan, settled)
	c.vanish("a")
	progress, _ := c.roll(t, plan, settled)
	assert.Empty(t, c.takeLog())
	assert.True(t, progress.Complete)
}

func TestRunDoesNotProbeObjectsInDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
		_, settled := c.roll(t, plan, rollout.Settled{})
		c.takeLog()
		c.touch("a", func(s *observe.State) { s.Deleting, s.Finalizers = true, []string{"example.com/x"} })
		for range 3 {
			var progress report.Progress
			progress, settled = c.roll(t, plan, settled)
			assert.True(t, progress.Complete)
			assert.Zero(t, progress.RetryAt)
			time.Sleep(time.Hour)
		}
		assert.Empty(t, c.takeLog())
	})
}

func TestRunReportsDeletionsByOtherClients(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
	_, settled := c.roll(t, plan, rollout.Settled{})
	c.takeLog()
	c.touch("a", func(s *observe.State) { s.Deleting, s.Finalizers = true, []string{"example.com/x"} })
	progress, settled := c.roll(t, plan, settled)
	assert.Empty(t, c.takeLog(), "an object in deletion is not repaired")
	assert.True(t, progress.Complete)
	require.Len(t, progress.Problems, 1)
	assert.Contains(t, progress.Problems[0].Message, "finalizers example.com/x")
	c.vanish("a")
	_, _ = c.roll(t, plan, settled)
	assert.Equal(t, []string{"apply a"}, c.takeLog())
}

//threat:another-client-loosens
func TestRunReportsLoosenedSecurity(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
	_, settled := c.roll(t, plan, rollout.Settled{})
	c.takeLog()
	c.live["a"] = map[string]any{"spec": map[string]any{"hostPID": true, "hostIPC": false}}
	c.touch("a", func(s *observe.State) { s.Loosened = []string{"kubectl: spec.hostIPC", "kubectl: spec.hostPID"} })
	progress, settled := c.roll(t, plan, settled)
	assert.Equal(t, []string{"read a"}, c.takeLog(), "the other writer keeps its fields")
	require.Len(t, progress.Loosened, 1)
	assert.Equal(t, []string{"kubectl: spec.hostPID"}, progress.Loosened[0].Fields, "only the field whose value weakens the security")
	progress, settled = c.roll(t, plan, settled)
	assert.Empty(t, c.takeLog(), "the value is read only once")
	assert.Len(t, progress.Loosened, 1)
	c.touch("a", func(s *observe.State) { s.Loosened = nil })
	progress, _ = c.roll(t, plan, settled)
	assert.Empty(t, progress.Loosened)
}

func TestRunReadsSuspectedFieldsAgainAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
		_, settled := c.roll(t, plan, rollout.Settled{})
		time.Sleep(time.Hour) // a write right after ours has an earlier recheck of its own
		c.live["a"] = map[string]any{"spec": map[string]any{"hostPID": true}}
		c.touch("a", func(s *observe.State) { s.Loosened = []string{"kubectl: spec.hostPID"} })
		c.liveError = errors.New("the server is down")
		progress, settled := c.roll(t, plan, settled)
		assert.Empty(t, progress.Loosened)
		require.Equal(t, 10*time.Second, time.Until(progress.RetryAt), "no event follows")
		c.liveError = nil
		time.Sleep(time.Until(progress.RetryAt))
		progress, _ = c.roll(t, plan, settled)
		assert.Len(t, progress.Loosened, 1)
		assert.Zero(t, progress.RetryAt)
	})
}

func TestRunReportsOtherControllers(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
	_, settled := c.roll(t, plan, rollout.Settled{})
	c.takeLog()
	c.touch("a", func(s *observe.State) { s.Controller = "Shop shop" })
	progress, settled := c.roll(t, plan, settled)
	assert.Equal(t, []report.Controlled{{ID: manifest.ID{Kind: "ConfigMap", Namespace: "ns", Name: "a"}, Controller: "Shop shop"}}, progress.Controlled)
	c.touch("a", func(s *observe.State) { s.Fields = ownership.Hash{1} })
	progress, settled = c.roll(t, plan, settled)
	assert.Equal(t, []string{"apply a"}, c.takeLog())
	assert.Len(t, progress.Controlled, 1, "an apply does not change the controller")
	c.touch("a", func(s *observe.State) { s.Controller = "" })
	progress, _ = c.roll(t, plan, settled)
	assert.Empty(t, progress.Controlled)
}

// TestDeletedObjectsReportNoController has a tombstone whose object waits for its finalizers.
func TestDeletedObjectsReportNoController(t *testing.T) {
	c := newCluster()
	c.states["old"] = observe.State{UID: "1", Controller: "Shop shop", Deleting: true, Finalizers: []string{"x"}}
	c.answers["old"] = apply.Change{Action: apply.Deleting, UID: "1", Message: "waiting for its finalizers x"}
	tombstone := parse(t, "10_a_01", `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: old, annotations: {release.openshift.io/delete: "true"}}}`)
	progress, _ := c.roll(t, newPlan(t, release.Updating, tombstone), rollout.Settled{})
	assert.Len(t, progress.Deletions, 1)
	assert.Empty(t, progress.Controlled)
}

func TestRunPassesWatchedStateToTheApplier(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
	_, settled := c.roll(t, plan, rollout.Settled{})
	assert.Zero(t, c.options["a"].UID, "a new object")
	assert.False(t, c.options["a"].ReplicasForeign, "another operator may have created it")
	c.touch("a", func(s *observe.State) { s.Controller, s.Time = "Shop shop", 1 })
	_, settled = c.roll(t, plan, settled)
	assert.Equal(t, "Shop shop", c.options["a"].Controller)
	assert.Equal(t, types.UID("uid-a"), c.options["a"].UID)
	assert.True(t, c.options["a"].ReplicasForeign)
	c.touch("a", func(s *observe.State) { s.Replicas, s.Time = true, 2 })
	_, settled = c.roll(t, plan, settled)
	assert.False(t, c.options["a"].ReplicasForeign)
	c.touch("a", func(s *observe.State) { s.Replicas, s.Fields = false, ownership.Hash{1} })
	_, _ = c.roll(t, plan, settled)
	assert.False(t, c.options["a"].ReplicasForeign, "the watch does not show our last apply")
}

// TestRunPassesChangesToTheApplier applies a manifest for the first time, repairs it, and changes it. The first apply of the change fails.
func TestRunPassesChangesToTheApplier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		plan := newPlan(t, release.Reconciling, configMap(t, "10_a_01", "a"))
		_, settled := c.roll(t, plan, rollout.Settled{})
		assert.False(t, c.options["a"].Changed, "another operator may have created it")
		c.touch("a", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "kubectl" })
		_, settled = c.roll(t, plan, settled)
		assert.Equal(t, []string{"apply a", "apply a"}, c.takeLog())
		assert.False(t, c.options["a"].Changed, "a repair")
		c.onApply = func(context.Context, string) error { return errors.New("the server is down") }
		c.touch("a", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{2}, "kubectl" })
		c.unsynced = true
		for range 2 { // the second attempt follows a failed one
			_, settled = c.roll(t, plan, settled)
			assert.False(t, c.options["a"].Changed, "a repair that fails")
			time.Sleep(time.Minute)
		}
		c.takeLog()

		plan = newPlan(t, release.Updating, parse(t, "10_a_01", "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: a}, data: {k: v}}"))
		c.onApply = func(context.Context, string) error { return errors.New("the server is down") }
		for _, want := range []string{"fail a", "apply a"} {
			_, settled = c.roll(t, plan, settled)
			assert.Equal(t, []string{want}, c.takeLog())
			assert.True(t, c.options["a"].Changed)
			c.onApply = nil
			time.Sleep(time.Minute)
		}
	})
}

func TestRunWaitsForDeletionsBeforeReplacements(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change apply.Change
		// known is true if the watch has reported the deletion before the apply.
		known    bool
		patience gate.Patience
	}{
		{"a recreated object", apply.Change{Action: apply.Deleting, UID: "1", Message: "waiting for its finalizers x"}, false, gate.UntilSlow},
		{"an object that another client deletes", apply.Change{Action: apply.Applied, Deleting: true, UID: "1", ResourceVersion: "1"}, false, gate.None},
		{"an object that the watch reports as deleted by another client", apply.Change{}, true, gate.None},
	} {
		t.Run("it waits for "+tt.name, func(t *testing.T) {
			c := newCluster()
			c.answers["a"] = tt.change
			c.states["a"] = observe.State{UID: "1", Deleting: tt.known}
			plan := newPlan(t, release.Updating, configMap(t, "10_a_01", "a"), configMap(t, "10_a_02", "b"))
			progress, settled := c.roll(t, plan, rollout.Settled{})
			if tt.known {
				assert.Empty(t, c.takeLog(), "an applied field would be deleted with the object")
			} else {
				assert.Equal(t, []string{"apply a"}, c.takeLog())
			}
			require.Equal(t, "a="+api.ReasonDeleting, waitsFor(progress))
			assert.Equal(t, tt.patience, progress.Problems[0].Patience, "deletions by other clients need an administrator")
			c.states["a"] = observe.State{UID: "1", Deleting: true}
			progress, settled = c.roll(t, plan, settled)
			assert.Empty(t, c.takeLog(), "the rollout waits for the end of the deletion")
			assert.Equal(t, "a="+api.ReasonDeleting, waitsFor(progress))
			message := progress.Problems[0].Message
			progress, settled = c.roll(t, plan, settled.Restart(false))
			assert.Empty(t, c.takeLog())
			assert.Equal(t, message, progress.Problems[0].Message, "a new rollout waits for the same deletion")

			c.vanish("a")
			delete(c.answers, "a")
			progress, _ = c.roll(t, plan, settled)
			assert.Equal(t, []string{"apply a", "apply b"}, c.takeLog())
			assert.True(t, progress.Complete)
		})
	}
}
