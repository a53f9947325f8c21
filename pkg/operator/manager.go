package operator

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cluster-version/cvo/pkg/gate"
)

// noListener is how controller-runtime spells that nothing is served.
const noListener = "0"

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
	if err := fence.measure(metrics.Registry); err != nil {
		return nil, err
	}
	cfg.Wrap(fence.wrap)
	elected := &candidate{
		Interface: lock, clock: clock.RealClock{}, log: options.Log, fence: fence, post: p,
		word: &word{leases: end.leases, name: options.Name, identity: lock.Identity()},
	}
	once := true
	mgr, err := manager.New(cfg, manager.Options{
		Scheme:                              scheme,
		Logger:                              options.Log,
		Cache:                               cacheOptions,
		Client:                              client.Options{Cache: &client.CacheOptions{Unstructured: false}},
		Metrics:                             metricsserver.Options{BindAddress: noListener}, // endpoint serves them
		HealthProbeBindAddress:              noListener,
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: elected,
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
