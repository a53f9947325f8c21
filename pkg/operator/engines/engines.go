// Package engines creates the engine that rolls out a payload, and previews the changes that it would make. Both use the watches and
// connections of the process. The package starts no rollout; the reconciler does.
package engines

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/clusterversion"
	"github.com/cluster-version/cvo/pkg/engine/cluster"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/permit"
	"github.com/cluster-version/cvo/pkg/engine/pods"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/operator/handover"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/update/precondition"
)

// Engines creates the engine for each payload, and wakes the current rollout when a watch reports a change.
type Engines struct {
	clock      clock.PassiveClock
	manager    manager.Manager
	options    Options
	wake       func()
	connection *request.Client
	discoverer *discovery.DiscoveryClient
	watcher    *observe.Watcher
	gated      *cluster.Gated
	pods       *pods.Watcher
	metrics    *rollout.Metrics
	allowed    *permit.Roles
	self       *handover.Deployment

	current atomic.Pointer[rollout.Executor]
	// access is the access of the current rollout.
	access atomic.Pointer[cluster.Access]
}

// Options are the settings of Engines.
type Options struct {
	// Name is the name of the ClusterVersion. Namespace is the operator's namespace.
	Name, Namespace string
	// Seed is the seed of the random numbers that spread retries over time.
	Seed uint64
}

// New returns engines that apply objects with the manager's clients. wake starts the next step of the background rollout at once. self is
// nil outside of the cluster.
func New(
	ctx context.Context, clk clock.PassiveClock, mgr manager.Manager, registry prometheus.Registerer, self *handover.Deployment, wake func(), options Options,
) (*Engines, error) {
	e := &Engines{clock: clk, manager: mgr, options: options, wake: wake, self: self}
	var err error
	if e.connection, err = request.Connect(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
		return nil, err
	}
	if e.discoverer, err = discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
		return nil, fmt.Errorf("creating discovery client: %w", err)
	}
	if e.allowed, err = permit.New(clk, mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
		return nil, err
	}
	sieved := *mgr.GetHTTPClient()
	sieved.Transport = observe.Sieve(sieved.Transport)
	client, err := metadata.NewForConfigAndClient(mgr.GetConfig(), &sieved)
	if err != nil {
		return nil, fmt.Errorf("creating metadata client: %w", err)
	}
	owned := labels.SelectorFromSet(labels.Set{api.OwnedByLabel: options.Name})
	e.watcher = observe.New(client, owned, logr.FromContextOrDiscard(ctx).WithName("observe"), e.Changed)
	if err := mgr.Add(manager.RunnableFunc(e.watcher.Run)); err != nil {
		return nil, fmt.Errorf("adding watches: %w", err)
	}
	if e.gated, err = cluster.NewGated(mgr.GetConfig(), mgr.GetHTTPClient(), mgr.GetScheme(), mgr.GetCache(), e.Changed); err != nil {
		return nil, err
	}
	if err := mgr.Add(manager.RunnableFunc(e.gated.Run)); err != nil {
		return nil, fmt.Errorf("adding watches for gates: %w", err)
	}
	core, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	e.pods = pods.NewWatcher(core, e.Changed)
	if err := mgr.Add(manager.RunnableFunc(e.pods.Run)); err != nil {
		return nil, fmt.Errorf("adding watches of pods: %w", err)
	}
	if e.metrics, err = rollout.NewMetrics(registry); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return e, nil
}

// Make implements clusterversion.EngineFor.
func (e *Engines) Make(cv *configv1.ClusterVersion, p *payload.Payload) clusterversion.Engine {
	mapper := kinds.NewMapper(e.clock, e.discoverer, p.Manifests)
	names := cluster.Names(p.Manifests)
	e.watcher.Want(names)
	e.gated.Want(names)
	access := cluster.New(e.gated, e.watcher, mapper,
		apply.New(e.connection, mapper, cluster.Owner(cv, e.options.Namespace)), e.manager.GetAPIReader(), p.Manifests)
	if before := e.access.Swap(access); before != nil {
		before.Close()
	}
	executor := &rollout.Executor{
		Clock:    e.clock,
		Applier:  access.Applier,
		Observer: access.Observer,
		Causes:   access.Causes,
		Pods:     e.pods,
		Rand:     rand.New(rand.NewPCG(e.options.Seed, 0)),
		Metrics:  e.metrics,
		Handover: e.self.Handover(),
	}
	e.current.Store(executor)
	completed := func(ctx context.Context) {
		access.Retain()
		e.allowed.Settle(ctx, p)
	}
	return clusterversion.Engine{Executor: executor, Prepare: access.Applier.Prepare, Completed: completed, Pruner: access.Applier, Permit: e.allowed.Prune}
}

// Permit ensures that the operator has the permissions to apply target. running is the previous payload, nil if there is none.
func (e *Engines) Permit(ctx context.Context, running, target *payload.Payload) error {
	return e.allowed.Rollout(ctx, running, target)
}

// Server returns the version of the API server and the kinds that it serves.
func (e *Engines) Server(ctx context.Context) precondition.Server {
	return precondition.ReadServer(ctx, e.discoverer)
}

// WatchOperators watches the ClusterOperators.
func (e *Engines) WatchOperators(ctx context.Context) error { return e.gated.WatchOperators(ctx) }

// Changed makes the rollout check its objects again, even during a pass.
func (e *Engines) Changed() {
	if executor := e.current.Load(); executor != nil {
		executor.Changed()
	}
	e.wake()
}
