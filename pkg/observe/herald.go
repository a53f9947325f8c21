package observe

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// A resource that is not served comes into being with its custom resource definition or with its APIService. While a
// scope waits for one, we watch both kinds, whole and without keeping anything, and try the scope again when something
// happens to what brings its resource. So it is watched at once when it is there, and asked for hardly ever while it is
// not.
var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// startHeralds starts these two watches and returns what ends them.
func (w *Watcher) startHeralds(ctx context.Context, group *sync.WaitGroup) context.CancelFunc {
	ctx, cancel := context.WithCancel(ctx)
	for resource, brings := range map[schema.GroupVersionResource]func(string, schema.GroupVersionResource) bool{
		definitions: func(name string, r schema.GroupVersionResource) bool { return name == r.GroupResource().String() },
		apiServices: func(name string, r schema.GroupVersionResource) bool {
			version, group, _ := strings.Cut(name, ".")
			return version == r.Version && group == r.Group
		},
	} {
		sink := &herald{told: func(name string) {
			w.hear(unserved, func(r schema.GroupVersionResource) bool { return brings(name, r) })
		}}
		stream := &stream{
			resource: resource, client: w.client.Resource(resource),
			log:    w.log.WithValues("resource", resource.GroupResource().String(), "for", "resources that are not served"),
			sink:   sink,
			forget: func() {},
			turned: func(_, _ trouble) {},
			news:   make(chan struct{}, 1), failures: newBackoff(), deaths: newBackoff(),
		}
		sink.complete = stream.complete
		group.Go(func() { stream.run(ctx) })
	}
	return cancel
}

// waits reports whether a scope waits for its resource to be served.
func (w *Watcher) waits() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, s := range w.scopes {
		if s.stream.is() == unserved {
			return true
		}
	}
	return false
}

// hear tries those scopes again that have a certain trouble, and whose resource is meant.
func (w *Watcher) hear(t trouble, meant func(schema.GroupVersionResource) bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, s := range w.scopes {
		if s.stream.is() == t && meant(s.stream.resource) {
			s.stream.hear()
		}
	}
}

// turned is called when a scope gets into trouble, or out of it.
func (w *Watcher) turned(before, after trouble) {
	switch {
	case before == unreachable && after == fine:
		// The server is back. Who finds out first tells the others, whose next attempt may be half a minute away.
		w.hear(unreachable, func(schema.GroupVersionResource) bool { return true })
	case before == unserved || after == unserved:
		w.ask()
	}
}

// herald is told the name of each object that appears or changes, and keeps none.
type herald struct {
	told func(name string)
	// complete is called when the initial state is complete.
	complete func()
}

var _ cache.TransformingStore = (*herald)(nil)

// Transformer has the Reflector keep names only while it collects the initial state.
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
	h.told(name)
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

// Resync implements cache.ReflectorStore; it is not used.
func (h *herald) Resync() error { return nil }
