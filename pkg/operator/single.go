package operator

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"
)

// single is the watch of one object by its name. The server is asked for this name alone, so that a role for it suffices,
// and nothing is seen of the other objects of the kind, which may be many, and Secrets.
type single[T runtime.Object] struct {
	toolscache.Controller
	store toolscache.Store
}

// singles is a client for the objects of one kind and namespace, such as those of client-go are, typed or dynamic.
type singles[List runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (List, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// newSingle makes the watch of the object of that name; kind is an object of its kind. It begins when it is run. Once it has
// synced, handler has been called with what was there; handler does not ask whether it has.
func newSingle[T, List runtime.Object](client singles[List], kind T, name string, handler toolscache.ResourceEventHandler) *single[T] {
	return newSlimSingle(client, kind, name, handler, nil)
}

// newSlimSingle is newSingle for an object of which only what slim returns is kept.
func newSlimSingle[T, List runtime.Object](
	client singles[List], kind T, name string, handler toolscache.ResourceEventHandler, slim toolscache.TransformFunc,
) *single[T] {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	store, controller := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = only
				return client.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = only
				return client.Watch(ctx, o)
			},
		},
		ObjectType: kind, Handler: handler, Transform: slim,
	})
	return &single[T]{controller, store}
}

// object is the latest state of the object; false for its absence.
func (s *single[T]) object() (T, bool) {
	for _, o := range s.store.List() { // of one
		if object, ok := o.(T); ok {
			return object, true
		}
	}
	var none T
	return none, false
}

// each has seen called with each state of an object, the zero value for its absence once it was there.
func each[T runtime.Object](seen func(T)) toolscache.ResourceEventHandler {
	take := func(o any) {
		if object, ok := o.(T); ok {
			seen(object)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: take, UpdateFunc: func(_, o any) { take(o) },
		DeleteFunc: func(any) {
			var none T
			seen(none)
		},
	}
}

// later has changed called with each state of an object but that in which it is found, and its absence.
func later(changed func()) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, initial bool) {
			if !initial {
				changed()
			}
		},
		UpdateFunc: func(any, any) { changed() },
	}
}

// watchAll runs watches until ctx ends, and has synced, if there is one, called once all of them have told what there is.
func watchAll(ctx context.Context, synced func(), watches ...toolscache.Controller) {
	var running sync.WaitGroup
	defer running.Wait()
	var told []toolscache.InformerSynced
	for _, w := range watches {
		running.Go(func() { w.RunWithContext(ctx) })
		told = append(told, w.HasSynced)
	}
	if synced != nil && toolscache.WaitForCacheSync(ctx.Done(), told...) {
		synced()
	}
}

// noted is what watches have told to somebody who looks at it from time to time.
type noted struct {
	mu sync.Mutex // guards what note changes
	// changed holds one word if there is something to look at.
	changed chan struct{}
}

func newNoted() noted { return noted{changed: make(chan struct{}, 1)} }

// note takes over what a watch tells.
func (n *noted) note(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
	select {
	case n.changed <- struct{}{}:
	default: // a look is due already, and will see this too
	}
}

// lastKnown is the state of an object that is written here and watched: what the watch told last, or a write of which it has
// not told yet. Its object is nil while there is none.
type lastKnown[T any] struct {
	object T
	// told counts what the watch has told.
	told int
}

// tell takes over what the watch tells.
func (l *lastKnown[T]) tell(object T) { l.object, l.told = object, l.told+1 }

// wrote takes over what the server returned for a write to what was seen, unless the watch has told something since: that
// is this write or what came after it, such as its deletion, of which no other word would come.
func (l *lastKnown[T]) wrote(seen lastKnown[T], written T) {
	if l.told == seen.told {
		l.object = written
	}
}

// whileServed watches one object for as long as its kind is served. The kind may come with a release, long after the
// start, or never: its definition tells, so that no request asks in vain. A kind that goes takes the object along.
type whileServed struct {
	client   dynamic.Interface
	resource schema.GroupVersionResource
	name     string
	seen     func(*unstructured.Unstructured)

	mu sync.Mutex
	// stop ends the watch, nil while the kind is not served; first reports whether it has told.
	stop  context.CancelFunc
	first toolscache.InformerSynced
	// telling is held while seen is called, and guards there: what was seen last is no absence.
	telling sync.Mutex
	there   bool
}

// serve starts the watch once the kind is served, and ends it when it is no more.
func (w *whileServed) serve(ctx context.Context, served bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case served && w.stop == nil:
		ctx, stop := context.WithCancel(ctx)
		watch := newSingle(w.client.Resource(w.resource), &unstructured.Unstructured{}, w.name, each(w.tell(ctx)))
		w.stop, w.first = stop, watch.HasSynced
		go watch.RunWithContext(ctx)
	case !served && w.stop != nil:
		w.end()
		w.stop, w.first = nil, nil
	}
}

// end ends the watch and tells what it would have told, had it not been overtaken by that of the definition.
func (w *whileServed) end() {
	w.telling.Lock()
	defer w.telling.Unlock()
	w.stop()
	if w.there {
		w.there = false
		w.seen(nil)
	}
}

// tell is what the watch calls that lasts as long as ctx. One that was ended may have one more thing to say; another watch
// may have said by then what is true.
func (w *whileServed) tell(ctx context.Context) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		w.telling.Lock()
		defer w.telling.Unlock()
		if ctx.Err() == nil {
			w.there = u != nil
			w.seen(u)
		}
	}
}

// told reports whether what there is to tell has been told.
func (w *whileServed) told() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first == nil || w.first()
}

// newDefinition makes the watch of the definition of a kind.
func newDefinition(client dynamic.Interface, name string, seen func(*unstructured.Unstructured)) *single[*unstructured.Unstructured] {
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	return newSingle(client.Resource(definitions), &unstructured.Unstructured{}, name, each(seen))
}

// established reports whether the kind of a definition is served.
func established(crd *unstructured.Unstructured) bool {
	if crd == nil {
		return false
	}
	list, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, item := range list {
		condition, _ := item.(map[string]any)
		if condition["type"] == "Established" {
			return condition["status"] == string(metav1.ConditionTrue)
		}
	}
	return false
}
