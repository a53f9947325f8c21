package cli

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

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// accountTimeout is how long the operator may take to tell how far it is.
const accountTimeout = 15 * time.Second

// updateFollower follows an update by watches, which are opened anew, ever less often, when they break.
type updateFollower struct {
	config *rest.Config
	name   string
	// account asks the operator how far it is; nil, without an error, if that has not changed.
	account func(context.Context) (*rollout.Snapshot, error)
	// print is called with each line of progress, by one goroutine at a time.
	print func(string)

	mu     sync.Mutex
	told   string
	levels runlevels
	// answered is what the operator said last: as long as it stays so, it does not say it again.
	answered runlevels
}

// follow returns when the goal is reached, or cannot be. It also returns the last verdict if ctx ends.
func (f *updateFollower) follow(ctx context.Context, goal waitGoal) (waitVerdict, error) {
	waiting := waitVerdict{state: waitGoesOn, message: "waiting for the ClusterVersion"}
	client, err := dynamic.NewForConfig(f.config)
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
	// Without the definition, or the right to read it, there are the operator's own words.
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
	// If it was deleted before the first list, no event tells.
	running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), versions.HasSynced) {
			notify(wake)
		}
	})
	for {
		select {
		case <-ctx.Done():
			return waiting, ctx.Err()
		case err := <-broken:
			return waiting, err
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
		verdict := judgeWait(goal, cv, f.levels)
		if verdict.state != waitGoesOn {
			return verdict, nil
		}
		waiting = verdict
		f.tell(verdict.message)
	}
}

// tell prints a line of progress, unless it is the last one again.
func (f *updateFollower) tell(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if line != f.told {
		f.told = line
		f.print(line)
	}
}

func (f *updateFollower) only(options metav1.ListOptions) metav1.ListOptions {
	options.FieldSelector = metav1.ObjectNameField + "=" + f.name
	return options
}

// informer keeps the one object of a kind that has the follower's name, and wakes whoever waits when it changes.
func (f *updateFollower) informer(client dynamic.Interface, resource schema.GroupVersionResource, wake chan<- struct{}, broken chan<- error) (cache.SharedIndexInformer, error) {
	objects := client.Resource(resource)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, f.only(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return objects.Watch(ctx, f.only(options))
		},
	}
	informer := cache.NewSharedIndexInformer(source, &unstructured.Unstructured{}, 0, cache.Indexers{})
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		switch {
		// Rights do not come back by themselves.
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			select {
			case broken <- fmt.Errorf("following %s: %w: it takes the rights to list and watch them", resource.Resource, err):
			default:
			}
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err), errors.Is(err, context.Canceled):
			// It is listed again, and that is all.
		default:
			f.tell(fmt.Sprintf("warning: lost sight of %s, trying again: %v", resource.Resource, err))
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
	default: // whoever waits will look at the newest anyway
	}
}

// version returns the ClusterVersion that the informer has; nil without an error if it is not there yet.
func (f *updateFollower) version(informer cache.SharedIndexInformer) (*configv1.ClusterVersion, error) {
	cv := &configv1.ClusterVersion{}
	complete := informer.HasSynced() // before the look: a list that arrives in between is no deletion
	switch found, err := stored(informer, f.name, cv); {
	case err != nil:
		return nil, err
	case !found && complete:
		return nil, fmt.Errorf("ClusterVersion %q was deleted", f.name)
	case !found:
		return nil, nil //nolint:nilnil // another event follows
	}
	return cv, nil
}

// readLevels learns which runlevels are done from the ReleaseRollout, or where that does not tell, from the operator.
func (f *updateFollower) readLevels(ctx context.Context, goal waitGoal, rollouts cache.SharedIndexInformer) {
	f.levels = f.answered
	if rollouts != nil {
		object := &api.ReleaseRollout{}
		if found, err := stored(rollouts, f.name, object); err == nil && found {
			told := rolloutLevels(object)
			if len(told.done) > 0 {
				f.levels = told
				return
			}
			f.levels.paused = told.paused
		}
	}
	if goal.completed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	switch snapshot, err := f.account(ctx); {
	case err != nil && !errors.Is(err, errNoRollout):
		f.tell(fmt.Sprintf("warning: runlevels are not known: %v", err))
	case snapshot != nil:
		f.answered = accountLevels(snapshot)
		f.levels.version, f.levels.image, f.levels.done = f.answered.version, f.answered.image, f.answered.done
	}
}

// stored reads the object of that name out of what an informer keeps.
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
