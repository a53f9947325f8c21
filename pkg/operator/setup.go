package operator

import (
	"context"
	"fmt"
	"net"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	batchv1client "k8s.io/client-go/kubernetes/typed/batch/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/archive"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/clusterversion/outside"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/kube/events"
	"github.com/cluster-version/cvo/pkg/kube/replica"
	"github.com/cluster-version/cvo/pkg/oci/retrieve"
	"github.com/cluster-version/cvo/pkg/operator/clustermetrics"
	"github.com/cluster-version/cvo/pkg/operator/endpoint"
	"github.com/cluster-version/cvo/pkg/operator/engines"
	"github.com/cluster-version/cvo/pkg/operator/handover"
	"github.com/cluster-version/cvo/pkg/operator/insecure"
	"github.com/cluster-version/cvo/pkg/operator/pullsecret"
	"github.com/cluster-version/cvo/pkg/operator/sources"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// setup connects the reconciler to its collaborators and the manager. Each step sets values that later steps need.
type setup struct {
	*replica.Replica

	slots *background.Slots
	// stop ends the work in slots.
	stop     context.CancelFunc
	options  Options
	endpoint *endpoint.Endpoint
	// self is nil outside of the cluster.
	self *handover.Deployment

	clock      clock.WithTicker
	core       corev1client.CoreV1Interface
	measures   *clustermetrics.Measures
	engines    *engines.Engines
	sources    *sources.Sources
	recorder   record.EventRecorder
	insecure   *insecure.Reporter
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
		s.watchOperators,
		s.collect,
		s.serve,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// connect creates the client and the metrics that most other steps use.
func (s *setup) connect(context.Context) (err error) {
	s.clock = clock.RealClock{}
	if s.core, err = corev1client.NewForConfigAndClient(s.Manager.GetConfig(), s.Manager.GetHTTPClient()); err != nil {
		return fmt.Errorf("creating client: %w", err)
	}
	s.measures, err = clustermetrics.New(s.Registry)
	return err
}

// prepareRollout creates the engines that apply releases and follows the Deployment of this process.
func (s *setup) prepareRollout(ctx context.Context) (err error) {
	s.engines, err = engines.New(ctx, s.clock, s.Manager, s.Registry, s.self, func() { s.slots.Wake(background.SlotRollout) }, engines.Options{
		Name: s.options.Name, Namespace: s.options.Namespace, Seed: s.options.Seed,
	})
	if err != nil || s.self == nil {
		return err
	}
	return s.self.Follow(ctx, s.Manager, s.engines.Changed)
}

func (s *setup) prepareSources(ctx context.Context) (err error) {
	s.sources, err = sources.New(ctx, s.clock, s.Manager, s.core, s.options.Name, s.options.Settings)
	return err
}

func (s *setup) makeReconciler(context.Context) (err error) {
	if s.recorder, err = events.NewRecorder(s.Manager, s.options.Namespace); err != nil {
		return err
	}
	emitter := event.Emitter{Recorder: s.recorder, Namespace: s.options.Namespace}
	s.insecure = insecure.New(s.clock, s.Manager.GetAPIReader(), emitter, s.options.Name, s.options.Outside.Access.Insecure)
	retriever, err := s.retriever()
	if err != nil {
		return err
	}
	updates, err := newUpdates(s.clock, s.Manager.GetAPIReader(), s.Registry, s.options)
	if err != nil {
		return err
	}
	store := inventory.NewStore(s.core, s.options.Namespace, s.options.Name)
	lookup := s.lookup
	if retriever != nil { // the operator has no access to registries
		lookup = nil
	}
	s.reconciler = clusterversion.New(
		s.clock, s.Manager.GetClient(), s.recorder, s.slots, s.stages(retriever), store, s.engines.Make, s.sources.Changed,
		clusterversion.Options{
			Name: s.options.Name, Namespace: s.options.Namespace, ReleaseImage: s.options.ReleaseImage, Control: s.sources.Control,
			Preview: s.engines.Preview(store), Lookup: lookup, Metrics: s.measures.Acceptance, Updates: updates,
			Record: archive.New(s.Manager.GetAPIReader(), s.Manager.GetClient(), s.options.Outside.Images),
		})
	return nil
}

// priorityClass is the priority class of the operator's own pods.
const priorityClass = "system-cluster-critical"

// retriever returns the retriever if releases are retrieved by Jobs, and nil otherwise.
func (s *setup) retriever() (*retrieve.Retriever, error) {
	if s.options.Retrieval != retrieve.ByJob {
		return nil, nil
	}
	batch, err := batchv1client.NewForConfigAndClient(s.Manager.GetConfig(), s.Manager.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating client for retrieval Jobs: %w", err)
	}
	address := ""
	if _, port, err := net.SplitHostPort(s.endpoint.Address()); err == nil && s.options.PodIP != "" {
		address = net.JoinHostPort(s.options.PodIP, port)
	}
	return retrieve.New(s.clock, batch, s.core, &s.endpoint.Inbox, retrieve.Options{
		Name: s.options.Name, Namespace: s.options.Namespace, Sender: s.options.ReleaseImage,
		Address: address, Fingerprint: s.endpoint.Identity.Fingerprint, Node: s.options.NodeName,
		PullSecrets:   []corev1.LocalObjectReference{{Name: api.PullSecretCopy}},
		PriorityClass: priorityClass,
	})
}

// open returns the access to release images for a ClusterVersion.
func (s *setup) open(ctx context.Context, cv *configv1.ClusterVersion) (*outside.Outside, error) {
	return outside.Open(ctx, s.clock, s.Manager.GetAPIReader(), cv, s.options.Outside)
}

// lookup implements preflight.Lookup.
func (s *setup) lookup(ctx context.Context, cv *configv1.ClusterVersion, images []release.Image) ([]error, error) {
	opened, err := s.open(ctx, cv)
	if err != nil {
		return nil, err
	}
	return opened.Exist(ctx, images), nil
}

// stages returns the stages of an update outside of the reconciler. If retriever is not nil, it reads the releases.
func (s *setup) stages(retriever *retrieve.Retriever) accept.Stages {
	stages := accept.Stages{
		Outside: func(ctx context.Context, cv *configv1.ClusterVersion) (accept.Outside, error) {
			opened, err := s.open(ctx, cv)
			if err != nil {
				return nil, err
			}
			return s.measures.CountVerifications(opened.RetrievedBy(retriever)), nil
		},
		Local:    s.options.Local,
		Settings: s.sources.Settings.Current,
		Cluster:  s.sources.Obstacles.Cluster,
		Server:   s.engines.Server,
		Permit:   s.engines.Permit,
	}
	if s.self == nil {
		return stages
	}
	stages.Successor = func(ctx context.Context, cv *configv1.ClusterVersion, img release.Image, target *payload.Payload) error {
		if retriever != nil { // releases are read without access to the registry
			return target.CheckOperator(s.self.ID(), nil)
		}
		opened, err := s.open(ctx, cv)
		if err != nil {
			return err
		}
		return target.CheckOperator(s.self.ID(), func() ([]string, error) { return opened.Entrypoint(ctx, img) })
	}
	return stages
}

func (s *setup) addController(ctx context.Context) error {
	return s.sources.AddController(ctx, s.Manager, s.reconciler)
}

// addKeepers adds other work that runs while this process leads.
func (s *setup) addKeepers(context.Context) error {
	if s.options.PodName != "" { // only pods use the copy
		if err := s.Manager.Add(pullsecret.NewKeeper(s.clock, s.core, s.options.Namespace)); err != nil {
			return fmt.Errorf("starting the copy of the pull secret: %w", err)
		}
	}
	retrieveAgain := func() {
		s.reconciler.RetrieveAgain()
		s.insecure.Changed()
	}
	if err := s.Manager.Add(s.sources.RetrievalInputs(s.core, retrieveAgain)); err != nil {
		return fmt.Errorf("watching the inputs of retrievals: %w", err)
	}
	if err := s.Manager.Add(s.insecure); err != nil {
		return fmt.Errorf("reporting insecure registries: %w", err)
	}
	if err := s.Manager.Add(s.sources.Record(s.reconciler.RecordChanged)); err != nil {
		return fmt.Errorf("watching the ReleaseStatus: %w", err)
	}
	return s.BeforeRelease(s.endWrites, s.reconciler.Finish)
}

// endWrites ends the rollout, and waits for its writes.
func (s *setup) endWrites(ctx context.Context) {
	s.stop()
	s.slots.Ended(ctx, background.SlotRollout, background.SlotInventory)
}

func (s *setup) watchOperators(ctx context.Context) error { return s.engines.WatchOperators(ctx) }

func (s *setup) collect(ctx context.Context) error {
	return s.measures.Collect(ctx, s.Manager, s.core, s.options.Name, s.reconciler.Measured)
}

// snapshot returns the state of the rollout for the endpoint.
func (s *setup) snapshot() (report.Snapshot, bool) {
	out, ok := s.reconciler.Snapshot()
	out.OperatorVersion, out.InsecureRegistries = s.options.Version, s.insecure.Registries()
	return out, ok
}

// serve serves the endpoint and reports leader election as events.
func (s *setup) serve(ctx context.Context) error {
	s.Lease.RecordEvents(s.recorder)
	return s.endpoint.Serve(ctx, s.Manager, s.Unfenced, endpoint.Sources{
		Metrics: s.Registry, Snapshot: s.snapshot, Leader: s.Lease.Leader,
	})
}
