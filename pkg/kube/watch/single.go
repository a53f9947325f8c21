// Package watch watches single objects by name, or kinds with few objects. A Single watches one object, and requests only this name from
// the API server, so a role for this name is sufficient. It does not see other objects of the kind, which may be many, or Secrets. A Kind
// watches the metadata of all objects. A Served watches like one of these while its kind is served.
//
// A process that both writes and watches an object collects the events in Changes and the state in Latest. A CatchUp delays the controllers of a
// new leader while its cache is late. The package knows no kind except CustomResourceDefinition, and does not write.
package watch

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// Single is a watch of one object by name.
type Single[T runtime.Object] struct {
	toolscache.Controller
	store toolscache.Store
}

// Client is a client for the objects of one kind in one namespace, such as client-go's typed and dynamic clients.
type Client[List runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (List, error)
	Watch(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error)
}

// NewSingle returns a watch of the object with the given name. kind is an empty object of its kind. The watch starts when it is run. Before
// it reports that it has synced, it has called handler with the existing object. handler must not call HasSynced.
func NewSingle[T, List runtime.Object](client Client[List], kind T, name string, handler toolscache.ResourceEventHandler) *Single[T] {
	return NewReducedSingle(client, kind, name, handler, nil)
}

// NewReducedSingle is like NewSingle, but stores only the result of reduce.
func NewReducedSingle[T, List runtime.Object](
	client Client[List], kind T, name string, handler toolscache.ResourceEventHandler, reduce toolscache.TransformFunc,
) *Single[T] {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	store, controller := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = only
				return client.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				o.FieldSelector = only
				return client.Watch(ctx, o)
			},
		},
		ObjectType: kind, Handler: handler, Transform: reduce,
	})
	return &Single[T]{controller, store}
}

// Object returns the latest state of the object, or false if it does not exist.
func (s *Single[T]) Object() (T, bool) {
	for _, o := range s.store.List() { // at most one
		if object, ok := o.(T); ok {
			return object, true
		}
	}
	var none T
	return none, false
}

// OnState returns a handler that calls seen with every version of the object, and with the zero value after its deletion.
func OnState[T runtime.Object](seen func(T)) toolscache.ResourceEventHandler {
	report := func(o any) {
		if object, ok := o.(T); ok {
			seen(object)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: report, UpdateFunc: func(_, o any) { report(o) },
		DeleteFunc: func(any) {
			var none T
			seen(none)
		},
	}
}

// OnChange returns a handler that calls changed when the object is created, updated or deleted, but not for its initial
// state.
func OnChange(changed func()) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, initial bool) {
			if !initial {
				changed()
			}
		},
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	}
}

// Run runs watches until ctx ends. It calls synced, if not nil, once all of them have reported the existing objects.
func Run(ctx context.Context, synced func(), watches ...toolscache.Controller) {
	var running sync.WaitGroup
	defer running.Wait()
	var checks []toolscache.DoneChecker
	for _, w := range watches {
		running.Go(func() { w.RunWithContext(ctx) })
		checks = append(checks, w.HasSyncedChecker())
	}
	if synced != nil && toolscache.WaitFor(ctx, "", checks...) {
		synced()
	}
}
