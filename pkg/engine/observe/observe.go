// Package observe reports changes of the objects we own. It keeps one metadata-only watch for each requested scope. From memory it returns
// the State of an object: its identity and version, hashes of its fields, the last writer, and what a deletion waits for. It stores no
// content of an object, and nothing of objects without a manifest. Objects outside the scopes never arrive. The caller interprets the states and reacts to them.
package observe

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

// Scope is the scope of one watch: either all objects of a resource with the owned-by label, or a single object by name, with or without
// the label.
type Scope struct {
	Resource schema.GroupVersionResource
	// Namespace limits the watch to one namespace. It is empty for all namespaces and for cluster-scoped resources.
	Namespace string
	// Name is the name of a single object; empty for all labeled objects of the resource.
	Name string
	// Selector is a label selector, or Everything, in place of the owned-by label; empty for objects of releases.
	Selector string
}

// Everything is a Selector for all objects of a resource.
const Everything = "*"

// State is the stored state of an object.
type State struct {
	UID             types.UID
	ResourceVersion string
	// Generation is zero for kinds that do not count generations, such as ConfigMaps and roles.
	Generation int64
	// Edits is a hash of the object without its status. It is zero if the scope contains all objects of releases.
	Edits ownership.Hash
	// Fields is a hash of our own managedFields entry; see ownership.Ours.
	Fields ownership.Hash
	// Time is the time of our own managedFields entry; see ownership.Time.
	Time int64
	// Writer is the manager of the last write other than our applies; see ownership.Writer.
	Writer string
	// Scaler is the manager that took the number of replicas from us through the subresource scale, and ScaledField the path of the number;
	// both are empty for almost every object. See ownership.Scaler.
	Scaler      string
	ScaledField []string
	// Deleting is true while the object is being deleted. Finalizers then contains the first finalizers that the deletion waits for;
	// otherwise it is nil.
	Deleting   bool
	Finalizers []string
	// Loosened contains the fields through which other writers may have weakened a pod's security, as sorted "manager: path". It is nil for
	// almost every object. See ownership.Loosened for the reliability of the result.
	Loosened []string
	// Replicas is true if an entry of ours, or of a former manager, may contain spec.replicas; see ownership.MayOwnReplicas.
	Replicas bool
	// Controller is the kind and name of the object's controller, unless that is a ClusterVersion; empty for almost every object.
	Controller string
}

// Look is the known state of one object.
type Look struct {
	// Synced is true if the scope's watch has delivered its initial state and is running or resuming. Otherwise nothing is known about the
	// object. Synced becomes false again after two minutes without a response, or when the server responds that it does not serve the
	// resource. After the deletion of a CRD, the watch first reports the deletion of all its objects. A missing APIService causes the same
	// response (404), but says nothing about its objects.
	Synced bool
	// State is nil if the object does not exist, which is reliable only if Synced. Callers must not modify it.
	State *State
	// At is the latest resource version that the scope's watch has delivered, with an object or a bookmark; empty if unknown.
	At string
	// Unserved is true if Synced is false because the server does not serve the resource (404), as far as its last response shows. It is false
	// if the server, or the extension API server of the resource, is down.
	Unserved bool
}

// Watcher keeps the watches. It is safe for concurrent use.
type Watcher struct {
	client  metadata.Interface
	owned   labels.Selector
	log     logr.Logger
	changed func()
	strings names
	// wanted contains the objects to store in scopes without a name; nil stores all.
	wanted atomic.Pointer[Names]
	// startTrigger makes Run check for watches to start.
	startTrigger chan struct{}

	mu      sync.RWMutex
	running bool
	scopes  map[Scope]*scope
}

// scope is a Scope with its watch.
type scope struct {
	states *states
	stream *stream
	// stop ends the watch; nil if the watch is not running.
	stop context.CancelFunc
}

// New returns a Watcher. The client's connections must not have a request timeout, because a watch is a long request. owned selects the
// objects in scopes without a name.
//
// The Watcher calls changed when an object appears or disappears, and when a scope becomes synced, unsynced or unserved. It also calls
// changed when UID, Fields, Time, Edits, Generation, Deleting, Finalizers, Loosened or Controller of an object change, and when the
// ResourceVersion of an object without a generation changes. A status write to an object with a generation causes no call, except in a scope
// with the name of a CRD or an APIService. changed is called from any goroutine, without any lock. It must return quickly because the watch
// waits for it.
func New(client metadata.Interface, owned labels.Selector, log logr.Logger, changed func()) *Watcher {
	return &Watcher{
		client: client, owned: owned, log: log, changed: changed,
		startTrigger: make(chan struct{}, 1),
		scopes:       map[Scope]*scope{},
	}
}

// Run starts all watches that are requested, until ctx ends, and returns after all have ended. It returns an error only if it is already
// running.
func (w *Watcher) Run(ctx context.Context) error {
	if !w.setRunning() {
		return errors.New("watching owned objects: already running")
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer func() {
		cancel()
		group.Wait()
		w.clearRunning()
	}()
	var stopHeralds context.CancelFunc
	for {
		w.start(ctx, &group)
		switch waits := w.awaitsResource(); {
		case waits && stopHeralds == nil:
			stopHeralds = w.startHeralds(ctx, &group)
		case !waits && stopHeralds != nil:
			stopHeralds()
			stopHeralds = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.startTrigger:
		}
	}
}

func (w *Watcher) setRunning() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running {
		return false
	}
	w.running = true
	return true
}

// clearRunning resets the scopes to their state before Run: requested, but without states.
func (w *Watcher) clearRunning() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
	for s := range w.scopes {
		w.scopes[s] = w.newScope(s)
	}
}

// start starts the requested watches that are not running yet.
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

// triggerStart makes Run check for watches to start.
func (w *Watcher) triggerStart() {
	select {
	case w.startTrigger <- struct{}{}:
	default:
	}
}

// Look returns the state of an object in a scope from memory. The first call starts the scope's watch. A scope with a name contains only
// that object.
func (w *Watcher) Look(s Scope, namespace, name string) Look {
	found := w.scope(s)
	look := found.states.look(types.NamespacedName{Namespace: namespace, Name: name})
	look.Unserved = !look.Synced && found.stream.currentTrouble() == unserved
	return look
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
		w.triggerStart()
	}
	return found
}

func (w *Watcher) newScope(s Scope) *scope {
	states := &states{names: &w.strings, changed: w.changed}
	if s.Name == "" && s.Selector == "" {
		states.wanted = w.names
	} else {
		states.edits = true
	}
	// The status of a CRD or APIService shows whether its resource is served.
	states.status = s.Name != "" && (s.Resource == definitions || s.Resource == apiServices)
	stream := w.newStream(s, states)
	states.complete = stream.complete
	return &scope{states: states, stream: stream}
}

// Retain stops the watches of all scopes that keep does not accept, and drops their states. keep must not call the Watcher.
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
	w.triggerStart()
}
