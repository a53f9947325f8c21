package operator

import (
	"context"
	"sync"
	"time"

	"github.com/cluster-version/cvo/pkg/clusterversion"
)

// runner works in the background, one goroutine a slot. It implements clusterversion.Runner.
type runner struct {
	ctx context.Context //nolint:containedctx // the lifetime of the process; work outlives the reconcile that starts it

	mu    sync.Mutex
	slots map[string]*slot
	wg    sync.WaitGroup
}

// slot is the work under one key.
type slot struct {
	key    string
	cancel context.CancelFunc
	// poked holds at most one poke: more that come before the next step tell nothing new.
	poked chan struct{}
	ended chan struct{}
}

func newRunner(ctx context.Context) *runner {
	return &runner{ctx: ctx, slots: map[string]*slot{}}
}

// Start implements clusterversion.Runner.
func (r *runner) Start(name, key string, step func(ctx context.Context) clusterversion.Next) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.slots[name]
	if before != nil && before.key == key || r.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.ctx)
	s := &slot{key: key, cancel: cancel, poked: make(chan struct{}, 1), ended: make(chan struct{})}
	r.slots[name] = s
	if before != nil {
		before.cancel()
	}
	r.wg.Go(func() {
		defer close(s.ended)
		defer cancel()
		if before != nil {
			<-before.ended
		}
		s.work(ctx, step)
	})
}

// Wake has the slot's next step come at once.
func (r *runner) Wake(name string) {
	r.mu.Lock()
	s := r.slots[name]
	r.mu.Unlock()
	if s == nil {
		return
	}
	select {
	case s.poked <- struct{}{}:
	default:
	}
}

// Wait returns when all work has ended, which it does when the runner's context ends.
func (r *runner) Wait() { r.wg.Wait() }

// pace is the least time from the end of a step to the next: what comes in a burst is dealt with in one step.
const pace = 20 * time.Millisecond

func (s *slot) work(ctx context.Context, step func(ctx context.Context) clusterversion.Next) {
	for ctx.Err() == nil {
		next := step(ctx)
		if next.Done {
			return
		}
		rest := time.After(pace)
		var due <-chan time.Time
		if next.After > 0 {
			due = time.After(next.After)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.poked:
		case <-due:
		}
		<-rest
	}
}
