package operator

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	toolscache "k8s.io/client-go/tools/cache"
)

// single is the watch of one object.
type single struct {
	informer toolscache.SharedIndexInformer
	// synced reports whether the first answer has been taken over.
	synced toolscache.InformerSynced
}

// newSingle makes the watch of one object without a namespace by its name; seen is called with each of its states, nil for
// its absence.
func newSingle(
	client dynamic.Interface, resource schema.GroupVersionResource, name string, seen func(*unstructured.Unstructured),
) (single, error) {
	return newSingleIn(client, resource, metav1.NamespaceAll, name, seen)
}

// newSingleIn is newSingle for an object in a namespace.
func newSingleIn(
	client dynamic.Interface, resource schema.GroupVersionResource, namespace, name string, seen func(*unstructured.Unstructured),
) (single, error) {
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, resource, namespace, 0, toolscache.Indexers{}, only).Informer()
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { seen(o.(*unstructured.Unstructured)) },
		UpdateFunc: func(_, o any) { seen(o.(*unstructured.Unstructured)) },
		DeleteFunc: func(any) { seen(nil) },
	})
	if err != nil {
		return single{}, fmt.Errorf("watching %s %s: %w", resource.Resource, name, err)
	}
	return single{informer, handler.HasSynced}, nil
}

// whileServed watches one object for as long as its kind is served. The kind may come with a release, long after the
// start, or never: its definition tells, so that no request asks in vain.
type whileServed struct {
	client   dynamic.Interface
	resource schema.GroupVersionResource
	name     string
	seen     func(*unstructured.Unstructured)

	mu sync.Mutex
	// stop ends the watch, nil while the kind is not served; first reports whether it has told.
	stop  context.CancelFunc
	first toolscache.InformerSynced
}

// serve starts the watch once the kind is served, and ends it when it is no more.
func (w *whileServed) serve(ctx context.Context, served bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case served && w.stop == nil:
		watch, err := newSingle(w.client, w.resource, w.name, w.seen)
		if err != nil {
			return // only a stopped informer refuses
		}
		ctx, stop := context.WithCancel(ctx)
		w.stop, w.first = stop, watch.synced
		go watch.informer.RunWithContext(ctx)
	case !served && w.stop != nil:
		w.stop()
		w.stop, w.first = nil, nil
	}
}

// told reports whether what there is to tell has been told.
func (w *whileServed) told() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first == nil || w.first()
}

func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
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
