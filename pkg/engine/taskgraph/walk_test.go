package taskgraph_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// settle is a visit that takes one second of the bubble's time.
func settle(context.Context, *taskgraph.Node) taskgraph.Outcome {
	time.Sleep(time.Second)
	return taskgraph.Settled
}

func TestWalkVisitsEverythingInOrder(t *testing.T) {
	for seed := range uint64(40) {
		for _, mode := range release.Modes() {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 3))
				g := build(t, mode, random(r, 1+r.IntN(80))...)
				width := 1 + r.IntN(16)
				before := reaches(g)
				ended := make([]atomic.Bool, len(g.Nodes()))
				var running, most atomic.Int64
				result, err := taskgraph.Walk(t.Context(), g, width, nil, func(_ context.Context, n *taskgraph.Node) taskgraph.Outcome {
					most.Store(max(most.Load(), running.Add(1)))
					defer running.Add(-1)
					for i := range before[n.Index] {
						assert.True(t, ended[i].Load() || g.Nodes()[i].Barrier())
					}
					time.Sleep(time.Duration(n.Index%7) * time.Second)
					assert.False(t, ended[n.Index].Swap(true), "visited twice")
					return taskgraph.Settled
				})
				require.NoError(t, err)
				assert.True(t, result.Complete())
				assert.LessOrEqual(t, most.Load(), int64(width))
				for _, n := range g.Nodes() {
					assert.Equal(t, !n.Barrier(), result.Visited[n.Index])
				}
			})
		}
	}
}

func TestWalkNeedsTheTimeOfTheCriticalPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, mode := range release.Modes() {
			g := build(t, mode, platform()...)
			start := time.Now()
			_, err := taskgraph.Walk(t.Context(), g, len(g.Tasks()), nil, settle)
			require.NoError(t, err)
			assert.Equal(t, time.Duration(len(g.CriticalPath()))*time.Second, time.Since(start))
		}
	})
}

func TestWalkStartsLongChainsFirst(t *testing.T) {
	g := build(t, release.Updating,
		object("50/a/01", "v1 Service a1"),
		object("50/b/01", "v1 Service b1"), object("50/b/02", "v1 Service b2"), object("50/b/03", "v1 Service b3"),
		object("50/c/01", "v1 Service c1"), object("50/c/02", "v1 Service c2"),
	)
	var order []string
	_, err := taskgraph.Walk(t.Context(), g, 1, nil, func(_ context.Context, n *taskgraph.Node) taskgraph.Outcome {
		order = append(order, n.Manifest.Object.GetName())
		return taskgraph.Settled
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"b1", "b2", "c1", "a1", "b3", "c2"}, order)
}

func TestWalkVisitsCRDsFirstUnlessComponentsAreOrdered(t *testing.T) {
	manifests := []*manifest.Manifest{
		object("50/a/01", "v1 Namespace n"), object("50/a/02", "v1 Service n/a"),
		crd("60/b/01", "Unused.example.com"), crd("70/c/01", "Used.example.com"), object("70/c/02", "example.com/v1 Used used"),
	}
	for mode, want := range map[release.Mode][]string{
		release.Initializing: {"Used", "Unused", "n", "a", "used"},
		release.Reconciling:  {"Used", "Unused", "n", "a", "used"},
		release.Updating:     {"n", "a", "Unused", "Used", "used"},
	} {
		g := build(t, mode, manifests...)
		var order []string
		_, err := taskgraph.Walk(t.Context(), g, 1, nil, func(_ context.Context, n *taskgraph.Node) taskgraph.Outcome {
			name := n.Manifest.Object.GetName()
			if kind, ok, _ := unstructured.NestedString(n.Manifest.Object.Object, "spec", "names", "kind"); ok {
				name = kind
			}
			order = append(order, name)
			return taskgraph.Settled
		})
		require.NoError(t, err)
		assert.Equal(t, want, order, mode)
	}
}

func TestWalkDoesNotVisitDependentsOfHeldTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := build(t, release.Updating,
			object("50/a/01", "v1 Service a1"), object("50/a/02", "v1 Service a2"), object("50/a/03", "v1 Service a3"),
			object("50/b/01", "v1 Service b1"), object("50/b/02", "v1 Service b2"),
			object("70/c/01", "v1 Service c1"), object("70/d/01", "v1 Service d1"),
		)
		result, err := taskgraph.Walk(t.Context(), g, 4, nil, func(ctx context.Context, n *taskgraph.Node) taskgraph.Outcome {
			if n.Label() == "Service a2" {
				return taskgraph.Held
			}
			return settle(ctx, n)
		})
		require.NoError(t, err)
		assert.False(t, result.Complete())
		assert.Equal(t, []string{"Service a1", "Service b1", "Service b2"}, labels(withOutcome(g, result, taskgraph.Settled)))
		assert.Equal(t, []string{"Service a2"}, labels(withOutcome(g, result, taskgraph.Held)))
		assert.Equal(t, []string{"Service a3", "Service c1", "Service d1"}, labels(withOutcome(g, result, taskgraph.NotReached)))
	})
}

func TestWalkStopsWhenCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := build(t, release.Updating, platform()...)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		start := time.Now()
		var visits atomic.Int64
		result, err := taskgraph.Walk(ctx, g, 2, nil, func(ctx context.Context, n *taskgraph.Node) taskgraph.Outcome {
			visits.Add(1)
			return settle(ctx, n) // ignores ctx, so the walk has to wait for it
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 3*time.Second, time.Since(start))
		assert.Len(t, withOutcome(g, result, taskgraph.Settled), int(visits.Load()))
		assert.NotEmpty(t, withOutcome(g, result, taskgraph.NotReached))
	})
}

// TestWalkWakesIdleWorkers checks that workers that wait for a long visit return when the context ends.
func TestWalkWakesIdleWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := build(t, release.Updating, object("50/a/01", "v1 Service a1"), object("50/a/02", "v1 Service a2"))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		result, err := taskgraph.Walk(ctx, g, 8, nil, func(ctx context.Context, _ *taskgraph.Node) taskgraph.Outcome {
			<-ctx.Done()
			return taskgraph.Held
		})
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, []taskgraph.Outcome{taskgraph.Held, taskgraph.NotReached}, result.Outcomes)
	})
}

// TestWalkContinuesWhenTheBellRings checks that a held task is visited again while another visit is running.
func TestWalkContinuesWhenTheBellRings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := build(t, release.Updating, object("50/a/01", "v1 Service a1"), object("50/a/02", "v1 Service a2"), object("50/b/01", "v1 Service slow"))
		var bell taskgraph.Bell
		bell.Ring() // no walk is running
		go func() {
			time.Sleep(time.Second)
			bell.Ring()
			time.Sleep(2 * time.Second)
			bell.Ring()
		}()
		start := time.Now()
		var visits []string
		var lock sync.Mutex
		result, err := taskgraph.Walk(t.Context(), g, 2, &bell, func(_ context.Context, n *taskgraph.Node) taskgraph.Outcome {
			lock.Lock()
			visits = append(visits, n.Label())
			lock.Unlock()
			switch n.Label() {
			case "Service slow":
				time.Sleep(time.Minute)
			case "Service a1":
				if time.Since(start) < 2*time.Second {
					return taskgraph.Held
				}
			}
			return taskgraph.Settled
		})
		require.NoError(t, err)
		assert.True(t, result.Complete())
		assert.Equal(t, time.Minute, time.Since(start), "a2 did not wait for the slow visit")
		assert.ElementsMatch(t, []string{"Service slow", "Service a1", "Service a1", "Service a1", "Service a2"}, visits)
		bell.Ring() // the walk is over
	})
}

// TestWalkNoticesTheBellDuringAVisit checks a ring during a visit: the visit may have missed the announced change.
func TestWalkNoticesTheBellDuringAVisit(t *testing.T) {
	var bell taskgraph.Bell
	g := build(t, release.Updating, object("50/a/01", "v1 Service a1"))
	visits := 0
	result, err := taskgraph.Walk(t.Context(), g, 1, &bell, func(context.Context, *taskgraph.Node) taskgraph.Outcome {
		if visits++; visits == 1 {
			bell.Ring()
			return taskgraph.Held
		}
		return taskgraph.Settled
	})
	require.NoError(t, err)
	assert.True(t, result.Complete())
}

func TestWalkOfAnEmptyGraphCompletes(t *testing.T) {
	result, err := taskgraph.Walk(t.Context(), build(t, release.Updating), 0, nil, settle)
	require.NoError(t, err)
	assert.True(t, result.Complete())

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	g := build(t, release.Updating, platform()...)
	result, err = taskgraph.Walk(canceled, g, 4, nil, settle)
	require.ErrorIs(t, err, context.Canceled)
	assert.Len(t, withOutcome(g, result, taskgraph.NotReached), len(g.Tasks()))
}

func labels(nodes []*taskgraph.Node) []string {
	list := make([]string, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, n.Label())
	}
	return list
}

func BenchmarkWalk(b *testing.B) {
	for _, n := range []int{1_300, 10_000} {
		benchmarkWalk(b, fmt.Sprint(n), build(b, release.Updating, random(rand.New(rand.NewPCG(1, 1)), n)...))
	}
}

func BenchmarkWalkRealRelease(b *testing.B) {
	manifests := realRelease(b, filepath.Join(fixture.Testdata(b), "payloads", "4.23.0"))
	for _, mode := range release.Modes() {
		benchmarkWalk(b, string(mode), build(b, mode, manifests...))
	}
}

// benchmarkWalk measures a walk without its visits.
func benchmarkWalk(b *testing.B, name string, g *taskgraph.Graph) {
	b.Helper()
	for _, width := range []int{1, 16} {
		b.Run(fmt.Sprintf("%s/%d", name, width), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := taskgraph.Walk(b.Context(), g, width, nil, func(context.Context, *taskgraph.Node) taskgraph.Outcome { return taskgraph.Settled })
				require.NoError(b, err)
			}
		})
	}
}

// TestWalkVisitsDependentsOfOpenTasks opens a task. Its dependents are visited once, and the task itself again when the bell rings.
func TestWalkVisitsDependentsOfOpenTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := build(t, release.Updating, object("50/a/01", "v1 Service a1"), object("50/a/02", "v1 Service a2"), object("70/b/01", "v1 Service b1"))
		var bell taskgraph.Bell
		var visits []string
		var lock sync.Mutex
		outcome := taskgraph.Open
		walk := func() taskgraph.Result {
			visits = nil
			result, err := taskgraph.Walk(t.Context(), g, 2, &bell, func(ctx context.Context, n *taskgraph.Node) taskgraph.Outcome {
				lock.Lock()
				visits = append(visits, n.Label())
				now := outcome
				lock.Unlock()
				if n.Label() == "Service a1" {
					return now
				}
				return settle(ctx, n)
			})
			require.NoError(t, err)
			return result
		}
		result := walk()
		assert.False(t, result.Complete(), "the task has not settled")
		assert.Equal(t, []string{"Service a1"}, labels(withOutcome(g, result, taskgraph.Open)))
		assert.Equal(t, []string{"Service a1", "Service a2", "Service b1"}, visits)
		go func() {
			time.Sleep(500 * time.Millisecond)
			lock.Lock()
			outcome = taskgraph.Settled
			lock.Unlock()
			bell.Ring()
		}()
		result = walk()
		assert.True(t, result.Complete())
		assert.Equal(t, []string{"Service a1", "Service a2", "Service a1", "Service b1"}, visits)
	})
}
