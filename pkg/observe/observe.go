// Package observe tells what became of the objects we own. It takes scopes, keeps one metadata-only watch for each, and
// returns from memory the reduced state of an object: a hash of the fields that are ours, who wrote last, whether it is
// on its way out. Nothing else of an object is kept, and objects that no scope selects never arrive. What a state means
// and what to do about it is left to the caller.
package observe

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/cluster-version/cvo/pkg/ownership"
)

// Scope is what one watch covers: every object of a resource that carries the owned-by label, or a single object by
// name, labelled or not.
type Scope struct {
	Resource schema.GroupVersionResource
	// Namespace narrows the watch to one namespace. Empty: all of them, or a resource without namespaces.
	Namespace string
	// Name empty: all labelled objects of the resource.
	Name string
}

// State is all that is kept of an object.
type State struct {
	UID             types.UID
	ResourceVersion string
	// Generation is 0 for kinds that do not count it, such as ConfigMaps and roles.
	Generation int64
	// Fields stands for our own managedFields entry, see ownership.Ours.
	Fields ownership.Hash
	// Writer is the manager that wrote last besides our applies, see ownership.Writer.
	Writer string
	// Deleting reports whether a deletion was asked for; Finalizers are what it waits for, nil otherwise.
	Deleting   bool
	Finalizers []string
	// Loosened are the fields by which others may have loosened a pod's security, as sorted "manager: path", nil for
	// almost every object. See ownership.Loosened for what is certain about it and what is not.
	Loosened []string
}

// Look is what is known of one object.
type Look struct {
	// Synced reports whether the scope's watch has delivered its initial state and is alive or resuming. False: nothing
	// is known, neither that the object is there nor that it is not. It becomes false again when the server says that it
	// does not serve the resource (404: with a custom resource definition all its objects go, and that they went is told
	// before; but a missing APIService answers the same way and says nothing about objects), and after two minutes
	// without an answer.
	Synced bool
	// State is nil if the object is not there, which means something only if Synced. It is not to be modified.
	State *State
	// At is the newest resource version that the scope's watch has delivered, with an object or a bookmark. Empty:
	// unknown.
	At string
}

// Watcher keeps the watches. It is safe for concurrent use.
type Watcher struct {
	client  metadata.Interface
	owned   labels.Selector
	log     logr.Logger
	changed func()
	names   names
	// asked has Run look again at which watches are to be started.
	asked chan struct{}

	mu      sync.RWMutex
	running bool
	scopes  map[Scope]*scope
}

// scope is a Scope with its watch.
type scope struct {
	states *states
	stream *stream
	// stop ends the watch; nil if it is not started.
	stop context.CancelFunc
}

// New returns a Watcher. The connection of client must have no timeout for requests, since a watch is one; owned selects
// the objects of scopes without name.
//
// changed is called, from any goroutine and without a lock held, when an object appears or disappears, when its UID,
// Fields, Generation, Deleting, Finalizers or Loosened change, with Generation 0 also when its ResourceVersion does, and
// when a scope becomes synced or ceases to be. A write of the status of an object that counts generations calls nothing.
// It must be quick: the watch waits for it.
func New(client metadata.Interface, owned labels.Selector, log logr.Logger, changed func()) *Watcher {
	return &Watcher{
		client: client, owned: owned, log: log, changed: changed,
		asked:  make(chan struct{}, 1),
		scopes: map[Scope]*scope{},
	}
}

// Run starts the watches asked for so far and later, until ctx ends, and returns when all have ended. It fails only if
// it runs already.
func (w *Watcher) Run(ctx context.Context) error {
	if !w.begin() {
		return errors.New("watching owned objects: already running")
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer func() {
		cancel()
		group.Wait()
		w.end()
	}()
	var stopHeralds context.CancelFunc
	for {
		w.start(ctx, &group)
		switch waits := w.waits(); {
		case waits && stopHeralds == nil:
			stopHeralds = w.startHeralds(ctx, &group)
		case !waits && stopHeralds != nil:
			stopHeralds()
			stopHeralds = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.asked:
		}
	}
}

func (w *Watcher) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running {
		return false
	}
	w.running = true
	return true
}

// end leaves the scopes as they were before Run: asked for, and nothing known.
func (w *Watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
	for s := range w.scopes {
		w.scopes[s] = w.newScope(s)
	}
}

// start starts what is asked for and not started yet.
func (w *Watcher) start(ctx context.Context, group *sync.WaitGroup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.scopes {
		if s.stop != nil {
			continue
		}
		var scopeCtx context.Context
		scopeCtx, s.stop = context.WithCancel(ctx)
		group.Go(func() { s.stream.run(scopeCtx) })
	}
}

// ask has Run look again.
func (w *Watcher) ask() {
	select {
	case w.asked <- struct{}{}:
	default:
	}
}

// Look answers from memory for one object of a scope, and has the scope watched from now on if it is not yet. Of a
// scope with a name only that object is known.
func (w *Watcher) Look(s Scope, namespace, name string) Look {
	return w.scope(s).states.look(types.NamespacedName{Namespace: namespace, Name: name})
}

func (w *Watcher) scope(s Scope) *scope {
	w.mu.RLock()
	found := w.scopes[s]
	w.mu.RUnlock()
	if found != nil {
		return found
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if found = w.scopes[s]; found == nil {
		found = w.newScope(s)
		w.scopes[s] = found
		w.ask()
	}
	return found
}

func (w *Watcher) newScope(s Scope) *scope {
	states := &states{names: &w.names, changed: w.changed}
	stream := w.newStream(s, states)
	states.complete = stream.complete
	return &scope{states: states, stream: stream}
}

// Retain stops the watches of scopes for which keep is false, and forgets what they told. keep must not call the
// Watcher.
func (w *Watcher) Retain(keep func(Scope) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s, watched := range w.scopes {
		if keep(s) {
			continue
		}
		if watched.stop != nil {
			watched.stop()
		}
		delete(w.scopes, s)
	}
	w.ask()
}

// All returns the states of a scope with their names, in no order, as they are when the loop begins; nothing if the
// scope is not synced, or was never looked at.
func (w *Watcher) All(s Scope) iter.Seq2[types.NamespacedName, State] {
	return func(yield func(types.NamespacedName, State) bool) {
		w.mu.RLock()
		found := w.scopes[s]
		w.mu.RUnlock()
		if found == nil {
			return
		}
		for _, o := range found.states.all() {
			if !yield(o.name, o.State) {
				return
			}
		}
	}
}
