package operator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/clusterversion"
	"github.com/cluster-version/cvo/pkg/observe"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// engines makes what rolls out payloads, and has what rolls out now look again when a watch tells something new.
type engines struct {
	clock      clock.PassiveClock
	manager    manager.Manager
	options    Options
	runner     *runner
	connection *apply.Connection
	discoverer *discovery.DiscoveryClient
	watcher    *observe.Watcher
	metrics    *rollout.Metrics
	allowed    *permissions
	post       *post

	current atomic.Pointer[rollout.Passer]
}

func newEngines(mgr manager.Manager, run *runner, p *post, options Options) (*engines, error) {
	e := &engines{clock: clock.RealClock{}, manager: mgr, options: options, runner: run, post: p}
	var err error
	if e.connection, err = apply.Connect(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
		return nil, err
	}
	if e.discoverer, err = discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
		return nil, fmt.Errorf("creating discovery client: %w", err)
	}
	if e.allowed, err = newPermissions(mgr); err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating metadata client: %w", err)
	}
	owned := labels.SelectorFromSet(labels.Set{api.OwnedByLabel: options.Name})
	e.watcher = observe.New(client, owned, options.Log.WithName("observe"), e.changed)
	if err := mgr.Add(manager.RunnableFunc(e.watcher.Run)); err != nil {
		return nil, fmt.Errorf("adding watches: %w", err)
	}
	if e.metrics, err = rollout.NewMetrics(metrics.Registry); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return e, nil
}

// make is a clusterversion.EngineFor.
func (e *engines) make(cv *configv1.ClusterVersion, p *payload.Payload) clusterversion.Engine {
	mapper := apply.NewDiscoveryMapper(e.clock, e.discoverer, p.Manifests)
	observed := newObserver(e.manager.GetCache(), e.watcher, mapper)
	applier := newConfigured(apply.New(e.connection, mapper, ClusterOwner(cv, e.options.Namespace)), observed, e.manager.GetAPIReader(), p.Manifests)
	passer := &rollout.Passer{
		Clock:    e.clock,
		Applier:  applier,
		Observer: observed,
		Rand:     rand.New(rand.NewPCG(e.options.Seed, 0)), //nolint:gosec // spreads retries; not a secret
		Width:    e.options.Width,
		Metrics:  e.metrics,
		Handover: e.post.handover(),
	}
	e.current.Store(passer)
	completed := func(ctx context.Context) {
		observed.retain()
		e.allowed.settle(ctx, p)
	}
	return clusterversion.Engine{Passer: passer, Prepare: applier.prepare, Completed: completed, Pruner: applier, Permit: e.allowed.prune}
}

// changed has the rollout look again, in the middle of a pass too.
func (e *engines) changed() {
	if passer := e.current.Load(); passer != nil {
		passer.Changed()
	}
	e.runner.Wake(clusterversion.SlotRollout)
}
