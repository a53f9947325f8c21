package operator

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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// post is where this process stands: it is a pod of that Deployment. It watches what the Deployment's pods run by now and
// what the cluster asks for, on every replica, and how the pods get on that are to replace this one, once asked.
type post struct {
	clock          clock.PassiveClock
	core           corev1client.CoreV1Interface
	dynamic        dynamic.Interface
	namespace      string
	deployment     string
	clusterVersion string
	own            string
	// changed has the rollout look again.
	changed func()
	// asked is closed once somebody wants to know of the pods.
	asked     chan struct{}
	askedOnce sync.Once

	mu sync.Mutex
	// deploymentSeen and versionSeen: the watches have told for the first time.
	deploymentSeen, versionSeen bool
	template, desired           string
	object                      *unstructured.Unstructured
	pods                        toolscache.Store
	// news is closed, and replaced, when the situation changes.
	news    chan struct{}
	recheck *time.Timer
}

// podTimeout bounds each of the questions where this process stands.
const podTimeout = 30 * time.Second

// findPost finds out where this process stands; nil if it is no pod of a Deployment.
func findPost(ctx context.Context, cfg *rest.Config, options Options) (*post, error) {
	if options.PodName == "" || options.PodNamespace == "" {
		return nil, nil //nolint:nilnil // outside of the cluster there is none
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
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, fmt.Errorf("reading pod %s/%s, which this process is by POD_NAME: %w", options.PodNamespace, options.PodName, err)
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return nil, nil //nolint:nilnil // as above
	}
	set, err := apps.ReplicaSets(options.PodNamespace).Get(ctx, owner.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, fmt.Errorf("reading ReplicaSet %s/%s, which made the pod that this process is: %w", options.PodNamespace, owner.Name, err)
	}
	if owner = metav1.GetControllerOfNoCopy(set); owner == nil || owner.Kind != "Deployment" {
		return nil, nil //nolint:nilnil // as above
	}
	if _, err := apps.Deployments(options.PodNamespace).Get(ctx, owner.Name, metav1.GetOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading Deployment %s/%s, whose pod this process is: %w", options.PodNamespace, owner.Name, err)
	}
	return &post{
		clock: clock.RealClock{}, core: core, namespace: options.PodNamespace, deployment: owner.Name, clusterVersion: options.Name,
		own: options.ReleaseImage, changed: func() {}, asked: make(chan struct{}), news: make(chan struct{}),
	}, nil
}

// follow has the manager watch, whether or not this process leads.
func (p *post) follow(ctx context.Context, mgr manager.Manager, changed func()) error {
	p.changed = changed
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
	return mgr.Add(watching(func(ctx context.Context) error { return p.watch(ctx, registration.HasSynced) }))
}

// watching is a manager.Runnable that does not wait for the lead.
type watching func(ctx context.Context) error

// Start implements manager.Runnable.
func (w watching) Start(ctx context.Context) error { return w(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (watching) NeedLeaderElection() bool { return false }

func deployments() schema.GroupVersionResource {
	return appsv1.SchemeGroupVersion.WithResource("deployments")
}

// watch watches the Deployment and, once somebody asks, its pods, until ctx ends.
func (p *post) watch(ctx context.Context, versionsSynced toolscache.InformerSynced) error {
	deployment := newSingle(p.dynamic.Resource(deployments()).Namespace(p.namespace), &unstructured.Unstructured{}, p.deployment, each(func(u *unstructured.Unstructured) {
		p.update(func() {
			p.deploymentSeen, p.object, p.template = true, u, ""
			if u != nil {
				p.template = manifest.OperatorImage(u.Object)
			}
		})
		p.changed()
	}))
	go deployment.RunWithContext(ctx)
	if toolscache.WaitForCacheSync(ctx.Done(), deployment.HasSynced, versionsSynced) {
		// What a watch did not tell of by now is not there.
		p.update(func() { p.deploymentSeen, p.versionSeen = true, true })
	}
	select {
	case <-ctx.Done():
		return nil
	case <-p.asked:
	}
	return p.watchPods(ctx)
}

func (p *post) watchPods(ctx context.Context) error {
	p.mu.Lock()
	selector := labels.Everything()
	if p.object != nil {
		match, _, _ := unstructured.NestedStringMap(p.object.Object, "spec", "selector", "matchLabels")
		selector = labels.SelectorFromSet(match)
	}
	p.mu.Unlock()
	pods := p.core.Pods(p.namespace)
	informer := toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector.String()
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector.String()
			return pods.Watch(ctx, o)
		},
	}, &corev1.Pod{}, 0, nil)
	changed := func(any) { p.changed() }
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) }, DeleteFunc: changed,
	}); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	go informer.RunWithContext(ctx)
	if toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		p.mu.Lock()
		p.pods = informer.GetStore()
		p.mu.Unlock()
		p.changed()
	}
	<-ctx.Done()
	return nil
}

// update changes what is known, and tells if that changes the situation.
func (p *post) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.lookLocked()
	change()
	if now := p.lookLocked(); now != before {
		close(p.news)
		p.news = make(chan struct{})
	}
}

// sighted is a situation as watches tell it, once all of them have.
type sighted struct {
	situation
	known bool
}

func (p *post) lookLocked() sighted {
	return sighted{
		situation: situation{inside: true, own: p.own, template: p.template, desired: p.desired},
		known:     p.deploymentSeen && p.versionSeen,
	}
}

// look returns the situation as watches tell it, and what is closed when that changes.
func (p *post) look() (sighted, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lookLocked(), p.news
}

// ask reads the situation from the API server.
func (p *post) ask(ctx context.Context) (situation, error) {
	s := situation{inside: true, own: p.own}
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

// id is the Deployment whose pod this process is.
func (p *post) id() manifest.ID {
	return manifest.ID{Group: appsv1.GroupName, Kind: "Deployment", Namespace: p.namespace, Name: p.deployment}
}

// handover is what a rollout has to know of this process.
func (p *post) handover() *rollout.Handover {
	if p == nil {
		return nil
	}
	return &rollout.Handover{
		Deployment: p.id(),
		Own:        func(image string) bool { return release.SameImage(image, p.own) },
		Flush:      func(context.Context) error { return nil },
		Stands:     p.stands,
		Successor:  p.successor,
	}
}

// stands tells which image the Deployment asks for, and by which generation.
func (p *post) stands() (image string, generation int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.object == nil {
		return "", 0
	}
	return p.template, p.object.GetGeneration()
}

// successor tells how the pods with that image get on. The first question starts the watch that answers the next ones.
func (p *post) successor(image string) rollout.Successor {
	p.askedOnce.Do(func() { close(p.asked) })
	p.mu.Lock()
	defer p.mu.Unlock()
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
		p.recheck = time.AfterFunc(again, p.changed)
	}
	return s
}
