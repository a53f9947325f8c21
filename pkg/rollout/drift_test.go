package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

func TestRunRepairsWatchedObjects(t *testing.T) {
	for _, tt := range []struct {
		name  string
		drift func(c *cluster)
		again bool
	}{
		{name: "leaves alone what is as it was", drift: func(*cluster) {}},
		{name: "leaves alone what only reports another status", drift: func(c *cluster) { c.report("a", "True", "True", "1.1.0") }},
		{name: "applies again what was deleted", drift: func(c *cluster) { delete(c.objects, "a") }, again: true},
		{name: "applies again what was replaced", drift: func(c *cluster) { c.objects["a"].SetUID(types.UID("other")) }, again: true},
		{name: "applies again what has another spec", drift: func(c *cluster) { c.objects["a"].SetGeneration(7) }, again: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster()
			c.report("a", "True", "False", "1.1.0")
			plan := newPlan(t, release.Reconciling, clusterOperator(t, "10_a_01", "a", "1.1.0"), configMap(t, "10_a_02", "b"))
			progress, settled := c.roll(t, plan, rollout.Settled{})
			assert.True(t, progress.Complete)
			c.took()

			tt.drift(c)
			_, settled = c.roll(t, plan, settled)
			if !tt.again {
				assert.Empty(t, c.took())
				return
			}
			assert.Equal(t, []string{"apply a"}, c.took())
			c.report("a", "True", "False", "1.1.0")
			progress, _ = c.roll(t, plan, settled)
			assert.Empty(t, c.took(), "repaired once")
			assert.True(t, progress.Complete)
		})
	}
}

func TestRunDoesNotTakeLateWatchesForDeletion(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Reconciling, clusterOperator(t, "10_a_01", "a", "1.1.0"))
	_, settled := c.roll(t, plan, rollout.Settled{})
	assert.Equal(t, []string{"apply a"}, c.took())
	progress, _ := c.roll(t, plan, settled)
	assert.Empty(t, c.took(), "the watch has not delivered it yet")
	assert.Equal(t, "a=NotObserved", waitsFor(progress))
}
