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

// Newest returns the later version of an object, and seen if one of the two is nil. A watch may report the writes of others after our own write
// has returned, so the order in which a process sees them does not decide. Resource versions of one kind can be compared even if the object was
// deleted and created again.
func Newest[T Object](known, seen T) T {
	var none T
	if known == none || seen == none {
		return seen
	}
	if order, err := resourceversion.CompareResourceVersion(known.GetResourceVersion(), seen.GetResourceVersion()); err == nil && order > 0 {
		return known
	}
	return seen
}

// Latest is the newest known state of an object that this process both writes and watches. The watch or a write has reported it.
type Latest[T Object] struct {
	// Object is nil if the object does not exist.
	Object T
	// Events is the number of the watch's events.
	Events int
	// observed is the object in the last event.
	observed T
}

// Observe records an event of the watch; nil is a deletion. The events of a watch are in order. If one is older than the event before it,
// etcd was restored from a backup, and the restored object replaces a later one.
func (l *Latest[T]) Observe(object T) {
	latest := object
	if Newest(l.observed, object) == object {
		latest = Newest(l.Object, object)
	}
	l.Object, l.Events, l.observed = latest, l.Events+1, object
}

// Wrote records the server's response to a write that was based on seen. It ignores the response if the watch has reported a deletion since
// then: no further event would repeat the deletion of what was written.
func (l *Latest[T]) Wrote(seen Latest[T], written T) {
	var none T
	if l.Object == none && l.Events != seen.Events {
		return
	}
	l.Object = Newest(l.Object, written)
}
