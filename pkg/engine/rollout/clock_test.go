package rollout_test

import (
	"testing"
	"testing/synctest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/release"
)

// progressing sets the time since when a ClusterOperator reports Progressing.
func (c *cluster) progressing(t *testing.T, name string, since time.Time) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	co, ok := c.objects[name].(*configv1.ClusterOperator)
	require.True(t, ok)
	co.Status.Conditions = append(co.Status.Conditions, configv1.ClusterOperatorStatusCondition{
		Type: configv1.OperatorProgressing, Status: configv1.ConditionTrue, LastTransitionTime: metav1.NewTime(since),
	})
}

// TestClocksSurviveARestart checks that a process that starts during a wait counts from the same time as its predecessor, and keeps the
// progress.
func TestClocksSurviveARestart(t *testing.T) {
	restart := func(settled rollout.Settled, plan *rollout.Plan) rollout.Settled {
		return rollout.Restore(inventory.Inventory{}.With(settled.Records(plan)...), plan.Release.Version)
	}
	setting := func(t *testing.T) (*cluster, *rollout.Plan, time.Time) {
		t.Helper()
		start := time.Now()
		plan := newPlan(t, release.Updating, configMap(t, "10_a_01", "one"), clusterOperator(t, "10_a_09", "a", "1.1.0"), configMap(t, "20_b_01", "two"))
		plan.Began = start.Add(-time.Minute)
		c := newCluster()
		c.report("a", "True", "False", "1.0.0")
		return c, plan, start
	}
	t.Run("uses the time in the inventory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, plan, start := setting(t)
			before, settled := c.roll(t, plan, rollout.Settled{})
			require.Equal(t, start.Truncate(time.Second), before.Problems[0].Since.Truncate(time.Second))
			time.Sleep(31 * time.Minute)
			after, settled := c.roll(t, plan, restart(settled, plan))
			assert.True(t, before.Problems[0].Since.Truncate(time.Second).Equal(after.Problems[0].Since))
			assert.Equal(t, before.Done, after.Done)
			assert.Equal(t, before.Total, after.Total)

			c.report("a", "True", "False", "1.1.0")
			done, settled := c.roll(t, plan, settled)
			assert.Equal(t, done.Total, done.Done, "progress reaches its total")
			for _, r := range settled.Records(plan) {
				assert.Zero(t, r.Since, "a finished wait is not recorded")
			}
		})
	})
	t.Run("uses the operator's condition without an inventory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, plan, start := setting(t)
			time.Sleep(31 * time.Minute)
			c.progressing(t, "a", start.Add(5*time.Second))
			progress, _ := c.roll(t, plan, rollout.Restore(inventory.Inventory{}, "1.1.0"))
			assert.Equal(t, start.Add(5*time.Second), progress.Problems[0].Since)
		})
	})
	t.Run("ignores times before the rollout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, plan, start := setting(t)
			c.progressing(t, "a", start.Add(-72*time.Hour))
			time.Sleep(time.Minute)
			progress, _ := c.roll(t, plan, rollout.Restore(inventory.Inventory{}, "1.1.0"))
			assert.Equal(t, time.Now(), progress.Problems[0].Since)
		})
	})
	t.Run("ignores records of an earlier release", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, plan, _ := setting(t)
			_, settled := c.roll(t, plan, rollout.Settled{})
			records := settled.Records(plan)
			for i := range records {
				records[i].Release = "1.0.0"
			}
			time.Sleep(time.Hour)
			progress, _ := c.roll(t, plan, rollout.Restore(inventory.Inventory{}.With(records...), "1.1.0"))
			assert.Equal(t, time.Now(), progress.Problems[0].Since)
		})
	})
}

// TestReplannedReleaseKeepsCountsAndClocks checks that a new selection of the release's manifests resets neither counts nor waiting times.
func TestReplannedReleaseKeepsCountsAndClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.report("a", "True", "False", "1.0.0")
		one, a, more := configMap(t, "10_a_01", "one"), clusterOperator(t, "10_a_09", "a", "1.1.0"), configMap(t, "05_c_01", "more")
		before, settled := c.roll(t, newPlan(t, release.Updating, one, a), rollout.Settled{})
		require.Equal(t, 1, before.Done)
		time.Sleep(time.Minute)
		plan := newPlan(t, release.Updating, more, one, a)
		assert.Equal(t, 1, settled.Restart(false).Progress(plan).Done)
		assert.Zero(t, settled.Restart(true).Progress(plan).Done)
		after, _ := c.roll(t, plan, settled.Restart(false))
		assert.Equal(t, 2, after.Done)
		assert.Equal(t, 3, after.Total)
		assert.Equal(t, before.Problems[0].Since, after.Problems[0].Since)
	})
}
