package background

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Slots works in the background, with one goroutine per slot. It implements Runner.
type Slots struct {
	ctx context.Context // the lifetime of the process; work outlives the reconcile that starts it

	mu    sync.Mutex
	slots map[string]*slot
	wg    sync.WaitGroup
}

// slot runs the work for one key.
type slot struct {
	key    string
	cancel context.CancelFunc
	// poked holds at most one poke; more pokes before the next step have no effect.
	poked chan struct{}
	ended chan struct{}
	// stopped reports that Stop has canceled the work, so Start starts new work even under the same key.
	stopped bool
}

// NewSlots returns idle slots. All work ends with ctx.
func NewSlots(ctx context.Context) *Slots {
	return &Slots{ctx: ctx, slots: map[string]*slot{}}
}

// Start implements Runner.
func (r *Slots) Start(name, key string, step func(ctx context.Context) Next) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.slots[name]
	if before != nil && before.key == key && !before.stopped || r.ctx.Err() != nil {
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

// Wake runs the next step of the slot at once.
func (r *Slots) Wake(name string) {
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

// Stop implements Runner.
func (r *Slots) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.slots {
		s.stopped = true
		s.cancel()
	}
}

// Running returns the sorted names of the slots whose work has not ended.
func (r *Slots) Running() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for name, s := range r.slots {
		select {
		case <-s.ended:
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Ended waits until the work of the given slots has ended, or ctx has. No new work may start.
func (r *Slots) Ended(ctx context.Context, names ...string) {
	for _, name := range names {
		r.mu.Lock()
		s := r.slots[name]
		r.mu.Unlock()
		if s == nil {
			continue
		}
		select {
		case <-s.ended:
		case <-ctx.Done():
		}
	}
}

// Wait waits until all work has ended, which happens after the context of NewSlots ends.
func (r *Slots) Wait() { r.wg.Wait() }

// pace is the minimum time between the end of a step and the start of the next one. One step then handles a burst of pokes.
const pace = 20 * time.Millisecond

func (s *slot) work(ctx context.Context, step func(ctx context.Context) Next) {
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
