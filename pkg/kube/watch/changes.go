package watch

import "sync"

// Changes signals to a processing loop that watches have recorded changes. It guards the state that they change.
type Changes struct {
	mu sync.Mutex
	// signal contains one value if there are unprocessed changes.
	signal chan struct{}
}

// NewChanges returns Changes without a signal.
func NewChanges() *Changes { return &Changes{signal: make(chan struct{}, 1)} }

// Record runs change, which records an event of a watch, and signals it.
func (c *Changes) Record(change func()) {
	c.Locked(change)
	c.Signal()
}

// Locked runs a function that reads or changes the guarded state. It does not signal.
func (c *Changes) Locked(access func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	access()
}

// Signal wakes the loop.
func (c *Changes) Signal() {
	select {
	case c.signal <- struct{}{}:
	default: // a pending signal also covers this change
	}
}

// C returns the channel with the signals.
func (c *Changes) C() <-chan struct{} { return c.signal }

// Latest is the state of an object that this process both writes and watches. It comes from the watch's latest event, or from a write that
// the watch has not reported yet.
type Latest[T any] struct {
	// Object is the zero value if the object does not exist.
	Object T
	// Events is the number of the watch's events.
	Events int
}

// Observe records an event of the watch.
func (l *Latest[T]) Observe(object T) { l.Object, l.Events = object, l.Events+1 }

// Wrote records the server's response to a write that was based on seen. It ignores the response if the watch has reported an event since
// then. That event is this write or a later change, such as a deletion, which no further event would repeat.
func (l *Latest[T]) Wrote(seen Latest[T], written T) {
	if l.Events == seen.Events {
		l.Object = written
	}
}
