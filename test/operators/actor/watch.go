package actor

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

const (
	clusterOperatorKind = "ClusterOperator"
	deploymentKind      = "Deployment"
	daemonSetKind       = "DaemonSet"
	statefulSetKind     = "StatefulSet"
	jobKind             = "Job"
)

// caches are the actor's view of the cluster.
type caches struct {
	workloads map[string]cache.Store // by kind
	// operators and version are nil until their CRD is established.
	operators, version atomic.Pointer[cache.Store]
}

// watch starts the watches and returns when those of built-in kinds are filled.
func (a *actor) watch(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(a.client, 0)
	byKind := map[string]cache.SharedIndexInformer{
		deploymentKind:  factory.Apps().V1().Deployments().Informer(),
		daemonSetKind:   factory.Apps().V1().DaemonSets().Informer(),
		statefulSetKind: factory.Apps().V1().StatefulSets().Informer(),
		jobKind:         factory.Batch().V1().Jobs().Informer(),
	}
	a.caches = &caches{workloads: map[string]cache.Store{}}
	for kind, informer := range byKind {
		a.caches.workloads[kind] = informer.GetStore()
	}
	for kind, informer := range byKind {
		if err := informer.SetTransform(dropManagedFields); err != nil {
			return fmt.Errorf("watching %s: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(a.onWorkload(kind)); err != nil {
			return fmt.Errorf("watching %s: %w", kind, err)
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	if err := a.watchOnceEstablished(ctx, "clusteroperators", &a.caches.operators, decodeAs[configv1.ClusterOperator], a.onOperator()); err != nil {
		return err
	}
	if len(a.options.Follow) == 0 {
		return nil
	}
	anything := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { a.enqueueOperators() },
		UpdateFunc: func(_, _ any) { a.enqueueOperators() },
	}
	return a.watchOnceEstablished(ctx, "clusterversions", &a.caches.version, decodeAs[configv1.ClusterVersion], anything)
}

// watchOnceEstablished watches a config.openshift.io/v1 resource after its CRD is established. A watch that starts earlier would back off
// with longer and longer pauses.
func (a *actor) watchOnceEstablished(ctx context.Context, resource string, store *atomic.Pointer[cache.Store], decode cache.TransformFunc, handler cache.ResourceEventHandler) error {
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	name := resource + "." + configv1.GroupName
	byName := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	}
	crdFactory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(a.dynamic, 0, metav1.NamespaceAll, byName)
	var once sync.Once
	begin := func() {
		a.untilServed(ctx, resource)
		factory := dynamicinformer.NewDynamicSharedInformerFactory(a.dynamic, 0)
		informer := factory.ForResource(configv1.GroupVersion.WithResource(resource)).Informer()
		// Neither call fails on an informer that has not started.
		_ = informer.SetTransform(decode)
		_, _ = informer.AddEventHandler(handler)
		objects := informer.GetStore()
		store.Store(&objects)
		factory.Start(ctx.Done())
	}
	start := func(obj any) {
		if established(obj) {
			once.Do(func() { go begin() })
		}
	}
	_, err := crdFactory.ForResource(crds).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: start, UpdateFunc: func(_, obj any) { start(obj) },
	})
	if err != nil {
		return fmt.Errorf("watching the CRD of %s: %w", resource, err)
	}
	crdFactory.Start(ctx.Done())
	return nil
}

// untilServed waits until the API server serves a resource, some milliseconds after its CRD is established. A watch that is rejected at
// first would pause for a second or two.
func (a *actor) untilServed(ctx context.Context, resource string) {
	client := a.dynamic.Resource(configv1.GroupVersion.WithResource(resource))
	_ = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 5*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := client.List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, nil
	})
}

func established(obj any) bool {
	crd, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" {
			return c["status"] == "True"
		}
	}
	return false
}

// dropManagedFields keeps the caches small, because managedFields is half of most objects.
func dropManagedFields(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// onWorkload queues a workload for every event. It also queues the ClusterOperators if the spec may contain another version.
func (a *actor) onWorkload(kind string) cache.ResourceEventHandler {
	enqueue := func(obj any) {
		if o, ok := obj.(metav1.Object); ok {
			a.queue.Add(key{kind: kind, namespace: o.GetNamespace(), name: o.GetName()})
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			enqueue(obj)
			if newWorkload(obj).version != "" {
				a.enqueueOperators()
			}
		},
		UpdateFunc: func(before, after any) {
			enqueue(after)
			b, ok := before.(metav1.Object)
			if c, is := after.(metav1.Object); ok && is && b.GetGeneration() != c.GetGeneration() {
				a.enqueueOperators()
			}
		},
		DeleteFunc: func(any) { a.enqueueOperators() },
	}
}

// onOperator queues a ClusterOperator for every event. When one is created, it also queues the others, because the new one may claim a
// workload that they had counted as theirs.
func (a *actor) onOperator() cache.ResourceEventHandler {
	enqueue := func(obj any) {
		if o, ok := obj.(metav1.Object); ok {
			a.queue.Add(key{kind: clusterOperatorKind, name: o.GetName()})
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			enqueue(obj)
			a.enqueueOperators()
		},
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			enqueue(obj)
		},
	}
}

func (a *actor) enqueueOperators() {
	if store := a.caches.operators.Load(); store != nil {
		for _, obj := range (*store).List() {
			if o, ok := obj.(metav1.Object); ok {
				a.queue.Add(key{kind: clusterOperatorKind, name: o.GetName()})
			}
		}
	}
}

// clusterOperators returns all ClusterOperators.
func (c *caches) clusterOperators() []*configv1.ClusterOperator {
	store := c.operators.Load()
	if store == nil {
		return nil
	}
	var all []*configv1.ClusterOperator
	for _, obj := range (*store).List() {
		if operator, ok := obj.(*configv1.ClusterOperator); ok {
			all = append(all, operator)
		}
	}
	return all
}

// desiredVersion returns the desired version of the ClusterVersion, empty if unset.
func (c *caches) desiredVersion() string {
	store := c.version.Load()
	if store == nil {
		return ""
	}
	obj, found, err := (*store).GetByKey("version")
	if version, ok := obj.(*configv1.ClusterVersion); err == nil && found && ok {
		return version.Status.Desired.Version
	}
	return ""
}

// decodeAs converts an object of a dynamic watch to a T before it is cached.
func decodeAs[T any](obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	u.SetManagedFields(nil)
	into := new(T)
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
	return into, err
}

// versioned returns the workloads with a version.
func (c *caches) versioned() []workload {
	var all []workload
	for _, kind := range []string{deploymentKind, daemonSetKind, statefulSetKind} {
		for _, obj := range c.workloads[kind].List() {
			if w := newWorkload(obj); w.version != "" {
				all = append(all, w)
			}
		}
	}
	return all
}

func newWorkload(obj any) workload {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return readWorkload(deploymentKind, o.ObjectMeta, o.Spec.Template.Spec)
	case *appsv1.DaemonSet:
		return readWorkload(daemonSetKind, o.ObjectMeta, o.Spec.Template.Spec)
	case *appsv1.StatefulSet:
		return readWorkload(statefulSetKind, o.ObjectMeta, o.Spec.Template.Spec)
	case *batchv1.Job:
		return readWorkload(jobKind, o.ObjectMeta, o.Spec.Template.Spec)
	}
	return workload{}
}
