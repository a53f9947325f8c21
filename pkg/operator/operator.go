// Package operator wires the version operator: clients, caches, leader election, the background runner, the endpoint for
// views and metrics, and the stages that the ClusterVersion reconciler strings together. It contains no rule of its own
// about releases or objects.
package operator

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/precondition"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

// Options are the settings of the operator process.
type Options struct {
	// Config leads to the API server.
	Config *rest.Config
	// Log receives everything.
	Log logr.Logger
	// ReleaseImage is the operator's own release.
	ReleaseImage string
	// Local holds the files of the operator's own release; nil to pull it like any other.
	Local fs.FS
	// Name of the ClusterVersion; default "version".
	Name string
	// Namespace of the Lease; default api.OperatorNamespace.
	Namespace string
	// Listen is the address of metrics, health and the account of the rollout, over TLS; "0" or empty for none.
	Listen string
	// ServingCertFile and ServingKeyFile hold the certificate to serve with, and are read again when they change; empty
	// for one that is made at start. Clients that know the fingerprint in the Lease are served the latter anyway.
	ServingCertFile, ServingKeyFile string
	// ServingCertOptional: where the files are missing, a certificate of the operator's own CA serves until they appear.
	ServingCertOptional bool
	// PodIP is the address of the pod that the operator runs in; empty outside of one.
	PodIP string
	// TLS says which handshakes are accepted, before what the cluster's TLS profile wants.
	TLS TLS
	// Access says how registries are reached, as far as it is not for the cluster's configuration to say.
	Access registry.Options
	// Images says how images are read; its Access is made from the above.
	Images image.Options
	// Retrieval is how release images are read; default from their registry.
	Retrieval Retrieval
	// Policy is the administrator's root of trust; nil to find one in the cluster, see Outside.
	Policy *verify.Policy
	// Profile, ExcludeID: see manifest.Filter.
	Profile, ExcludeID string
	// BringYourOwnNetwork: see payload.Options.
	BringYourOwnNetwork bool
	// AlwaysEnable lists capabilities that are on whatever the ClusterVersion asks for.
	AlwaysEnable []configv1.ClusterVersionCapability
	// UpdateService says which update service is asked.
	UpdateService UpdateService
	// Metrics says against what the risks of updates are evaluated.
	Metrics MetricsSource
	// PodNamespace and PodName are those of the pod that this process is; empty outside of a cluster.
	PodNamespace, PodName string
	// LeaseDuration, RenewDeadline and RetryPeriod of leader election; default DefaultLeaseDuration and so on.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Width is how many manifests are applied at a time; default 16.
	Width int
	// Seed of the spread of retries.
	Seed uint64
}

// The times of leader election. A leader that dies without a word is replaced within 20 s whatever the moment: the lease,
// and twice the retry period with its spread of up to 120 %, once for the last look at a renewal and once for the look
// that finds the lease run out. One that ends hands over within one retry period. The Lease is written once a retry
// period, and is the only thing that is written while nothing happens.
const (
	DefaultLeaseDuration = 12 * time.Second
	DefaultRenewDeadline = 8 * time.Second
	DefaultRetryPeriod   = time.Second
)

// noListener is how controller-runtime spells that nothing is served.
const noListener = "0"

func (o *Options) setDefaults() {
	if o.Name == "" {
		o.Name = api.ClusterVersionName
	}
	if o.Namespace == "" {
		o.Namespace = api.OperatorNamespace
	}
	if o.Listen == "" {
		o.Listen = noListener
	}
	if o.LeaseDuration == 0 {
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = DefaultLeaseDuration, DefaultRenewDeadline, DefaultRetryPeriod
	}
}

// check refuses settings that contradict each other.
func (o *Options) check() error {
	if limit := maxRetryPeriod(o.LeaseDuration); o.RetryPeriod > limit {
		return fmt.Errorf("a leader that renews every %s cannot be sure of a lease of %s between two renewals: renew at least every %s",
			o.RetryPeriod, o.LeaseDuration, limit)
	}
	return nil
}

// Run works until ctx ends, and returns nil then. It needs the CRDs of ClusterVersion and ClusterOperator.
func Run(ctx context.Context, options Options) error {
	options.setDefaults()
	if err := options.check(); err != nil {
		return err
	}
	ctx = logr.NewContext(ctx, options.Log)
	ask, err := askServer(options.Config)
	if err != nil {
		return err
	}
	if err := awaitServer(ctx, clock.RealClock{}, ask); err != nil {
		return err
	}
	end, err := newEndpoint(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = end.close() }()
	p, err := findPost(ctx, options.Config, options)
	if err != nil {
		return err
	}
	mgr, err := newManager(ctx, options, end, p)
	if err != nil {
		return err
	}
	if err := checkServed(mgr); err != nil {
		return err
	}
	background, stop := context.WithCancel(ctx)
	defer stop()
	run := newRunner(background)
	defer run.Wait()
	defer stop()
	if err := setUp(ctx, mgr, run, options, end, p); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the operator: %w", err)
	}
	return nil
}

// NewScheme knows the kinds that the operator reads and writes by their types.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, install := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, configv1.Install, operatorv1alpha1.Install} {
		if err := install(scheme); err != nil {
			return nil, fmt.Errorf("preparing scheme: %w", err)
		}
	}
	gate.AddToScheme(scheme)
	return scheme, nil
}

func newManager(ctx context.Context, options Options, end *endpoint, p *post) (manager.Manager, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	cacheOptions, err := cacheOptions(options.Name)
	if err != nil {
		return nil, err
	}
	cfg := rest.CopyConfig(options.Config)
	cfg.QPS = -1 // priority and fairness on the server decides
	cfg.UserAgent = "cluster-version-operator"
	cfg.WarningHandlerWithContext = warnings{}
	lock, err := end.lock(cfg, options)
	if err != nil {
		return nil, err
	}
	// Everything but the Lease goes through the fence: clients that are made of the manager's configuration, or share its
	// HTTP client, write only while this process leads.
	fence := newFence(clock.RealClock{}, options.LeaseDuration)
	cfg.Wrap(fence.wrap)
	once := true
	mgr, err := manager.New(cfg, manager.Options{
		Scheme:                              scheme,
		Logger:                              options.Log,
		Cache:                               cacheOptions,
		Client:                              client.Options{Cache: &client.CacheOptions{Unstructured: false}},
		Metrics:                             metricsserver.Options{BindAddress: noListener}, // endpoint serves them
		HealthProbeBindAddress:              noListener,
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: &candidate{Interface: lock, clock: clock.RealClock{}, log: options.Log, fence: fence, post: p},
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &options.LeaseDuration,
		RenewDeadline:                       &options.RenewDeadline,
		RetryPeriod:                         &options.RetryPeriod,
		BaseContext:                         func() context.Context { return ctx },
		Controller:                          config.Controller{SkipNameValidation: &once},
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return mgr, nil
}

// checkServed fails early and with a remedy where a bare cluster was not prepared.
func checkServed(mgr manager.Manager) error {
	for _, kind := range []string{"ClusterVersion", "ClusterOperator"} {
		gvk := configv1.GroupVersion.WithKind(kind)
		if _, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			return fmt.Errorf("the cluster does not serve %s (%w): prepare it with 'cvo install --no-operator'", gvk, err)
		}
	}
	return nil
}

// setUp connects the reconciler to its collaborators and the manager.
func setUp(ctx context.Context, mgr manager.Manager, run *runner, options Options, end *endpoint, p *post) error {
	engines, err := newEngines(mgr, run, p, options)
	if err != nil {
		return err
	}
	if p != nil {
		if err := p.follow(ctx, mgr, engines.changed); err != nil {
			return err
		}
	}
	changes := make(chan event.TypedGenericEvent[client.Object], 1)
	cv := &configv1.ClusterVersion{}
	cv.Name = options.Name
	changed := func() {
		select {
		case changes <- event.TypedGenericEvent[client.Object]{Object: cv}:
		default: // one is waiting, and will see this change too
		}
	}
	settings, err := newSettings(mgr, options)
	if err != nil {
		return err
	}
	measures, err := newMeasures(metrics.Registry)
	if err != nil {
		return err
	}
	core, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("creating client: %w", err)
	}
	voices, err := newVoices(ctx, clock.RealClock{}, mgr.GetCache(), core, options.Name)
	if err != nil {
		return err
	}
	retriever, err := newRetriever(engines.clock, mgr, core, end, options)
	if err != nil {
		return err
	}
	stages := clusterversion.Stages{
		Outside: func(ctx context.Context, cv *configv1.ClusterVersion) (clusterversion.Outside, error) {
			outside, err := OpenOutside(ctx, engines.clock, mgr.GetAPIReader(), cv, options)
			if err != nil {
				return nil, err
			}
			return measures.verifications.outside(outside.retrievedBy(retriever)), nil
		},
		Record:   releaseRecord{mgr.GetAPIReader(), mgr.GetClient(), options.Images},
		Local:    options.Local,
		Settings: settings.current,
		Cluster:  voices.cluster,
		Server:   func(ctx context.Context) precondition.Server { return server(ctx, engines.discoverer) },
		Permit:   engines.allowed.rollout,
	}
	if p != nil {
		stages.Successor = func(ctx context.Context, cv *configv1.ClusterVersion, img release.Image, target *payload.Payload) error {
			if retriever != nil { // who asks no registry
				return target.CheckOperator(p.id(), nil)
			}
			outside, err := OpenOutside(ctx, engines.clock, mgr.GetAPIReader(), cv, options)
			if err != nil {
				return err
			}
			return target.CheckOperator(p.id(), func() ([]string, error) { return outside.Entrypoint(ctx, img) })
		}
	}
	recorder, err := newRecorder(ctx, mgr, options.Namespace)
	if err != nil {
		return err
	}
	store := inventory.NewStore(core, options.Namespace, options.Name)
	if options.PodName != "" { // nobody else is started with the copy
		if err := mgr.Add(newPullSecretKeeper(clock.RealClock{}, core, options.Namespace)); err != nil {
			return fmt.Errorf("keeping the copy of the pull secret: %w", err)
		}
	}
	control, err := newControl(mgr, options)
	if err != nil {
		return err
	}
	updates, err := newUpdates(engines.clock, mgr.GetAPIReader(), metrics.Registry, options)
	if err != nil {
		return err
	}
	reconciler := clusterversion.New(
		engines.clock, mgr.GetClient(), recorder, run, stages, store, engines.make, changed,
		clusterversion.Options{
			Name: options.Name, Namespace: options.Namespace, ReleaseImage: options.ReleaseImage, Control: control,
			Preview: newPreview(mgr, store, engines.allowed, options), Events: eventsAbout(mgr.GetAPIReader(), options.Namespace), Metrics: measures.acceptance,
			Updates: updates,
		})
	if err := watchWay(mgr, core, reconciler.RetrieveAgain); err != nil {
		return fmt.Errorf("watching how releases are retrieved: %w", err)
	}
	err = builder.ControllerManagedBy(mgr).Named("clusterversion").
		For(&configv1.ClusterVersion{}).
		WatchesRawSource(settings).
		WatchesRawSource(voices).
		WatchesRawSource(source.Channel(changes, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(control).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(reconciler)
	if err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	if err := watchGates(ctx, mgr.GetCache(), engines.changed); err != nil {
		return err
	}
	if err := measures.collect(ctx, mgr, core, options, reconciler); err != nil {
		return err
	}
	return end.serve(ctx, mgr, reconciler.Snapshot, recorder)
}

// SetLogger sends what controller-runtime logs outside of any context to the same place.
func SetLogger(log logr.Logger) { ctrl.SetLogger(log) }
