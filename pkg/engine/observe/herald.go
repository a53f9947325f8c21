package observe

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// A resource becomes available with its CRD or its APIService. While a scope waits for its resource, we watch all objects of both kinds
// without storing them. When the CRD or APIService of the resource changes, we retry the scope. So the watch starts as soon as the resource
// is served, and few requests are sent before that.
var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// Servers returns the scopes of a resource's CRD and APIService. One of the two serves the resource.
func Servers(r schema.GroupVersionResource) []Scope {
	return []Scope{
		{Resource: definitions, Name: r.GroupResource().String()},
		{Resource: apiServices, Name: r.Version + "." + r.Group},
	}
}

// startHeralds starts the watches of CRDs and APIServices, and returns a function that ends them.
func (w *Watcher) startHeralds(ctx context.Context, group *sync.WaitGroup) context.CancelFunc {
	ctx, cancel := context.WithCancel(ctx)
	for _, resource := range []schema.GroupVersionResource{definitions, apiServices} {
		sink := &herald{onName: func(name string) {
			server := Scope{Resource: resource, Name: name}
			w.wakeStreams(func(s *stream) bool {
				return s.currentTrouble().awaitsServer() && slices.Contains(Servers(s.resource), server)
			})
		}}
		stream := &stream{
			resource: resource, client: w.client.Resource(resource),
			log:             w.log.WithValues("resource", resource.GroupResource().String(), "for", "resources that are not served"),
			sink:            sink,
			drops:           func(string, string) bool { return false },
			forget:          func() {},
			onTroubleChange: func(_, _ trouble) {},
			wakeup:          make(chan struct{}, 1),
		}
		sink.complete = stream.complete
		group.Go(func() { stream.run(ctx) })
	}
	return cancel
}

// awaitsResource reports whether a scope waits for its resource to be served.
func (w *Watcher) awaitsResource() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, s := range w.scopes {
		if s.stream.currentTrouble().awaitsServer() {
			return true
		}
	}
	return false
}

// wakeStreams retries the scopes whose stream selected accepts.
func (w *Watcher) wakeStreams(selected func(*stream) bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, s := range w.scopes {
		if selected(s.stream) {
			s.stream.wake()
		}
	}
}

// troubleChanged is called when the trouble of a scope changes.
func (w *Watcher) troubleChanged(before, after trouble) {
	switch {
	case before == unreachable && after == healthy:
		// The server is back. The first stream that notices wakes the others, because their next attempt may be half a minute away.
		w.wakeStreams(func(s *stream) bool { return s.currentTrouble() == unreachable })
	case before.awaitsServer() != after.awaitsServer():
		w.triggerStart()
	}
	if after == unserved {
		w.changed()
	}
}

// herald passes on the name of each object that appears or changes, and stores none.
type herald struct {
	onName func(name string)
	// complete is called once the initial state is complete.
	complete func()
}

var _ cache.TransformingStore = (*herald)(nil)

// Transformer reduces objects to their names while the Reflector collects the initial state.
func (h *herald) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return nameOf(obj) }
}

func nameOf(obj any) (string, error) {
	if name, ok := obj.(string); ok {
		return name, nil
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return "", fmt.Errorf("unexpected %T from a metadata watch: %w", obj, err)
	}
	return m.GetName(), nil
}

// Add implements cache.ReflectorStore.
func (h *herald) Add(obj any) error { return h.Update(obj) }

// Update implements cache.ReflectorStore.
func (h *herald) Update(obj any) error {
	name, err := nameOf(obj)
	if err != nil {
		return err
	}
	h.onName(name)
	return nil
}

// Replace implements cache.ReflectorStore.
func (h *herald) Replace(list []any, _ string) error {
	for _, obj := range list {
		if err := h.Update(obj); err != nil {
			return err
		}
	}
	h.complete()
	return nil
}

// Delete implements cache.ReflectorStore.
func (h *herald) Delete(any) error { return nil }

// Resync implements cache.ReflectorStore. It is not used.
func (h *herald) Resync() error { return nil }
