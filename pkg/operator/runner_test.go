package operator

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/clusterversion"
)

func TestRunnerStartsOnceUnderAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := newRunner(ctx)
		steps := map[string]int{}
		start := func(slot, key string, next clusterversion.Next) {
			r.Start(slot, key, func(context.Context) clusterversion.Next {
				steps[slot+key]++
				return next
			})
			synctest.Wait()
		}
		done := clusterversion.Next{Done: true}
		start("a", "1", done)
		start("a", "1", done)
		assert.Equal(t, 1, steps["a1"], "work that is done is not done again under its key")
		r.Wake("a")
		synctest.Wait()
		assert.Equal(t, 1, steps["a1"], "nor when woken")
		start("a", "2", done)
		start("a", "1", done)
		assert.Equal(t, 2, steps["a1"], "another key in between makes it new")
		start("b", "1", done)
		assert.Equal(t, 1, steps["b1"], "slots do not know each other")
		r.Wake("nobody")

		cancel()
		r.Wait()
		start("c", "1", done)
		assert.Zero(t, steps["c1"], "nothing starts any more")
	})
}

func TestRunnerCallsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := newRunner(ctx)
		begin := time.Now()
		var at []time.Duration
		r.Start("a", "1", func(context.Context) clusterversion.Next {
			at = append(at, time.Since(begin))
			switch len(at) {
			case 1, 2:
				return clusterversion.Next{After: time.Minute}
			case 3:
				return clusterversion.Next{} // an event alone
			}
			return clusterversion.Next{Done: true}
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []time.Duration{0, time.Minute, 2 * time.Minute}, at)
		r.Wake("a")
		synctest.Wait()
		assert.Equal(t, time.Hour, at[3])
		cancel()
		r.Wait()
	})
}

func TestRunnerWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := newRunner(ctx)
		steps := 0
		r.Start("a", "1", func(context.Context) clusterversion.Next {
			steps++
			time.Sleep(time.Second)
			return clusterversion.Next{After: time.Hour}
		})
		synctest.Wait()
		for range 100 {
			r.Wake("a")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 2, steps, "a hundred events during a step are one more step")
		r.Wake("a")
		synctest.Wait()
		assert.Equal(t, 3, steps, "at once, not after the hour")
		cancel()
		r.Wait()
	})
}

func TestRunnerReplacesWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := newRunner(ctx)
		var log []string
		var mu sync.Mutex
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, what)
		}
		var inside atomic.Int32
		slow := func(key string) {
			r.Start("a", key, func(ctx context.Context) clusterversion.Next {
				assert.Equal(t, int32(1), inside.Add(1), "never two steps of a slot at once")
				defer inside.Add(-1)
				note("begin " + key)
				<-ctx.Done()
				time.Sleep(time.Second) // requests under way
				note("end " + key)
				return clusterversion.Next{}
			})
		}
		slow("1")
		synctest.Wait()
		slow("2")
		slow("3") // before 2 could begin
		slow("4")
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"begin 1", "end 1", "begin 4"}, log)

		begin := time.Now()
		cancel()
		r.Wait()
		assert.Equal(t, time.Second, time.Since(begin), "it waits for what runs")
		assert.Equal(t, "end 4", log[len(log)-1])
	})
}

// TestRunnerUnderLoad starts and wakes from many goroutines; the race detector looks on.
func TestRunnerUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := newRunner(ctx)
		var inside [2]atomic.Int32
		var callers sync.WaitGroup
		for i := range 16 {
			callers.Go(func() {
				for j := range 50 {
					slot := (i + j) % 2
					r.Start(fmt.Sprint(slot), fmt.Sprint(i, j%7), func(context.Context) clusterversion.Next {
						assert.Equal(t, int32(1), inside[slot].Add(1))
						defer inside[slot].Add(-1)
						return clusterversion.Next{After: time.Millisecond, Done: j%5 == 0}
					})
					r.Wake(fmt.Sprint(slot))
				}
			})
		}
		callers.Wait()
		time.Sleep(time.Second)
		cancel()
		r.Wait()
	})
}
