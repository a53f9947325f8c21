package operator

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/cluster-version/cvo/pkg/engine/cluster"
	"github.com/cluster-version/cvo/pkg/kube/apiserver"
	"github.com/cluster-version/cvo/pkg/kube/lead"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/kube/process"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/kube/telemetry"
	"github.com/cluster-version/cvo/pkg/operator/handover"
)

// contender is this process as a candidate in leader election, with the manager that runs the election.
type contender struct {
	manager   manager.Manager
	candidate *lead.Candidate
	lease     *lead.Lease
	// unfenced is the API server configuration for the serving CA, which every replica maintains.
	unfenced *rest.Config
	registry metrics.RegistererGatherer
}

// contend returns this process as a contender. Everything that its manager runs ends with ctx.
func contend(ctx context.Context, options Options, identity leader.Identity, self *handover.Deployment) (*contender, error) {
	scheme, err := cluster.NewScheme()
	if err != nil {
		return nil, err
	}
	cfg := rest.CopyConfig(options.Config)
	cfg.QPS = -1 // no client-side limit: the server's API Priority and Fairness limits the rate
	cfg.UserAgent = "cluster-version-operator"
	cfg.WarningHandlerWithContext = apiserver.Warnings{}
	c := &contender{unfenced: rest.CopyConfig(cfg)}
	if c.lease, err = lead.NewLease(cfg, options.Namespace, options.Name, identity, options.RenewDeadline); err != nil {
		return nil, err
	}
	// Everything but the Lease and the serving CA goes through the fence. Clients with the manager's configuration or its HTTP client write only while this
	// process leads.
	c.candidate = lead.New(clock.RealClock{}, c.lease, lead.Options{
		Turn: self.Turn(), LeaseDuration: options.LeaseDuration, RetryPeriod: options.RetryPeriod, Log: options.Log,
	})
	if c.registry, err = telemetry.Registry(); err != nil {
		return nil, err
	}
	if err := c.candidate.Fence().Register(c.registry, "operator"); err != nil {
		return nil, err
	}
	cfg.Wrap(c.candidate.Fence().Wrap)
	once, graceful := true, process.RunnableLimit
	c.manager, err = manager.New(cfg, manager.Options{
		Scheme:                              scheme,
		Logger:                              options.Log,
		Cache:                               cluster.CacheOptions(options.Name),
		Client:                              client.Options{Cache: &client.CacheOptions{Unstructured: false}},
		Metrics:                             telemetry.Unserved(), // the endpoint serves them
		HealthProbeBindAddress:              serve.NoListener,
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: c.candidate,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &options.LeaseDuration,
		RenewDeadline:                       &options.RenewDeadline,
		RetryPeriod:                         &options.RetryPeriod,
		GracefulShutdownTimeout:             &graceful,
		BaseContext:                         func() context.Context { return ctx },
		MapperProvider:                      process.MapperUntil(ctx),
		Controller:                          config.Controller{SkipNameValidation: &once},
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	if err := c.manager.Add(process.EveryReplica(c.candidate.Follow)); err != nil {
		return nil, fmt.Errorf("watching the Lease: %w", err)
	}
	return c, nil
}

// checkServed returns an error with a remedy if the cluster does not serve a kind that the operator needs.
func checkServed(mgr manager.Manager) error {
	for _, kind := range []string{"ClusterVersion", "ClusterOperator"} {
		gvk := configv1.GroupVersion.WithKind(kind)
		if _, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			return fmt.Errorf("the cluster does not serve %s (%w): prepare it with 'cvo install --no-operator'", gvk, err)
		}
	}
	return nil
}
