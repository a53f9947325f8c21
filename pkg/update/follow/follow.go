// Package follow waits until an update reaches a goal: the release is accepted, a runlevel is complete, or the update is complete. It
// watches the ClusterVersion and the ReleaseRollout, and survives interruptions of the API server. A function of the caller reads the
// operator's progress. The result is a Verdict. The package changes nothing.
package follow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/report"
)

// progressTimeout is the maximum time for the operator to report its progress.
const progressTimeout = 15 * time.Second

// permissionPatience is how long a watch that has worked may lack permissions. A restarting API server rejects requests until it has read
// the roles, and an expired token may be renewed.
const permissionPatience = time.Minute

// Follower follows an update through watches. It reopens broken watches with increasing delays.
type Follower struct {
	Clock  clock.Clock
	Config *rest.Config
	Name   string
	// Progress reads the operator's progress. It returns nil without an error if the progress has not changed or no rollout has started.
	Progress func(context.Context) (*report.Snapshot, error)
	// Patience is how long a rejection from before the wait is not final, because the operator checks the release again.
	Patience time.Duration
	// Print receives each line of progress. Calls do not overlap.
	Print func(string)

	mu       sync.Mutex
	lastLine string
	levels   runlevels
	// lastAnswer contains the runlevels that the operator last reported. The operator does not repeat an unchanged report.
	lastAnswer runlevels
}

// Wait returns once the goal is reached or can no longer be reached. If ctx ends, it returns the last verdict, which may be Refused,
// and the error.
func (f *Follower) Wait(ctx context.Context, goal Goal) (Verdict, error) {
	waiting := Verdict{State: Waiting, Message: "waiting for the ClusterVersion"}
	client, err := dynamic.NewForConfig(f.Config)
	if err != nil {
		return waiting, fmt.Errorf("connecting to the cluster: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	wake := make(chan struct{}, 1)
	broken := make(chan error, 1)
	defer cancel()
	versions, err := f.informer(client, configv1.GroupVersion.WithResource("clusterversions"), wake, broken)
	if err != nil {
		return waiting, err
	}
	var rollouts cache.SharedIndexInformer
	resource := api.ReleaseRolloutVersion.WithResource(api.ReleaseRolloutResource)
	// If the cluster has no such CRD, or the user may not read it, the operator's endpoint reports the runlevels.
	if _, err := client.Resource(resource).List(ctx, f.only(metav1.ListOptions{Limit: 1})); err == nil {
		if rollouts, err = f.informer(client, resource, wake, make(chan error, 1)); err != nil {
			return waiting, err
		}
	}
	var running sync.WaitGroup
	defer func() {
		cancel()
		running.Wait()
	}()
	for _, informer := range []cache.SharedIndexInformer{versions, rollouts} {
		if informer != nil {
			running.Go(func() { informer.RunWithContext(ctx) })
		}
	}
	// A deletion before the first list causes no event.
	running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), versions.HasSynced) {
			notify(wake)
		}
	})
	var before earlier
	var judged Verdict
	patience := f.Clock.After(f.Patience)
	for {
		select {
		case <-ctx.Done():
			if judged.State == Refused {
				return judged, ctx.Err()
			}
			return waiting, ctx.Err()
		case err := <-broken:
			return waiting, err
		case <-patience:
			before.over = true
		case <-wake:
		}
		cv, err := f.version(versions)
		if cv == nil {
			if err != nil {
				return waiting, err
			}
			continue
		}
		if !goal.accepted {
			f.readLevels(ctx, goal, rollouts)
		}
		judged = judge(goal, cv, f.levels)
		verdict := before.tolerate(goal, judged)
		if verdict.State != Waiting {
			return verdict, nil
		}
		waiting = verdict
		f.report(verdict.Message)
	}
}

// report prints a line of progress unless it repeats the last line.
func (f *Follower) report(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if line != f.lastLine {
		f.lastLine = line
		f.Print(line)
	}
}

func (f *Follower) only(options metav1.ListOptions) metav1.ListOptions {
	options.FieldSelector = metav1.ObjectNameField + "=" + f.Name
	return options
}

// informer returns an informer for the object with the follower's name. It wakes the follower on every change.
func (f *Follower) informer(client dynamic.Interface, resource schema.GroupVersionResource, wake chan<- struct{}, broken chan<- error) (cache.SharedIndexInformer, error) {
	objects := client.Resource(resource)
	var deniedSince time.Time // since then, all errors are missing permissions; zero after a successful watch
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, f.only(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := objects.Watch(ctx, f.only(options))
			if err == nil {
				deniedSince = time.Time{}
			}
			return w, err
		},
	}
	informer := cache.NewSharedIndexInformer(source, &unstructured.Unstructured{}, 0, cache.Indexers{})
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, reflector *cache.Reflector, err error) {
		denied := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
		if !denied || deniedSince.IsZero() {
			deniedSince = f.Clock.Now()
		}
		hasRead := reflector.LastSyncResourceVersion() != ""
		switch {
		case denied && (!hasRead || f.Clock.Since(deniedSince) >= permissionPatience):
			select {
			case broken <- fmt.Errorf("following %s: %w (you need permission to list and watch them)", resource.Resource, err):
			default:
			}
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err), errors.Is(err, context.Canceled):
			// The reflector lists again, so there is nothing to report.
		default:
			f.report(fmt.Sprintf("warning: the watch of %s failed, retrying: %v", resource.Resource, err))
		}
	})
	if err != nil {
		return nil, err
	}
	changed := func() { notify(wake) }
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	return informer, err
}

func notify(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default: // a wake-up is pending, and its reader sees the latest state
	}
}

// version returns the ClusterVersion in the informer; nil without an error if there is none yet.
func (f *Follower) version(informer cache.SharedIndexInformer) (*configv1.ClusterVersion, error) {
	cv := &configv1.ClusterVersion{}
	complete := informer.HasSynced() // before the read, because a list that arrives in between is not a deletion
	switch found, err := stored(informer, f.Name, cv); {
	case err != nil:
		return nil, err
	case !found && complete:
		return nil, fmt.Errorf("ClusterVersion %q was deleted", f.Name)
	case !found:
		return nil, nil // another event follows
	}
	return cv, nil
}

// readLevels reads the completed runlevels from the ReleaseRollout or, if it does not report them, from the operator.
func (f *Follower) readLevels(ctx context.Context, goal Goal, rollouts cache.SharedIndexInformer) {
	f.levels = f.lastAnswer
	if rollouts != nil {
		object := &api.ReleaseRollout{}
		if found, err := stored(rollouts, f.Name, object); err == nil && found {
			reported := rolloutLevels(object)
			if len(reported.done) > 0 {
				f.levels = reported
				return
			}
			f.levels.paused = reported.paused
		}
	}
	if goal.Completed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	switch snapshot, err := f.Progress(ctx); {
	case err != nil:
		f.report(fmt.Sprintf("warning: cannot read the runlevels: %v", err))
	case snapshot != nil:
		f.lastAnswer = snapshotLevels(snapshot)
		f.levels.version, f.levels.image, f.levels.done = f.lastAnswer.version, f.lastAnswer.image, f.lastAnswer.done
	}
}

// stored reads the object with the given name from an informer's store.
func stored(informer cache.SharedIndexInformer, name string, into any) (bool, error) {
	item, found, err := informer.GetStore().GetByKey(name)
	if err != nil || !found {
		return false, err
	}
	object, ok := item.(*unstructured.Unstructured)
	if !ok {
		return false, fmt.Errorf("unexpected %T from a watch", item)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return false, fmt.Errorf("reading %s %q: %w", object.GetKind(), name, err)
	}
	return true, nil
}
