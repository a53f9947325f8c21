package operator

import (
	"context"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/clusterversion"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/precondition"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/retrieve"
)

// setup connects the reconciler to its collaborators and the manager. Each step sets what later ones need.
type setup struct {
	manager  manager.Manager
	runner   *runner
	options  Options
	endpoint *endpoint
	// post is nil outside of the cluster.
	post *post

	core       corev1client.CoreV1Interface
	measures   *measures
	engines    *engines
	sources    *sources
	recorder   record.EventRecorder
	reconciler *clusterversion.Reconciler
}

func (s *setup) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		s.connect,
		s.prepareRollout,
		s.prepareSources,
		s.makeReconciler,
		s.addController,
		s.addKeepers,
		s.watchGates,
		s.collect,
		s.serve,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// connect makes what most of the others share.
func (s *setup) connect(context.Context) (err error) {
	if s.core, err = corev1client.NewForConfigAndClient(s.manager.GetConfig(), s.manager.GetHTTPClient()); err != nil {
		return fmt.Errorf("creating client: %w", err)
	}
	s.measures, err = newMeasures(metrics.Registry)
	return err
}

// prepareRollout makes what applies releases, and follows what becomes of this process meanwhile.
func (s *setup) prepareRollout(ctx context.Context) (err error) {
	if s.engines, err = newEngines(s.manager, s.runner, s.post, s.options); err != nil {
		return err
	}
	if s.post == nil {
		return nil
	}
	return s.post.follow(ctx, s.manager, s.engines.changed)
}

func (s *setup) prepareSources(ctx context.Context) (err error) {
	s.sources, err = newSources(ctx, s.manager, s.core, s.options)
	return err
}

func (s *setup) makeReconciler(ctx context.Context) (err error) {
	if s.recorder, err = newRecorder(ctx, s.manager, s.options.Namespace); err != nil {
		return err
	}
	retriever, err := newRetriever(s.engines.clock, s.manager, s.core, s.endpoint, s.options)
	if err != nil {
		return err
	}
	updates, err := newUpdates(s.engines.clock, s.manager.GetAPIReader(), metrics.Registry, s.options)
	if err != nil {
		return err
	}
	store := inventory.NewStore(s.core, s.options.Namespace, s.options.Name)
	s.reconciler = clusterversion.New(
		s.engines.clock, s.manager.GetClient(), s.recorder, s.runner, s.stages(retriever), store, s.engines.make, s.sources.changed,
		clusterversion.Options{
			Name: s.options.Name, Namespace: s.options.Namespace, ReleaseImage: s.options.ReleaseImage, Control: s.sources.control,
			Preview: newPreview(s.manager, store, s.engines.allowed, s.options), Events: eventsAbout(s.manager.GetAPIReader(), s.options.Namespace),
			Metrics: s.measures.acceptance, Updates: updates,
		})
	return nil
}

// stages are those of an update that reach beyond the reconciler; releases are read by the retriever, if there is one.
func (s *setup) stages(retriever *retrieve.Retriever) clusterversion.Stages {
	open := func(ctx context.Context, cv *configv1.ClusterVersion) (*Outside, error) {
		return OpenOutside(ctx, s.engines.clock, s.manager.GetAPIReader(), cv, s.options)
	}
	stages := clusterversion.Stages{
		Outside: func(ctx context.Context, cv *configv1.ClusterVersion) (clusterversion.Outside, error) {
			outside, err := open(ctx, cv)
			if err != nil {
				return nil, err
			}
			return s.measures.verifications.outside(outside.retrievedBy(retriever)), nil
		},
		Record:   releaseRecord{s.manager.GetAPIReader(), s.manager.GetClient(), s.options.Images},
		Local:    s.options.Local,
		Settings: s.sources.settings.current,
		Cluster:  s.sources.voices.cluster,
		Server:   func(ctx context.Context) precondition.Server { return server(ctx, s.engines.discoverer) },
		Permit:   s.engines.allowed.rollout,
	}
	if s.post == nil {
		return stages
	}
	stages.Successor = func(ctx context.Context, cv *configv1.ClusterVersion, img release.Image, target *payload.Payload) error {
		if retriever != nil { // who asks no registry
			return target.CheckOperator(s.post.id(), nil)
		}
		outside, err := open(ctx, cv)
		if err != nil {
			return err
		}
		return target.CheckOperator(s.post.id(), func() ([]string, error) { return outside.Entrypoint(ctx, img) })
	}
	return stages
}

// retryMost is how late at most a reconcile is tried again that has failed: what it failed of may pass without an event.
// By default it would be a quarter of an hour.
const retryMost = 30 * time.Second

func controllerOptions() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: 1,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, retryMost),
	}
}

func (s *setup) addController(context.Context) error {
	controller := builder.ControllerManagedBy(s.manager).Named("clusterversion").
		For(&configv1.ClusterVersion{}).
		WithOptions(controllerOptions())
	for _, source := range s.sources.all() {
		controller.WatchesRawSource(source)
	}
	if err := controller.Complete(s.reconciler); err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	return nil
}

// addKeepers adds what goes on beside the reconciler for as long as this process leads.
func (s *setup) addKeepers(context.Context) error {
	if s.options.PodName != "" { // nobody else is started with the copy
		if err := s.manager.Add(newPullSecretKeeper(clock.RealClock{}, s.core, s.options.Namespace)); err != nil {
			return fmt.Errorf("keeping the copy of the pull secret: %w", err)
		}
	}
	if err := watchWay(s.manager, s.core, s.reconciler.RetrieveAgain); err != nil {
		return fmt.Errorf("watching how releases are retrieved: %w", err)
	}
	return nil
}

func (s *setup) watchGates(ctx context.Context) error {
	return watchGates(ctx, s.manager.GetCache(), s.engines.changed)
}

func (s *setup) collect(ctx context.Context) error {
	return s.measures.collect(ctx, s.manager, s.core, s.options, s.reconciler)
}

func (s *setup) serve(ctx context.Context) error {
	return s.endpoint.serve(ctx, s.manager, s.reconciler.Snapshot, s.recorder)
}
