package watch

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
)

// Served runs a watch for as long as the watched kind is served. The kind may come with a release, long after the
// start, or never. Its definition shows this, so no request is sent in vain. If the kind disappears, its objects count as
// deleted.
type Served struct {
	// watch returns the watch, which lasts as long as ctx. gone reports the end of the kind.
	watch func(ctx context.Context) toolscache.Controller
	gone  func()

	mu sync.Mutex
	// stop ends the watch; nil while the kind is not served. synced is done once the watch has reported the existing
	// objects. ended is closed when the watch is stopped.
	stop   context.CancelFunc
	synced toolscache.DoneChecker
	ended  <-chan struct{}
	// reporting is held while a report is under way.
	reporting sync.Mutex
}

// NewServed returns a watch of the object with the given name. It calls seen with every version of the object, and with nil after the
// object's deletion. The watch starts when SetServed first reports a served kind.
func NewServed(client dynamic.Interface, resource schema.GroupVersionResource, name string, seen func(*unstructured.Unstructured)) *Served {
	w := &Served{}
	exists := false // the last call of seen was with an object
	report := func(u *unstructured.Unstructured) {
		exists = u != nil
		seen(u)
	}
	w.watch = func(ctx context.Context) toolscache.Controller {
		return NewSingle(client.Resource(resource), &unstructured.Unstructured{}, name, OnState(func(u *unstructured.Unstructured) {
			w.report(ctx, func() { report(u) })
		}))
	}
	w.gone = func() {
		if exists {
			report(nil)
		}
	}
	return w
}

// NewServedKind returns the watch of all objects of a kind. It calls changed as newKind does, and when the kind is no
// longer served. The watch starts with the first call of SetServed.
func NewServedKind(client metadata.Interface, resource schema.GroupVersionResource, changed func()) *Served {
	w := &Served{gone: changed}
	w.watch = func(ctx context.Context) toolscache.Controller {
		return newKind(client.Resource(resource), func() { w.report(ctx, changed) })
	}
	return w
}

// SetServed starts the watch once the kind is served, and ends it when the kind disappears.
func (w *Served) SetServed(ctx context.Context, served bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case served && w.stop == nil:
		ctx, stop := context.WithCancel(ctx)
		watch := w.watch(ctx)
		w.stop, w.synced, w.ended = stop, watch.HasSyncedChecker(), ctx.Done()
		go watch.RunWithContext(ctx)
	case !served && w.stop != nil:
		w.end()
		w.stop, w.synced, w.ended = nil, nil, nil
	}
}

// end ends the watch and reports that its objects are deleted, because the watch of the definition may be ahead of the objects' own watch.
func (w *Served) end() {
	w.reporting.Lock()
	defer w.reporting.Unlock()
	w.stop()
	w.gone()
}

// report runs a report of a watch that lasts as long as ctx. It ignores reports after that: another watch may already
// have reported the current state.
func (w *Served) report(ctx context.Context, report func()) {
	w.reporting.Lock()
	defer w.reporting.Unlock()
	if ctx.Err() == nil {
		report()
	}
}

// WaitForSync waits until the current watch has synced or the kind is not served. It returns false if ctx ends first.
func (w *Served) WaitForSync(ctx context.Context) bool {
	for {
		w.mu.Lock()
		synced, ended := w.synced, w.ended
		w.mu.Unlock()
		if synced == nil {
			return true
		}
		select {
		case <-synced.Done():
			return true
		case <-ended: // another watch may have started
		case <-ctx.Done():
			return false
		}
	}
}

// NewDefinition returns a watch of the CustomResourceDefinition with the given name.
func NewDefinition(client dynamic.Interface, name string, seen func(*unstructured.Unstructured)) *Single[*unstructured.Unstructured] {
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	return NewSingle(client.Resource(definitions), &unstructured.Unstructured{}, name, OnState(seen))
}

// Established reports whether the kind of a CRD is served. A nil CRD means that it does not exist.
func Established(crd *unstructured.Unstructured) bool {
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
