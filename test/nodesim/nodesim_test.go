// Package nodesim simulates the update of 2,000 nodes with 60,000 pods in virtual time. It uses the planner and the selection of nodes of the
// node stage, and evaluates PodDisruptionBudgets as the API server does. The makespan is a multiple of a bound that no order of nodes can
// beat.
//
// The limits of the makespan hold without a limit of evictions. With the default of 50 a second, the limit is the bound: the evictions alone last
// 1,200 s, and the last node needs more than 90 s after that. The bound of the slots is about 1,190 s.
package nodesim_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/node/evict"
)

// between returns a function that draws how many pods of an application may be disrupted at the same time.
func between(least, most int) func(*rand.Rand) int {
	return func(r *rand.Rand) int { return least + r.IntN(most-least+1) }
}

// seeds is the number of clusters of each kind without a limit of evictions.
const seeds = 5

func TestMakespan(t *testing.T) {
	if testing.Short() {
		t.Skip("needs more than a second")
	}
	for _, tt := range []struct {
		name   string
		atOnce func(*rand.Rand) int
		// perSecond is the limit of evictions; 0 for none.
		perSecond int
		seeds     int
		limit     float64
	}{
		{"none", nil, 0, seeds, 1.02},
		{"loose", between(2, 4), 0, seeds, 1.06},
		{"tight", between(1, 4), 0, seeds, 1.17},
		{"none, with the limit", nil, evict.DefaultPerSecond, 1, 1.04},
		{"loose, with the limit", between(2, 4), evict.DefaultPerSecond, 1, 1.10},
		{"tight, with the limit", between(1, 4), evict.DefaultPerSecond, 1, 1.24},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var multiples []float64
			refused, plans := 0, 0
			var bound time.Duration
			for seed := range uint64(tt.seeds) {
				c := newCluster(seed+1, tt.atOnce)
				c.perSecond = tt.perSecond
				bound = c.bound()
				multiple, err := c.update()
				require.NoError(t, err)
				assert.Empty(t, c.violations)
				multiples, refused, plans = append(multiples, multiple), refused+c.refused, max(plans, c.plans)
			}
			slices.Sort(multiples)
			t.Logf("makespan as a multiple of the bound of %s: median %.3f of %.3f; %d refused evictions and at most %d plans a run",
				bound.Round(time.Second), multiples[tt.seeds/2], multiples, refused/tt.seeds, plans)
			assert.LessOrEqual(t, multiples[tt.seeds/2], tt.limit)
			assert.LessOrEqual(t, plans, poolCount*nodesPerPool*11/10, "each updated node causes a plan, and budgets cause few")
		})
	}
}

// TestMakespanOfThePoolsOrder checks the scenario itself: without the planner, it has the makespans of §13.4.
func TestMakespanOfThePoolsOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("needs more than a second")
	}
	for _, tt := range []struct {
		name   string
		atOnce func(*rand.Rand) int
		want   float64
	}{
		{"loose", between(2, 4), 1.10},
		{"tight", between(1, 4), 1.30},
	} {
		c := newCluster(1, tt.atOnce)
		c.byPoolAlone = true
		multiple, err := c.update()
		require.NoError(t, err)
		t.Logf("%s: %.3f, %d refused evictions", tt.name, multiple, c.refused)
		assert.InDelta(t, tt.want, multiple, 0.04, tt.name)
		assert.Empty(t, c.violations)
	}
}
