// Package nodesim simulates the update of 2,000 nodes with 60,000 pods in virtual time. It uses the planner and the selection of nodes of the
// node stage, and evaluates PodDisruptionBudgets as the API server does. The makespan is a multiple of a bound that no order of nodes can
// beat: machine-config.md §13.4, issue 26.
//
// The limit of 50 evictions a second is left out. With it, the evictions alone would last 1,200 s, which is more than the bound of about 1,190 s.
package nodesim_test

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// between returns a function that draws how many pods of an application may be disrupted at the same time.
func between(least, most int) func(*rand.Rand) int {
	return func(r *rand.Rand) int { return least + r.IntN(most-least+1) }
}

// seeds is the number of clusters of each kind.
const seeds = 5

func TestMakespan(t *testing.T) {
	if testing.Short() {
		t.Skip("needs more than a second")
	}
	begun := processorTime(t)
	for _, tt := range []struct {
		name   string
		atOnce func(*rand.Rand) int
		limit  float64
	}{
		{"none", nil, 1.02},
		{"loose", between(2, 4), 1.06},
		{"tight", between(1, 4), 1.17},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var multiples []float64
			refused := 0
			for seed := range uint64(seeds) {
				c := newCluster(seed+1, tt.atOnce)
				multiple, err := c.update()
				require.NoError(t, err)
				assert.Empty(t, c.violations)
				multiples, refused = append(multiples, multiple), refused+c.refused
			}
			slices.Sort(multiples)
			t.Logf("makespan as a multiple of the bound: median %.3f of %.3f; %d refused evictions a run", multiples[seeds/2], multiples, refused/seeds)
			assert.LessOrEqual(t, multiples[seeds/2], tt.limit)
		})
	}
	used := processorTime(t) - begun
	t.Logf("CPU time: %s", used.Round(time.Millisecond))
	assert.Less(t, used, time.Minute)
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

// processorTime returns the CPU time of this process.
func processorTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
