package watch

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

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

// Object is a pointer to an object, nil if the object does not exist.
type Object interface {
	comparable
	metav1.Object
}

// Newest returns the later version of an object. A watch may report the writes of others after our own write has returned, so the order in
// which a process learns of them does not decide. seen was learned of last: it is the result if one of the two is nil, or if they are different
// objects of the same name.
func Newest[T Object](known, seen T) T {
	var none T
	if known == none || seen == none || known.GetUID() != seen.GetUID() {
		return seen
	}
	if order, err := resourceversion.CompareResourceVersion(known.GetResourceVersion(), seen.GetResourceVersion()); err == nil && order > 0 {
		return known
	}
	return seen
}

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
