// Package actor plays the operators of a platform against an API server, so that a rollout has real gates to wait for. It takes a client
// configuration and watches the cluster. It reports Deployments, DaemonSets, StatefulSets and Jobs as done, as their controllers and
// kubelets would. It moves a ClusterOperator to a new version when a workload of its component has that version in its environment, as the
// operator in that workload would. It contacts only the API server, writes only status, and creates no objects: without the version
// operator's objects it does nothing.
package actor

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
)

// UserAgent is the actor's name in an audit log and its field manager.
const UserAgent = "platform-operators"

// Options configure the behavior of the operators. With the zero value everything succeeds at once.
type Options struct {
	// Delay is the time between a workload's new version and its operator's report.
	Delay time.Duration
	// Slow replaces Delay for individual ClusterOperators.
	Slow map[string]time.Duration
	// Jitter, from 0 to 1, spreads every delay evenly between (1-Jitter) and (1+Jitter) times its value. The same seed, operator and
	// version result in the same delay, in any order of events.
	Jitter float64
	// Seed is the seed of Jitter.
	Seed int64
	// WorkloadDelay is the time between a change of a workload's spec and its completion.
	WorkloadDelay time.Duration
	// Fail lists ClusterOperators that report Available=False and Degraded=True instead of a new version. An entry is a name, or
	// name@version to fail only at that version.
	Fail []string
	// Flap is how often a ClusterOperator loses Available again after it has reported a new version.
	Flap map[string]int
	// FlapEvery is the time between two changes of Available; default 200 ms.
	FlapEvery time.Duration
	// Follow lists ClusterOperators without a workload. They report the desired version of the ClusterVersion. They must be listed, because
	// a missing workload may not have been created yet.
	Follow []string
	// Ignore lists ignored objects: a ClusterOperator's name, or the namespace/name of a workload.
	Ignore []string
}

// Validate rejects contradictory or empty settings.
func (o Options) Validate() error {
	if o.Jitter < 0 || o.Jitter > 1 {
		return fmt.Errorf("jitter %v must be between 0 and 1", o.Jitter)
	}
	for name, delay := range o.Slow {
		if delay < 0 {
			return fmt.Errorf("slow %s: %v must not be negative", name, delay)
		}
	}
	for name, times := range o.Flap {
		if times < 0 {
			return fmt.Errorf("flap %s: %d must not be negative", name, times)
		}
		if slices.Contains(o.Fail, name) {
			return fmt.Errorf("%s cannot both flap and fail", name)
		}
	}
	for _, name := range o.Follow {
		if slices.Contains(o.Ignore, name) {
			return fmt.Errorf("%s cannot be both followed and ignored", name)
		}
	}
	return nil
}

// delay returns the delay of an operator on its way to a version.
func (o Options) delay(operator, version string) time.Duration {
	delay, ok := o.Slow[operator]
	if !ok {
		delay = o.Delay
	}
	if o.Jitter == 0 {
		return delay
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s/%s", o.Seed, operator, version)
	share := float64(h.Sum64()%10_000) / 10_000 // in [0, 1)
	return time.Duration(float64(delay) * (1 + o.Jitter*(2*share-1)))
}

func (o Options) fails(operator, version string) bool {
	return slices.Contains(o.Fail, operator) || slices.Contains(o.Fail, operator+"@"+version)
}

// key is an object in the queue. namespace is empty for a ClusterOperator.
type key struct{ kind, namespace, name string }

// actor is one run: caches, queue, and the state of each operator.
type actor struct {
	options   Options
	client    kubernetes.Interface
	dynamic   dynamic.Interface
	queue     workqueue.TypedRateLimitingInterface[key]
	caches    *caches
	mu        sync.Mutex
	operators map[string]*progress
	workloads map[key]seen
}

// seen is the generation of a workload, the time of its first observation, and the last replaced resource version.
type seen struct {
	uid        types.UID
	generation int64
	since      time.Time
	wrote      string
}

// workers is the number of parallel status updates. It is enough for an install that creates a thousand objects within seconds, and small
// compared with the measured client.
const workers = 4

// Run plays the operators until ctx ends, and then returns nil. The watched types need not exist yet.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("checking the operators' options: %w", err)
	}
	if o.FlapEvery == 0 {
		o.FlapEvery = 200 * time.Millisecond
	}
	config = rest.CopyConfig(config)
	config.UserAgent = UserAgent
	config.QPS = -1 // the number of writes matters, not their rate
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client for the operators: %w", err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a dynamic client for the operators: %w", err)
	}
	a := &actor{
		options: o, client: client, dynamic: dyn,
		queue:     workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[key]()),
		operators: map[string]*progress{},
		workloads: map[key]seen{},
	}
	if err := a.watch(ctx); err != nil {
		return err
	}
	return a.run(ctx)
}

func (a *actor) run(ctx context.Context) error {
	var group errgroup.Group
	for range workers {
		group.Go(func() error {
			for a.next(ctx) {
			}
			return nil
		})
	}
	<-ctx.Done()
	a.queue.ShutDown()
	return group.Wait()
}

// next handles one object from the queue. It returns false if the queue is closed.
func (a *actor) next(ctx context.Context) bool {
	k, shutdown := a.queue.Get()
	if shutdown {
		return false
	}
	defer a.queue.Done(k)
	again, err := a.reconcile(ctx, k)
	switch {
	case ctx.Err() != nil:
	case err != nil: // conflicts and errors of an API server that is not ready are retried soon
		logr.FromContextOrDiscard(ctx).V(1).Info("retrying", "kind", k.kind, "namespace", k.namespace, "name", k.name, "error", err.Error())
		a.queue.AddRateLimited(k)
	default:
		a.queue.Forget(k)
		if again > 0 {
			a.queue.AddAfter(k, again)
		}
	}
	return true
}

// reconcile writes the current status of one object and returns the time until its next change.
func (a *actor) reconcile(ctx context.Context, k key) (again time.Duration, err error) {
	if k.kind == clusterOperatorKind {
		if slices.Contains(a.options.Ignore, k.name) {
			return 0, nil
		}
		return a.reconcileOperator(ctx, k.name)
	}
	if slices.Contains(a.options.Ignore, k.namespace+"/"+k.name) {
		return 0, nil
	}
	return a.reconcileWorkload(ctx, k)
}

// ParseFlaps parses "name" or "name=times"; the default is three times.
func ParseFlaps(args []string) (map[string]int, error) {
	flaps := map[string]int{}
	for _, arg := range args {
		name, number, found := strings.Cut(arg, "=")
		times := 3
		if found {
			if _, err := fmt.Sscanf(number, "%d", &times); err != nil {
				return nil, fmt.Errorf("flap %q: %q is not a number", arg, number)
			}
		}
		flaps[name] = times
	}
	return flaps, nil
}
