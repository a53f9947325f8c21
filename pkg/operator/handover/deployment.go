// Package handover represents the Deployment whose pod this process is. It decides, as a lead.Turn, whether this process may lead, and
// reports to a rollout whether the successor of this process starts. Outside of the cluster there is no Deployment; a nil *Deployment works
// too.
package handover

import (
	"context"
	"fmt"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/kube/lead"
	"github.com/cluster-version/cvo/pkg/kube/process"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Options identify this process.
type Options struct {
	// PodNamespace and PodName identify the pod; empty outside of a cluster.
	PodNamespace, PodName string
	// ClusterVersion is the name of the ClusterVersion.
	ClusterVersion string
	// ReleaseImage is the operator's own release.
	ReleaseImage string
}

// Deployment is the Deployment whose pod this process is. On every replica it watches the image in the Deployment's pod template and the
// release in the ClusterVersion's status. On the first request it also starts to watch the pods that replace this one.
type Deployment struct {
	clock          clock.PassiveClock
	core           corev1client.CoreV1Interface
	dynamic        dynamic.Interface
	namespace      string
	deployment     string
	clusterVersion string
	own            string
	// wake makes the rollout check its objects again.
	wake func()
	// podsNeeded is closed when selector is set.
	podsNeeded chan struct{}

	mu sync.Mutex
	// deploymentSeen and versionSeen report that the watches have delivered their initial state.
	deploymentSeen, versionSeen bool
	template, desired           string
	object                      *unstructured.Unstructured
	// selector selects the Deployment's pods. It is set on the first request for them.
	selector labels.Selector
	pods     toolscache.Store
	// changed is closed and replaced when the situation changes.
	changed chan struct{}
	recheck *time.Timer
}

// podTimeout bounds the requests of Find.
const podTimeout = 30 * time.Second

// Find returns the Deployment whose pod this process is, nil if there is none.
func Find(ctx context.Context, cfg *rest.Config, options Options) (*Deployment, error) {
	if options.PodName == "" || options.PodNamespace == "" {
		return nil, nil // there is none outside of the cluster
	}
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	apps, err := appsv1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	pod, err := core.Pods(options.PodNamespace).Get(ctx, options.PodName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading this process's pod %s/%s (from POD_NAME): %w", options.PodNamespace, options.PodName, err)
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return nil, nil
	}
	set, err := apps.ReplicaSets(options.PodNamespace).Get(ctx, owner.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the ReplicaSet %s/%s of this process's pod: %w", options.PodNamespace, owner.Name, err)
	}
	if owner = metav1.GetControllerOfNoCopy(set); owner == nil || owner.Kind != "Deployment" {
		return nil, nil
	}
	return &Deployment{
		clock: clock.RealClock{}, namespace: options.PodNamespace, deployment: owner.Name, clusterVersion: options.ClusterVersion,
		own: options.ReleaseImage, wake: func() {}, podsNeeded: make(chan struct{}), changed: make(chan struct{}),
	}, nil
}

// Follow adds the watches to the manager. They run whether or not this process leads. wake makes the rollout check its objects again.
func (p *Deployment) Follow(ctx context.Context, mgr manager.Manager, wake func()) error {
	p.wake = wake
	var err error
	if p.core, err = corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
		return fmt.Errorf("creating client: %w", err)
	}
	if p.dynamic, err = dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
		return fmt.Errorf("creating dynamic client: %w", err)
	}
	versions, err := mgr.GetCache().GetInformer(ctx, &configv1.ClusterVersion{})
	if err != nil {
		return fmt.Errorf("watching the ClusterVersion: %w", err)
	}
	seen := func(o any) {
		if cv, ok := o.(*configv1.ClusterVersion); ok {
			p.update(func() { p.versionSeen, p.desired = true, cv.Status.Desired.Image })
		}
	}
	registration, err := versions.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_, o any) { seen(o) },
		DeleteFunc: func(any) { p.update(func() { p.desired = "" }) },
	})
	if err != nil {
		return fmt.Errorf("watching the ClusterVersion: %w", err)
	}
	return mgr.Add(process.EveryReplica(func(ctx context.Context) error { return p.watch(ctx, registration.HasSyncedChecker()) }))
}

func deployments() schema.GroupVersionResource {
	return appsv1.SchemeGroupVersion.WithResource("deployments")
}

// watch watches the Deployment and, when requested, its pods, until ctx ends.
func (p *Deployment) watch(ctx context.Context, versionsSynced toolscache.DoneChecker) error {
	deployment := watch.NewSingle(p.dynamic.Resource(deployments()).Namespace(p.namespace), &unstructured.Unstructured{}, p.deployment, watch.OnState(func(u *unstructured.Unstructured) {
		p.update(func() {
			p.deploymentSeen, p.object, p.template = true, u, ""
			if u != nil {
				p.template = manifest.OperatorImage(u.Object)
			}
		})
		p.wake()
	}))
	go deployment.RunWithContext(ctx)
	if toolscache.WaitFor(ctx, "", deployment.HasSyncedChecker(), versionsSynced) {
		// Objects that no watch has reported by now do not exist.
		p.update(func() { p.deploymentSeen, p.versionSeen = true, true })
	}
	select {
	case <-ctx.Done():
		return nil
	case <-p.podsNeeded:
	}
	return p.watchPods(ctx)
}

func (p *Deployment) watchPods(ctx context.Context) error {
	p.mu.Lock()
	selector := p.selector
	p.mu.Unlock()
	pods := p.core.Pods(p.namespace)
	informer := toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector.String()
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.LabelSelector = selector.String()
			return pods.Watch(ctx, o)
		},
	}, &corev1.Pod{}, 0, nil)
	changed := func(any) { p.wake() }
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) }, DeleteFunc: changed,
	}); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	go informer.RunWithContext(ctx)
	if toolscache.WaitFor(ctx, "", informer.HasSyncedChecker()) {
		p.mu.Lock()
		p.pods = informer.GetStore()
		p.mu.Unlock()
		p.wake()
	}
	<-ctx.Done()
	return nil
}

// update runs change. If that changes the situation, it closes changed.
func (p *Deployment) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.lookLocked()
	change()
	if now := p.lookLocked(); now != before {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// sighted is a situation as reported by the watches. known is true when all watches have reported.
type sighted struct {
	situation
	known bool
}

func (p *Deployment) lookLocked() sighted {
	return sighted{
		situation: situation{own: p.own, template: p.template, desired: p.desired},
		known:     p.deploymentSeen && p.versionSeen,
	}
}

// Turn returns the Deployment as a lead.Turn. It returns nil outside of the cluster, where nothing replaces this process.
func (p *Deployment) Turn() lead.Turn {
	if p == nil {
		return nil
	}
	return p
}

// Look implements lead.Turn.
func (p *Deployment) Look() (lead.Decision, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.lookLocked()
	d := now.decision()
	d.Known = now.known
	return d, p.changed
}

// Ask implements lead.Turn.
func (p *Deployment) Ask(ctx context.Context) (lead.Decision, error) {
	s, err := p.ask(ctx)
	return s.decision(), err
}

// ask reads the situation from the API server.
func (p *Deployment) ask(ctx context.Context) (situation, error) {
	s := situation{own: p.own}
	deployment, err := p.dynamic.Resource(deployments()).Namespace(p.namespace).Get(ctx, p.deployment, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return s, fmt.Errorf("reading Deployment %s/%s: %w", p.namespace, p.deployment, err)
	default:
		s.template = manifest.OperatorImage(deployment.Object)
	}
	cv, err := p.dynamic.Resource(configv1.GroupVersion.WithResource("clusterversions")).Get(ctx, p.clusterVersion, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return s, fmt.Errorf("reading ClusterVersion %s: %w", p.clusterVersion, err)
	}
	if err == nil {
		s.desired, _, _ = unstructured.NestedString(cv.Object, "status", "desired", "image")
	}
	return s, nil
}

// ID identifies the Deployment whose pod this process is.
func (p *Deployment) ID() manifest.ID {
	return manifest.ID{Group: appsv1.GroupName, Kind: "Deployment", Namespace: p.namespace, Name: p.deployment}
}

// Handover returns the description of this process for a rollout, nil outside of the cluster. The caller sets Flush.
func (p *Deployment) Handover() *rollout.Handover {
	if p == nil {
		return nil
	}
	return &rollout.Handover{
		Deployment: p.ID(),
		Own:        func(image string) bool { return release.SameImage(image, p.own) },
		Successor:  p.successor,
	}
}

// successor returns the state of the pods with the given image. The first call with an existing Deployment starts the watch of its pods.
// The result is empty until they are known.
func (p *Deployment) successor(image string) rollout.Successor {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.selector == nil && p.object != nil {
		match, _, _ := unstructured.NestedStringMap(p.object.Object, "spec", "selector", "matchLabels")
		p.selector = labels.SelectorFromSet(match)
		close(p.podsNeeded)
	}
	if p.pods == nil {
		return rollout.Successor{}
	}
	var pods []*corev1.Pod
	for _, o := range p.pods.List() {
		if pod, ok := o.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	s, again := successorOf(p.object, pods, image, p.clock.Now())
	if p.recheck != nil {
		p.recheck.Stop()
	}
	if again > 0 {
		p.recheck = time.AfterFunc(again, p.wake)
	}
	return s
}
