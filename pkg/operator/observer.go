package operator

import (
	"context"
	"fmt"
	"sync"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/observe"
)

// observer answers with what watches have delivered: of kinds that have a gate what gates read, of everything the
// metadata. It implements rollout.Observer for one payload.
type observer struct {
	cache   cache.Cache
	watcher *observe.Watcher
	mapper  *apply.DiscoveryMapper

	mu   sync.Mutex
	used map[observe.Scope]bool
	// unserved are kinds that are not served, with the answer that says so.
	unserved map[schema.GroupVersionKind]error
}

func newObserver(c cache.Cache, watcher *observe.Watcher, mapper *apply.DiscoveryMapper) *observer {
	return &observer{cache: c, watcher: watcher, mapper: mapper, used: map[observe.Scope]bool{}, unserved: map[schema.GroupVersionKind]error{}}
}

// Object implements rollout.Observer.
func (o *observer) Object(id manifest.ID) client.Object {
	obj := gatedObject(id.Group, id.Kind)
	if obj == nil {
		return nil
	}
	// The cache answers from memory: there is nothing to cancel.
	if err := o.cache.Get(context.Background(), client.ObjectKey{Namespace: id.Namespace, Name: id.Name}, obj); err != nil {
		return nil
	}
	return obj
}

// Look implements rollout.Observer.
func (o *observer) Look(ctx context.Context, m *manifest.Manifest, byName bool) observe.Look {
	mapping, ok := o.mapper.Known(ctx, m.GVK())
	if !ok && m.Tombstone() {
		var err error
		if mapping, err = o.find(ctx, m.GVK()); apply.IsNoMatch(err) {
			return observe.Look{Synced: true} // there is no such kind, so there is no such object
		}
		ok = err == nil
	}
	if !ok {
		return observe.Look{}
	}
	scope, namespace, name := observe.Scope{Resource: mapping.Resource}, "", m.Object.GetName()
	if mapping.Namespaced {
		namespace = m.Object.GetNamespace()
	}
	// The operator sees no Secret but those that it applies: each has a watch of its own.
	if byName || mapping.Resource.GroupResource() == corev1.Resource("secrets") {
		scope.Namespace, scope.Name = namespace, name
	}
	o.use(scope)
	return o.watcher.Look(scope, namespace, name)
}

// find returns the mapping of a kind that a tombstone names. That there is none is asked once for a payload: from then on a
// kind counts as served as soon as discovery, read for another reason, has it.
func (o *observer) find(ctx context.Context, gvk schema.GroupVersionKind) (apply.Mapping, error) {
	o.mu.Lock()
	err := o.unserved[gvk]
	o.mu.Unlock()
	if err != nil {
		return apply.Mapping{}, err
	}
	mapping, err := o.mapper.Mapping(ctx, gvk)
	if apply.IsNoMatch(err) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.unserved[gvk] = err
	}
	return mapping, err
}

func (o *observer) use(scope observe.Scope) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used[scope] = true
}

// retain ends the watches that the payload has no use for.
func (o *observer) retain() {
	o.watcher.Retain(func(scope observe.Scope) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.used[scope]
	})
}

// gatedObject returns an empty object of a kind that has a gate.
func gatedObject(group, kind string) client.Object {
	for _, k := range gatedKinds() {
		if k.group == group && k.kind == kind {
			return k.object()
		}
	}
	return nil
}

type gatedKind struct {
	group, kind string
	object      func() client.Object
}

// gatedKinds are the kinds that are watched for their gates.
func gatedKinds() []gatedKind {
	return []gatedKind{
		{"config.openshift.io", "ClusterOperator", func() client.Object { return &configv1.ClusterOperator{} }},
		{"apiextensions.k8s.io", "CustomResourceDefinition", func() client.Object { return &gate.CRD{} }},
		{"apiregistration.k8s.io", "APIService", func() client.Object { return &gate.APIService{} }},
		{"apps", "Deployment", func() client.Object { return &appsv1.Deployment{} }},
		{"apps", "DaemonSet", func() client.Object { return &appsv1.DaemonSet{} }},
		{"apps", "StatefulSet", func() client.Object { return &appsv1.StatefulSet{} }},
		{"batch", "Job", func() client.Object { return &batchv1.Job{} }},
	}
}

// cacheOptions restrict what is watched to what gates need: objects that a release brought, and of those only what
// gates read.
func cacheOptions(clusterVersion string) (cache.Options, error) {
	owned, err := labels.NewRequirement(api.OwnedByLabel, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, fmt.Errorf("selecting owned objects: %w", err)
	}
	noCopy := true // gates only read
	options := cache.Options{ByObject: map[client.Object]cache.ByObject{
		&configv1.ClusterVersion{}: {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, clusterVersion)},
	}}
	for _, k := range gatedKinds() {
		by := cache.ByObject{Label: labels.NewSelector().Add(*owned), Transform: slim, UnsafeDisableDeepCopy: &noCopy}
		if k.kind == "ClusterOperator" {
			by.Label = nil // one that somebody else created still speaks for its component
		}
		options.ByObject[k.object()] = by
	}
	return options, nil
}

// slim drops from watched objects what no gate reads.
func slim(in any) (any, error) {
	obj, ok := in.(client.Object)
	if !ok {
		return in, nil
	}
	obj.SetManagedFields(nil)
	obj.SetAnnotations(nil)
	switch o := obj.(type) {
	case *appsv1.Deployment:
		o.Spec.Template = emptyTemplate()
	case *appsv1.DaemonSet:
		o.Spec.Template = emptyTemplate()
	case *appsv1.StatefulSet:
		o.Spec.Template = emptyTemplate()
	case *batchv1.Job:
		o.Spec.Template = emptyTemplate()
	}
	return obj, nil
}

func emptyTemplate() (t corev1.PodTemplateSpec) { return t }

// watchGates starts the watches that gates need, and has changed called on every event. It fails if a kind is not
// served.
func watchGates(ctx context.Context, c cache.Cache, changed func()) error {
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	}
	for _, k := range gatedKinds() {
		informer, err := c.GetInformer(ctx, k.object(), cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %s: %w", k.kind, err)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watching %s: %w", k.kind, err)
		}
	}
	return nil
}
