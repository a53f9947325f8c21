// Package actor plays the operators of a platform against an API server, so that a rollout has real gates to wait for.
// It takes a client configuration and watches: Deployments, DaemonSets, StatefulSets and Jobs it reports done, as
// their controllers and kubelets would; a ClusterOperator it moves to a new version once a workload of its component
// carries that version in its environment, as the operator in that workload would. It sees nothing but the API server,
// writes nothing but status, and creates no object: what the version operator has not created does not exist for it.
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

// UserAgent is how the actor is called in an audit log, and the manager of the fields it writes.
const UserAgent = "platform-operators"

// Options says how the operators behave. The zero value is a platform where everything works at once.
type Options struct {
	// Delay is how long an operator takes, from the moment its workload carries a new version, to report it.
	Delay time.Duration
	// Slow replaces Delay for single ClusterOperators.
	Slow map[string]time.Duration
	// Jitter spreads every delay evenly between (1-Jitter) and (1+Jitter) of it, from 0 to 1. The same seed, operator
	// and version give the same delay, in whatever order things happen.
	Jitter float64
	// Seed is what Jitter is drawn from.
	Seed int64
	// WorkloadDelay is how long a workload takes to be done after a change of its spec.
	WorkloadDelay time.Duration
	// Fail lists ClusterOperators that report Available=False and Degraded=True instead of a new version: by name, or
	// as name@version only when they move to that version.
	Fail []string
	// Flap is how often a ClusterOperator, having reported a new version, loses Available again before it stays.
	Flap map[string]int
	// FlapEvery is the time between two changes of Available. Default: 200 ms.
	FlapEvery time.Duration
	// Follow lists ClusterOperators that no workload speaks for: they take the version that the ClusterVersion desires.
	// They have to be named, because a workload that is missing may just not be created yet.
	Follow []string
	// Ignore lists what the actor leaves alone: a ClusterOperator's name, or the namespace/name of a workload.
	Ignore []string
}

// Validate finds settings that contradict each other or name nothing.
func (o Options) Validate() error {
	if o.Jitter < 0 || o.Jitter > 1 {
		return fmt.Errorf("jitter %v is not between 0 and 1", o.Jitter)
	}
	for name, delay := range o.Slow {
		if delay < 0 {
			return fmt.Errorf("slow %s: %v is negative", name, delay)
		}
	}
	for name, times := range o.Flap {
		if times < 0 {
			return fmt.Errorf("flap %s: %d is negative", name, times)
		}
		if slices.Contains(o.Fail, name) {
			return fmt.Errorf("%s can either flap or fail", name)
		}
	}
	for _, name := range o.Follow {
		if slices.Contains(o.Ignore, name) {
			return fmt.Errorf("%s can either be followed or ignored", name)
		}
	}
	return nil
}

// delay of one operator on its way to a version.
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

// key is an object in the queue; namespace is empty for a ClusterOperator.
type key struct{ kind, namespace, name string }

// Actor is one run: caches, queue, and what each operator is doing.
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

// seen is the generation of a workload, since when it is known, and the resource version that was replaced last.
type seen struct {
	uid        types.UID
	generation int64
	since      time.Time
	wrote      string
}

// workers is how many status updates are under way at once: enough for an install that brings a thousand objects
// within seconds, few beside the client that is measured.
const workers = 4

// Run plays the operators until ctx ends, which is no error. It may be started before the types it watches exist.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("checking the operators' options: %w", err)
	}
	if o.FlapEvery == 0 {
		o.FlapEvery = 200 * time.Millisecond
	}
	config = rest.CopyConfig(config)
	config.UserAgent = UserAgent
	config.QPS = -1 // the number of writes is what keeps the actor cheap, not their rate
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for the operators: %w", err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a dynamic client for the operators: %w", err)
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

// next takes one object from the queue; false means that the queue is closed.
func (a *actor) next(ctx context.Context) bool {
	k, shutdown := a.queue.Get()
	if shutdown {
		return false
	}
	defer a.queue.Done(k)
	again, err := a.reconcile(ctx, k)
	switch {
	case ctx.Err() != nil:
	case err != nil: // conflicts and answers of an API server that is not ready are tried again soon
		logr.FromContextOrDiscard(ctx).V(1).Info("trying again", "kind", k.kind, "namespace", k.namespace, "name", k.name, "error", err.Error())
		a.queue.AddRateLimited(k)
	default:
		a.queue.Forget(k)
		if again > 0 {
			a.queue.AddAfter(k, again)
		}
	}
	return true
}

// reconcile brings the status of one object to where it should be now, and says when to look again.
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

// ParseFlaps reads "name" or "name=times"; without a number it flaps three times.
func ParseFlaps(args []string) (map[string]int, error) {
	flaps := map[string]int{}
	for _, arg := range args {
		name, number, found := strings.Cut(arg, "=")
		times := 3
		if found {
			if _, err := fmt.Sscanf(number, "%d", &times); err != nil {
				return nil, fmt.Errorf("flap %q: %q is no number", arg, number)
			}
		}
		flaps[name] = times
	}
	return flaps, nil
}
