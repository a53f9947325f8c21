// Package job watches the CronJobs and Jobs of NodeRolloutPolicies, and makes Jobs. It takes what the policies name, and returns the state that the planner
// needs.
package job

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	batchv1client "k8s.io/client-go/kubernetes/typed/batch/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/node/policy"
)

// unseenAge is the time within which the watch shows a Job that exists. After that, the Watcher asks for it, each time this time has passed.
const unseenAge = time.Minute

// createRetry is the delay after a Job could not be made.
var createRetry = backoff.Doubling{First: time.Second, Max: time.Minute}

// Watcher watches the CronJobs that NodeRolloutPolicies name and the Jobs that were made from them, and makes Jobs. The controller needs permissions only in the
// namespaces of these CronJobs. While no policy names one, a Watcher sends no request.
type Watcher struct {
	// forbidden is the namespace of the node stage.
	forbidden string
	clock     clock.PassiveClock
	client    batchv1client.BatchV1Interface
	// followed has the sources to watch.
	followed chan map[types.NamespacedName]*knownSource

	mutex   sync.Mutex
	sources map[types.NamespacedName]*knownSource
}

// knownSource is the known state of a CronJob and its Jobs.
type knownSource struct {
	hasSynced bool
	cronJob   *batchv1.CronJob
	// failures are the errors of the latest requests for the two kinds; nil if they succeeded.
	failures map[string]error
	// jobs are the Jobs by name. They include those that this process has made and that the watch has not shown. These have no UID, and the time of the request
	// is the one of their creation.
	jobs map[string]*batchv1.Job
	// rejected are the Jobs that could not be made, by name.
	rejected map[string]rejection
}

// rejection is the last error of several requests for the same Job, and the time of the next one.
type rejection struct {
	err   error
	times int
	again time.Time
}

// NewWatcher returns a Watcher that makes no Jobs in a namespace.
func NewWatcher(forbidden string, clk clock.PassiveClock) *Watcher {
	return &Watcher{forbidden: forbidden, clock: clk, followed: make(chan map[types.NamespacedName]*knownSource), sources: map[types.NamespacedName]*knownSource{}}
}

// Events returns a source with a request for each change that may end a wait. It runs the watches.
func (j *Watcher) Events(mgr manager.Manager) (source.Source, error) {
	var err error
	if j.client, err = batchv1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
		return nil, fmt.Errorf("creating client for Jobs: %w", err)
	}
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go j.run(ctx, func() { queue.Add(reconcile.Request{}) })
		return nil
	}), nil
}

// run watches what Follow requests until ctx ends.
func (j *Watcher) run(ctx context.Context, changed func()) {
	ends := map[types.NamespacedName]context.CancelFunc{}
	for {
		select {
		case <-ctx.Done():
			return
		case sources := <-j.followed:
			for key, end := range ends {
				if sources[key] == nil {
					end()
					delete(ends, key)
				}
			}
			for key, s := range sources {
				if ends[key] == nil {
					var own context.Context
					own, ends[key] = context.WithCancel(ctx)
					go j.watch(own, key, s, changed)
				}
			}
		}
	}
}

// Follow makes the Watcher watch the CronJobs of these Jobs, and no others.
func (j *Watcher) Follow(ctx context.Context, jobs []*api.NodeJob) {
	wanted := map[types.NamespacedName]bool{}
	for _, job := range jobs {
		if job.Namespace != j.forbidden {
			wanted[keyOf(job)] = true
		}
	}
	j.mutex.Lock()
	isSame := len(wanted) == len(j.sources)
	for key := range wanted {
		if j.sources[key] == nil {
			j.sources[key] = &knownSource{failures: map[string]error{}, jobs: map[string]*batchv1.Job{}, rejected: map[string]rejection{}}
			isSame = false
		}
	}
	maps.DeleteFunc(j.sources, func(key types.NamespacedName, _ *knownSource) bool { return !wanted[key] })
	sources := maps.Clone(j.sources)
	j.mutex.Unlock()
	if isSame {
		return
	}
	select {
	case j.followed <- sources:
	case <-ctx.Done():
	}
}

func keyOf(job *api.NodeJob) types.NamespacedName {
	return types.NamespacedName{Namespace: job.Namespace, Name: job.Name}
}

// watch watches a CronJob and its Jobs until ctx ends, and writes them to s.
func (j *Watcher) watch(ctx context.Context, key types.NamespacedName, s *knownSource, changed func()) {
	// update requests a reconcile if change, which writes to s, returns true.
	update := func(change func() bool) {
		j.mutex.Lock()
		defer j.mutex.Unlock()
		if change() {
			changed()
		}
	}
	failed := func(kind string) func(error) {
		return func(err error) {
			update(func() bool {
				isNew := (err == nil) != (s.failures[kind] == nil)
				s.failures[kind] = err
				return isNew
			})
		}
	}
	cronJobs := watch.NewSingle(reported[*batchv1.CronJobList]{j.client.CronJobs(key.Namespace), failed("CronJob")}, &batchv1.CronJob{}, key.Name,
		watch.OnState(func(c *batchv1.CronJob) {
			update(func() bool {
				s.cronJob = c
				return true
			})
		}))
	client := reported[*batchv1.JobList]{j.client.Jobs(key.Namespace), failed("Job")}
	own := labels.SelectorFromSet(labels.Set{api.NodeJobLabel: key.Name}).String()
	set := func(o any) {
		if job, ok := o.(*batchv1.Job); ok {
			update(func() bool {
				before, _ := policy.StateOf(s.jobs[job.Name])
				after, _ := policy.StateOf(job)
				s.jobs[job.Name] = job
				return before != after
			})
		}
	}
	_, controller := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector = own
				return client.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				o.LabelSelector = own
				return client.Watch(ctx, o)
			},
		},
		ObjectType: &batchv1.Job{}, Transform: reduceJob,
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc: set, UpdateFunc: func(_, o any) { set(o) },
			DeleteFunc: func(o any) {
				name, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(o)
				if err != nil {
					return
				}
				update(func() bool {
					delete(s.jobs, strings.TrimPrefix(name, key.Namespace+"/"))
					return true
				})
			},
		},
	})
	go wait.UntilWithContext(ctx, func(ctx context.Context) { j.askUnseen(ctx, key, s, update) }, unseenAge)
	watch.Run(ctx, func() {
		update(func() bool {
			s.hasSynced = true
			return true
		})
	}, cronJobs, controller)
}

// askUnseen asks the API server for the Jobs that the watch has not shown: it may have missed the whole life of a Job, and it never shows one of another client,
// which has our name and not our label. List needs no other permission than the watch.
func (j *Watcher) askUnseen(ctx context.Context, key types.NamespacedName, s *knownSource, update func(change func() bool)) {
	var unseen []string
	j.mutex.Lock()
	for name, job := range s.jobs {
		if job.UID == "" && j.clock.Since(job.CreationTimestamp.Time) >= unseenAge {
			unseen = append(unseen, name)
		}
	}
	j.mutex.Unlock()
	for _, name := range unseen {
		list, err := j.client.Jobs(key.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil {
			return
		}
		update(func() bool {
			job := s.jobs[name]
			if job == nil || job.UID != "" {
				return false
			}
			before, _ := policy.StateOf(job)
			delete(s.jobs, name)
			for i := range list.Items {
				job = reduced(&list.Items[i])
				job.UID = "" // the next answer may be another one
				if job.Labels[api.NodeJobLabel] != key.Name {
					job.Labels = nil
				}
				s.jobs[name] = job
			}
			after, _ := policy.StateOf(s.jobs[name])
			return before != after
		})
	}
}

// reduceJob returns the parts of a Job that decide about a node.
func reduceJob(o any) (any, error) {
	job, ok := o.(*batchv1.Job)
	if !ok {
		return o, nil
	}
	return reduced(job), nil
}

func reduced(job *batchv1.Job) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name, UID: job.UID, ResourceVersion: job.ResourceVersion,
			Labels:      map[string]string{api.NodeJobLabel: job.Labels[api.NodeJobLabel]},
			Annotations: map[string]string{api.NodeJobNodeAnnotation: job.Annotations[api.NodeJobNodeAnnotation]},
		},
		Status: batchv1.JobStatus{Conditions: job.Status.Conditions},
	}
}

// reported is a client that reports the result of each request.
type reported[List runtime.Object] struct {
	watch.Client[List]
	report func(error)
}

func (r reported[List]) List(ctx context.Context, o metav1.ListOptions) (List, error) {
	list, err := r.Client.List(ctx, o)
	r.report(err)
	return list, err
}

func (r reported[List]) Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	w, err := r.Client.Watch(ctx, o)
	r.report(err)
	return w, err
}

// Source returns the known state of a CronJob and its Jobs.
func (j *Watcher) Source(job *api.NodeJob) policy.JobSource {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	s := j.sources[keyOf(job)]
	if s == nil { // it is in the namespace of the node stage
		return policy.JobSource{IsKnown: true, Refusal: policy.CronJobRefusal(job, nil, j.forbidden, nil)}
	}
	err := s.failures["CronJob"]
	if err == nil {
		err = s.failures["Job"]
	}
	known := policy.JobSource{IsKnown: s.hasSynced, CronJob: s.cronJob, Jobs: maps.Clone(s.jobs)}
	if known.IsKnown || err != nil {
		known.Refusal = policy.CronJobRefusal(job, s.cronJob, j.forbidden, err)
	}
	return known
}

// Create makes a Job from the CronJob that a policy names. isNew is false if it exists already: a former leader made it, and its event follows. After an error,
// after is the time until the next request for this Job. Until then, Create returns the same error.
func (j *Watcher) Create(ctx context.Context, from *api.NodeJob, job *batchv1.Job) (isNew bool, after time.Duration, err error) {
	now := j.clock.Now()
	j.mutex.Lock()
	s := j.sources[keyOf(from)]
	last := s.rejected[job.Name]
	if after = last.again.Sub(now); after > 0 {
		j.mutex.Unlock()
		return false, after, last.err
	}
	made := *job
	made.CreationTimestamp = metav1.NewTime(now)
	s.jobs[job.Name] = &made // before the events of the watch
	j.mutex.Unlock()
	_, err = j.client.Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{})
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if err == nil || apierrors.IsAlreadyExists(err) {
		delete(s.rejected, job.Name)
		return err == nil, 0, nil
	}
	delete(s.jobs, job.Name)
	maps.DeleteFunc(s.rejected, func(_ string, r rejection) bool { return now.Sub(r.again) > createRetry.Max }) // nothing needs them
	after = createRetry.After(last.times + 1)
	s.rejected[job.Name] = rejection{err, last.times + 1, now.Add(after)}
	return false, after, err
}
