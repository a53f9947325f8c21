package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
)

const (
	// maxWorkloads is the maximum number of workloads whose pods are watched at the same time. maxPods is the maximum number of pods in
	// trouble that are kept of one workload.
	maxWorkloads = 16
	maxPods      = 64
	// followDelay is the time for which a workload must have been followed before its pods are watched. Most workloads are ready before, and need no request.
	followDelay = 2 * time.Second
	// forbiddenRetry is the time between two requests that the API server forbids. An administrator has to extend the operator's role.
	forbiddenRetry = 5 * time.Minute
)

// Watcher watches the pods of workloads. It is safe for concurrent use.
type Watcher struct {
	client  corev1client.PodsGetter
	changed func()
	// startTrigger makes Run check for watches to start.
	startTrigger chan struct{}

	mu       sync.Mutex
	followed map[manifest.ID]*followed
}

// NewWatcher returns a Watcher. The client's connections must not have a timeout. changed is called, from any goroutine, when the finding
// about a workload changes.
func NewWatcher(client corev1client.PodsGetter, changed func()) *Watcher {
	return &Watcher{client: client, changed: changed, startTrigger: make(chan struct{}, 1), followed: map[manifest.ID]*followed{}}
}

// Follow watches the pods of these workloads after followDelay, at most maxWorkloads of them, and of no others.
func (w *Watcher) Follow(workloads []*manifest.Manifest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wanted := map[manifest.ID]string{}
	for _, m := range workloads {
		if selector := selectorOf(m); selector != "" && len(wanted) < maxWorkloads {
			wanted[m.ID()] = selector
		}
	}
	for id, f := range w.followed {
		if wanted[id] != f.selector {
			f.stop()
			delete(w.followed, id)
		}
	}
	started := false
	for id, selector := range wanted {
		if w.followed[id] == nil {
			w.followed[id] = &followed{id: id, selector: selector, changed: w.changed, stop: func() {}}
			started = true
		}
	}
	if started {
		select {
		case w.startTrigger <- struct{}{}:
		default: // a start is pending already
		}
	}
}

// Find returns the latest finding about the pods of a workload.
func (w *Watcher) Find(id manifest.ID) report.PodFinding {
	w.mu.Lock()
	f := w.followed[id]
	w.mu.Unlock()
	if f == nil {
		return report.PodFinding{}
	}
	return f.finding()
}

// Run runs the watches until ctx ends, and returns after all have ended.
func (w *Watcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for {
		for _, watch := range w.unstarted(ctx) {
			running.Go(watch)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.startTrigger:
		}
	}
}

// unstarted returns the watches to start. Each ends with ctx, or once its workload is no longer followed.
func (w *Watcher) unstarted(ctx context.Context) []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []func()
	for _, f := range w.followed {
		if f.started {
			continue
		}
		own, stop := context.WithCancel(ctx)
		f.started, f.stop = true, stop
		out = append(out, func() {
			defer stop()
			if backoff.Sleep(own, followDelay) == nil {
				f.watch(own, w.client)
			}
		})
	}
	return out
}

// selectorOf returns the label selector of a workload's pods; empty if it has none that selects some pods.
func selectorOf(m *manifest.Manifest) string {
	content, found, _ := unstructured.NestedMap(m.Object.Object, "spec", "selector")
	selector := &metav1.LabelSelector{}
	if !found || runtime.DefaultUnstructuredConverter.FromUnstructured(content, selector) != nil {
		return ""
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || parsed.Empty() {
		return ""
	}
	return parsed.String()
}

// followed is a workload with its pods in trouble. The Reflector writes them, through the methods of toolscache.ReflectorStore.
type followed struct {
	id       manifest.ID
	selector string
	changed  func()
	// started and stop belong to the Watcher.
	started bool
	stop    context.CancelFunc

	mu   sync.Mutex
	pods map[string]sighting
	// forbidden is the error of a forbidden request; nil if the last one succeeded.
	forbidden error
	last      report.PodFinding
}

var _ toolscache.ReflectorStore = (*followed)(nil)

// sighting is one pod in trouble.
type sighting struct {
	created time.Time
	node    string
	Trouble
}

// watch keeps the pods until ctx ends.
func (f *followed) watch(ctx context.Context, client corev1client.PodsGetter) {
	pods := client.Pods(f.id.Namespace)
	only := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = f.selector
		return o
	}
	toolscache.NewReflectorWithOptions(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := pods.List(ctx, only(o))
			return list, f.answered(ctx, err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			events, err := pods.Watch(ctx, only(o))
			return events, f.answered(ctx, err)
		},
	}, &corev1.Pod{}, f, toolscache.ReflectorOptions{Name: "pods", TypeDescription: "pods of " + f.id.String()}).RunWithContext(ctx)
}

// answered records whether the API server forbids to read pods. If it does, answered delays the next request.
func (f *followed) answered(ctx context.Context, err error) error {
	forbidden := err
	if !apierrors.IsForbidden(err) {
		forbidden = nil
	}
	f.update(func() { f.forbidden = forbidden })
	if forbidden != nil && backoff.Sleep(ctx, forbiddenRetry) != nil {
		return errors.Join(err, ctx.Err())
	}
	return err
}

// update runs change and reports a new finding.
func (f *followed) update(change func()) {
	f.mu.Lock()
	change()
	next := f.find()
	differs := next != f.last
	f.last = next
	f.mu.Unlock()
	if differs {
		f.changed()
	}
}

func (f *followed) finding() report.PodFinding {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// find returns the trouble of the newest pod. The caller holds the lock.
func (f *followed) find() report.PodFinding {
	if f.forbidden != nil {
		return report.PodFinding{Text: "the operator's role does not allow it to read the pods: " + joined("", f.forbidden.Error())}
	}
	newest := ""
	for name, s := range f.pods {
		if newest == "" || cmp.Or(s.created.Compare(f.pods[newest].created), cmp.Compare(newest, name)) > 0 {
			newest = name
		}
	}
	if newest == "" {
		return report.PodFinding{}
	}
	s := f.pods[newest]
	var where []string
	if s.Image != "" {
		where = append(where, "image "+s.Image)
	}
	if s.node != "" {
		where = append(where, "node "+s.node)
	}
	details := ""
	if len(where) > 0 {
		details = " (" + strings.Join(where, ", ") + ")"
	}
	return report.PodFinding{Summary: fmt.Sprintf("pod %s: %s", newest, s.Reason), Text: fmt.Sprintf("pod %s%s %s", newest, details, s.Text)}
}

// belongs reports whether a pod belongs to the workload. Others may use the same labels.
func (f *followed) belongs(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || !strings.HasPrefix(owner.APIVersion, appsv1.GroupName+"/") {
		return false
	}
	if f.id.Kind == "Deployment" {
		return owner.Kind == "ReplicaSet" && strings.HasPrefix(owner.Name, f.id.Name+"-")
	}
	return owner.Kind == f.id.Kind && owner.Name == f.id.Name
}

// sight stores a pod if it is in trouble. The caller holds the lock.
func (f *followed) sight(obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	trouble := Of(pod)
	delete(f.pods, pod.Name)
	if trouble.Text == "" || pod.DeletionTimestamp != nil || !f.belongs(pod) || len(f.pods) >= maxPods {
		return
	}
	if f.pods == nil {
		f.pods = map[string]sighting{}
	}
	f.pods[pod.Name] = sighting{created: pod.CreationTimestamp.Time, node: pod.Spec.NodeName, Trouble: trouble}
}

// Add implements toolscache.ReflectorStore.
func (f *followed) Add(obj any) error { return f.Update(obj) }

// Update implements toolscache.ReflectorStore.
func (f *followed) Update(obj any) error {
	f.update(func() { f.sight(obj) })
	return nil
}

// Delete implements toolscache.ReflectorStore.
func (f *followed) Delete(obj any) error {
	if pod, ok := obj.(*corev1.Pod); ok {
		f.update(func() { delete(f.pods, pod.Name) })
	}
	return nil
}

// Replace implements toolscache.ReflectorStore: the list is the initial state.
func (f *followed) Replace(list []any, _ string) error {
	f.update(func() {
		f.pods = nil
		for _, obj := range list {
			f.sight(obj)
		}
	})
	return nil
}

// Resync implements toolscache.ReflectorStore; it is not used.
func (f *followed) Resync() error { return nil }
