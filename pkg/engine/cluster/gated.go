package cluster

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// labeledKinds returns the kinds with a gate whose objects carry our label: all except ClusterOperators.
func labeledKinds() []gate.Kind {
	return slices.DeleteFunc(gate.Kinds(), func(k gate.Kind) bool { return k.GroupKind() == operatorKind })
}

var operatorKind = schema.GroupKind{Group: configv1.GroupName, Kind: "ClusterOperator"}

// CacheOptions restricts the manager's cache to the ClusterVersion and to the parts of ClusterOperators that gates read.
// ClusterOperators need no label of ours: one that another client created still speaks for its component.
func CacheOptions(clusterVersion string) cache.Options {
	noCopy := true // gates only read
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&configv1.ClusterVersion{}:  {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, clusterVersion)},
		&configv1.ClusterOperator{}: {Transform: slim, UnsafeDisableDeepCopy: &noCopy},
	}}
}

// Gated keeps the parts of objects that gates read. Anyone may put our label on a workload, so it keeps nothing of an
// object that no manifest names, and decodes it only if it is not encoded as protobuf. The watches request protobuf and
// start once the manifests are known. ClusterOperators are in the manager's cache.
type Gated struct {
	operators cache.Cache
	changed   func()
	kinds     map[schema.GroupKind]*gatedObjects
	// wanted is closed at the first call of Want.
	wanted chan struct{}
	once   sync.Once
}

// NewGated returns the objects for gates. httpClient must not have a timeout. changed is called, from any goroutine, after
// each event of an object that a manifest names, and of a ClusterOperator.
func NewGated(config *rest.Config, httpClient *http.Client, scheme *runtime.Scheme, operators cache.Cache, changed func()) (*Gated, error) {
	g := &Gated{operators: operators, changed: changed, kinds: map[schema.GroupKind]*gatedObjects{}, wanted: make(chan struct{})}
	for _, k := range labeledKinds() {
		client, err := sievedClient(config, httpClient, scheme, k)
		if err != nil {
			return nil, err
		}
		objects := &gatedObjects{changed: changed, restart: make(chan struct{}, 1)}
		objects.reflector = newReflector(client, k, objects)
		g.kinds[k.GroupKind()] = objects
	}
	return g, nil
}

// sievedClient returns the client for the watch of a kind.
func sievedClient(config *rest.Config, httpClient *http.Client, scheme *runtime.Scheme, k gate.Kind) (rest.Interface, error) {
	sieved := *httpClient
	sieved.Transport = observe.Sieve(sieved.Transport)
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf // also for the types that client-go does not know
	c, err := apiutil.RESTClientForGVK(k.GroupVersionKind, false, false, config, serializer.NewCodecFactory(scheme), &sieved)
	if err != nil {
		return nil, fmt.Errorf("creating client for %s: %w", k.Kind, err)
	}
	return c, nil
}

// WatchOperators has changes of ClusterOperators reported.
func (g *Gated) WatchOperators(ctx context.Context) error {
	informer, err := g.operators.GetInformer(ctx, &configv1.ClusterOperator{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching ClusterOperators: %w", err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { g.changed() }, UpdateFunc: func(any, any) { g.changed() }, DeleteFunc: func(any) { g.changed() },
	}); err != nil {
		return fmt.Errorf("watching ClusterOperators: %w", err)
	}
	return nil
}

// Run runs the watches from the first call of Want until ctx ends.
func (g *Gated) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-g.wanted:
	}
	var group sync.WaitGroup
	for _, objects := range g.kinds {
		group.Go(func() { objects.run(ctx) })
	}
	group.Wait()
	return nil
}

// Want keeps only the objects with these names from now on; names must not be modified.
func (g *Gated) Want(names observe.Names) {
	for _, objects := range g.kinds {
		objects.want(names)
	}
	g.once.Do(func() { close(g.wanted) })
}

// object returns the latest state of an object whose kind has a gate; nil if there is none, or if no watch has delivered it.
// It must not be modified.
func (g *Gated) object(id manifest.ID) gate.Object {
	kind := schema.GroupKind{Group: id.Group, Kind: id.Kind}
	if kind == operatorKind {
		co := &configv1.ClusterOperator{}
		// The cache answers from memory: there is nothing to cancel.
		if err := g.operators.Get(context.Background(), client.ObjectKey{Name: id.Name}, co); err != nil {
			return nil
		}
		return co
	}
	if objects := g.kinds[kind]; objects != nil {
		return objects.get(client.ObjectKey{Namespace: id.Namespace, Name: id.Name})
	}
	return nil
}

// gatedObjects are the objects of one kind. The Reflector writes them, through the methods of toolscache.TransformingStore.
type gatedObjects struct {
	reflector *toolscache.Reflector
	changed   func()
	// restart ends the current watch.
	restart chan struct{}

	mu      sync.RWMutex
	names   observe.Names
	objects map[client.ObjectKey]client.Object
	// dropped: the watch delivered an object that no manifest named.
	dropped bool
}

var _ toolscache.TransformingStore = (*gatedObjects)(nil)

// newReflector returns the Reflector of objects.
func newReflector(c rest.Interface, k gate.Kind, objects *gatedObjects) *toolscache.Reflector {
	return toolscache.NewReflectorWithOptions(listWatch(c, k, objects.drops), k.New(), objects,
		toolscache.ReflectorOptions{Name: "gates", TypeDescription: k.Resource})
}

// listWatch returns the watch of the labeled objects of a kind. Its client decodes no object that drop drops, if the kind is encoded as
// protobuf. A server without watch lists lists the objects in pages, from which drop drops objects.
func listWatch(c rest.Interface, k gate.Kind, drop func(namespace, name string) bool) *toolscache.ListWatch {
	lw := toolscache.NewFilteredListWatchFromClient(c, k.Resource, metav1.NamespaceAll, func(o *metav1.ListOptions) { o.LabelSelector = api.OwnedByLabel })
	open := lw.WatchFuncWithContext
	lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return open(observe.WithSieve(ctx, drop), o)
	}
	list := lw.ListWithContextFunc
	lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return observe.List(ctx, list, o, drop)
	}
	return lw
}

// run keeps the watch alive until ctx ends.
func (g *gatedObjects) run(ctx context.Context) {
	for ctx.Err() == nil {
		attempt, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { g.reflector.RunWithContext(attempt) })
		select {
		case <-ctx.Done():
		case <-g.restart:
		}
		cancel()
		running.Wait()
	}
}

// want keeps only the objects with these names from now on. If names are added after objects were dropped, the watch is
// restarted: one of the objects may have such a name.
func (g *gatedObjects) want(names observe.Names) {
	g.mu.Lock()
	defer g.mu.Unlock()
	grown := names.Exceeds(g.names)
	g.names = names
	for key := range g.objects {
		if !names.Has(key.Namespace, key.Name) {
			delete(g.objects, key)
			g.dropped = true
		}
	}
	if !g.dropped || !grown {
		return
	}
	g.dropped = false
	select {
	case g.restart <- struct{}{}:
	default: // a restart is pending already
	}
}

func (g *gatedObjects) get(key client.ObjectKey) client.Object {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.objects[key]
}

// drops reports whether no manifest names an object, and records that one was dropped.
func (g *gatedObjects) drops(namespace, name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.names.Has(namespace, name) {
		return false
	}
	g.dropped = true
	return true
}

// stranger replaces an object that no manifest names while the Reflector collects the initial state.
type stranger struct{}

// Transformer has the Reflector reduce objects while it collects the initial state.
func (g *gatedObjects) Transformer() toolscache.TransformFunc { return g.reduce }

func (g *gatedObjects) reduce(obj any) (any, error) {
	object, ok := obj.(client.Object)
	if !ok {
		return obj, nil
	}
	if g.drops(object.GetNamespace(), object.GetName()) {
		return stranger{}, nil
	}
	return slim(object)
}

// Add implements toolscache.ReflectorStore.
func (g *gatedObjects) Add(obj any) error { return g.Update(obj) }

// Update implements toolscache.ReflectorStore.
func (g *gatedObjects) Update(obj any) error {
	reduced, err := g.reduce(obj)
	if err != nil {
		return err
	}
	if object, ok := reduced.(client.Object); ok && g.store(object) {
		g.changed()
	}
	return nil
}

func (g *gatedObjects) store(object client.Object) (stored bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.names.Has(object.GetNamespace(), object.GetName()) { // no longer
		g.dropped = true
		return false
	}
	if g.objects == nil {
		g.objects = map[client.ObjectKey]client.Object{}
	}
	g.objects[client.ObjectKeyFromObject(object)] = object
	return true
}

// Delete implements toolscache.ReflectorStore.
func (g *gatedObjects) Delete(obj any) error {
	if object, ok := obj.(client.Object); ok && g.remove(client.ObjectKeyFromObject(object)) {
		g.changed()
	}
	return nil
}

func (g *gatedObjects) remove(key client.ObjectKey) (existed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, existed = g.objects[key]
	delete(g.objects, key)
	return existed
}

// Replace implements toolscache.ReflectorStore: the initial state is complete, at first or again.
func (g *gatedObjects) Replace(list []any, _ string) error {
	objects := make(map[client.ObjectKey]client.Object, len(list))
	for _, obj := range list {
		reduced, err := g.reduce(obj)
		if err != nil {
			return err
		}
		if object, ok := reduced.(client.Object); ok {
			objects[client.ObjectKeyFromObject(object)] = object
		}
	}
	g.replace(objects)
	g.changed()
	return nil
}

func (g *gatedObjects) replace(objects map[client.ObjectKey]client.Object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range objects {
		if !g.names.Has(key.Namespace, key.Name) {
			delete(objects, key)
			g.dropped = true
		}
	}
	g.objects = objects
}

// Resync implements toolscache.ReflectorStore; it is not used.
func (g *gatedObjects) Resync() error { return nil }
