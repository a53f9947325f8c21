package background_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/clusterversion/background"
)

func TestSlotsStartWorkOncePerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := background.NewSlots(ctx)
		steps := map[string]int{}
		start := func(slot, key string, next background.Next) {
			r.Start(slot, key, func(context.Context) background.Next {
				steps[slot+key]++
				return next
			})
			synctest.Wait()
		}
		done := background.Next{Done: true}
		start("a", "1", done)
		start("a", "1", done)
		assert.Equal(t, 1, steps["a1"], "finished work is not repeated under its key")
		r.Wake("a")
		synctest.Wait()
		assert.Equal(t, 1, steps["a1"], "not even when woken")
		start("a", "2", done)
		start("a", "1", done)
		assert.Equal(t, 2, steps["a1"], "another key in between allows a restart")
		start("b", "1", done)
		assert.Equal(t, 1, steps["b1"], "slots are independent")
		r.Wake("nobody")

		cancel()
		r.Wait()
		start("c", "1", done)
		assert.Zero(t, steps["c1"], "nothing starts after the context ends")
	})
}

func TestSlotRepeatsAtTheGivenTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := background.NewSlots(ctx)
		begin := time.Now()
		var at []time.Duration
		r.Start("a", "1", func(context.Context) background.Next {
			at = append(at, time.Since(begin))
			switch len(at) {
			case 1, 2:
				return background.Next{After: time.Minute}
			case 3:
				return background.Next{} // waits for an event
			}
			return background.Next{Done: true}
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

func TestSlotRunsAgainWhenWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := background.NewSlots(ctx)
		steps := 0
		r.Start("a", "1", func(context.Context) background.Next {
			steps++
			time.Sleep(time.Second)
			return background.Next{After: time.Hour}
		})
		synctest.Wait()
		for range 100 {
			r.Wake("a")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 2, steps, "a hundred events during a step cause one more step")
		r.Wake("a")
		synctest.Wait()
		assert.Equal(t, 3, steps, "the step runs at once, before the hour is over")
		cancel()
		r.Wait()
	})
}

func TestSlotsReplaceWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := background.NewSlots(ctx)
		var log []string
		var mu sync.Mutex
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, what)
		}
		var inside atomic.Int32
		slow := func(key string) {
			r.Start("a", key, func(ctx context.Context) background.Next {
				assert.Equal(t, int32(1), inside.Add(1), "two steps of one slot never overlap")
				defer inside.Add(-1)
				note("begin " + key)
				<-ctx.Done()
				time.Sleep(time.Second) // requests under way
				note("end " + key)
				return background.Next{}
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
		assert.Equal(t, time.Second, time.Since(begin), "the new step waits for running work")
		assert.Equal(t, "end 4", log[len(log)-1])
	})
}

// TestSlotsStartOnceUnderLoad starts and wakes slots from many goroutines, for the race detector.
func TestSlotsStartOnceUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := background.NewSlots(ctx)
		var inside [2]atomic.Int32
		var callers sync.WaitGroup
		for i := range 16 {
			callers.Go(func() {
				for j := range 50 {
					slot := (i + j) % 2
					r.Start(fmt.Sprint(slot), fmt.Sprint(i, j%7), func(context.Context) background.Next {
						assert.Equal(t, int32(1), inside[slot].Add(1))
						defer inside[slot].Add(-1)
						return background.Next{After: time.Millisecond, Done: j%5 == 0}
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

// TestSlotCancelsStoppedWork checks that Stop cancels the work, and that it can start again under its key after it has ended.
func TestSlotCancelsStoppedWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := background.NewSlots(ctx)
		var log []string
		proceed := make(chan struct{})
		start := func(name string) {
			r.Start("a", "1", func(ctx context.Context) background.Next {
				log = append(log, name+" begins")
				<-ctx.Done()
				<-proceed
				log = append(log, name+" ends")
				return background.Next{}
			})
			synctest.Wait()
		}
		start("first")
		r.Stop()
		start("second")
		assert.Equal(t, []string{"first begins"}, log, "the second step waits for the end of the first")
		proceed <- struct{}{}
		synctest.Wait()
		assert.Equal(t, []string{"first begins", "first ends", "second begins"}, log)
		start("third")
		assert.Len(t, log, 3, "work under that key is running")
		cancel()
		close(proceed)
		r.Wait()
		r.Stop()
	})
}

// TestEndOfWorkIsAwaitedUntilALimit waits for two slots, one of which hangs.
func TestEndOfWorkIsAwaitedUntilALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := background.NewSlots(ctx)
		work := func(takes time.Duration) func(context.Context) background.Next {
			return func(ctx context.Context) background.Next {
				<-ctx.Done()
				time.Sleep(takes)
				return background.Next{}
			}
		}
		r.Start("slow", "1", work(2*time.Second))
		r.Start("hanging", "1", work(time.Hour))
		synctest.Wait()
		cancel()
		began := time.Now()
		r.Ended(t.Context(), "slow", "idle")
		assert.Equal(t, 2*time.Second, time.Since(began))
		limited, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		r.Ended(limited, "hanging", "slow")
		assert.Equal(t, 3*time.Second, time.Since(began))
		assert.Equal(t, []string{"hanging"}, r.Running())
		r.Wait()
	})
}
