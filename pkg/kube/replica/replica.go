// Package replica has one replica of a component: a process with a manager. The replicas compete for a Lease. Every client with the
// manager's configuration goes through the fence, so only the leader writes. The caller adds controllers to the manager. Run ends everything
// within a time limit.
//
// The other packages under kube have the parts. This package connects them, and knows no component.
package replica

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/cluster-version/cvo/pkg/kube/apiserver"
	"github.com/cluster-version/cvo/pkg/kube/fence"
	"github.com/cluster-version/cvo/pkg/kube/lead"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/kube/process"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/kube/telemetry"
)

// Options configures a Replica.
type Options struct {
	// UserAgent names the component in its requests, and Metrics in the names of its metrics, such as operator.
	UserAgent, Metrics string
	// Namespace and Lease are the namespace and the name of the Lease for which the replicas compete. Identity identifies this replica.
	Namespace, Lease string
	Identity         leader.Identity
	// Turn decides when this replica may lead; nil means always.
	Turn lead.Turn
	// LeaseDuration, RenewDeadline and RetryPeriod configure leader election. If LeaseDuration is 0, they are lead.DefaultLeaseDuration and
	// so on. New rejects a period that lead.CheckRetryPeriod rejects.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Scheme has the types of the manager's client; default client-go's. Cache configures the manager's cache.
	Scheme *runtime.Scheme
	Cache  cache.Options
	// Log receives messages about the election and the end. The zero value drops them.
	Log logr.Logger
}

// Replica is a process that competes for a Lease.
type Replica struct {
	// Manager runs the component's controllers. Its clients write only while this replica leads.
	Manager manager.Manager
	// Unfenced is the configuration for writes that every replica makes.
	Unfenced *rest.Config
	Lease    *lead.Lease
	// Registry has the metrics of the process.
	Registry metrics.RegistererGatherer

	process process.Process
}

// New returns a replica for a cluster. It sends no writes. Run decides when the manager's parts end, not ctx.
func New(ctx context.Context, cfg *rest.Config, o Options) (*Replica, error) {
	if o.LeaseDuration == 0 {
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = lead.DefaultLeaseDuration, lead.DefaultRenewDeadline, lead.DefaultRetryPeriod
	}
	if err := lead.CheckRetryPeriod(o.LeaseDuration, o.RetryPeriod); err != nil {
		return nil, err // before the fence depends on these times
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = o.UserAgent
	cfg.WarningHandlerWithContext = apiserver.Warnings{}
	r := &Replica{Unfenced: rest.CopyConfig(cfg), process: process.Process{Log: o.Log}}
	managed := r.process.Managed(ctx)
	var err error
	if r.Lease, err = lead.NewLease(cfg, o.Namespace, o.Lease, o.Identity, o.RenewDeadline); err != nil {
		return nil, err
	}
	candidate := lead.New(clock.RealClock{}, r.Lease, lead.Options{
		Turn: o.Turn, LeaseDuration: o.LeaseDuration, RetryPeriod: o.RetryPeriod, Log: o.Log,
	})
	if r.Registry, err = telemetry.Registry(); err != nil {
		return nil, err
	}
	if err := candidate.Fence().Register(r.Registry, o.Metrics); err != nil {
		return nil, err
	}
	cfg.Wrap(candidate.Fence().Wrap)
	transport, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for discovery: %w", err)
	}
	// The manager would log an error even at a normal end, so it is created only once the server responds. Until then, the end of ctx ends
	// the requests.
	mapper, err := process.MapperUntil(managed)(cfg, transport)
	if err == nil {
		responded := context.AfterFunc(ctx, r.process.Stop)
		err = apiserver.Discover(ctx, mapper)
		responded()
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	once, graceful := true, process.RunnableLimit
	r.Manager, err = manager.New(cfg, manager.Options{
		Scheme:                              o.Scheme,
		Logger:                              o.Log,
		Cache:                               o.Cache,
		NewCache:                            newCache,
		Metrics:                             telemetry.Unserved(), // the endpoint serves them
		HealthProbeBindAddress:              serve.NoListener,
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: candidate,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &o.LeaseDuration,
		RenewDeadline:                       &o.RenewDeadline,
		RetryPeriod:                         &o.RetryPeriod,
		GracefulShutdownTimeout:             &graceful,
		BaseContext:                         func() context.Context { return managed },
		MapperProvider:                      func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		Controller:                          config.Controller{SkipNameValidation: &once},
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	if err := r.Manager.Add(process.EveryReplica(candidate.Follow)); err != nil {
		return nil, fmt.Errorf("watching the Lease: %w", err)
	}
	r.process.Start, r.process.Candidate = func() error { return candidate.NameHolder(r.Manager.Start(managed)) }, candidate
	return r, nil
}

// saveLimit is the time for BeforeRelease. Then the fence keeps a canceled write for its time, and the endpoint ends. Together with a margin
// of a quarter of a second, this takes process.RunnableLimit.
const saveLimit = process.RunnableLimit - fence.ReleaseTimeout - serve.ShutdownTimeout - time.Second/4

// BeforeRelease calls end and then save at the end of a process that leads, before it releases the Lease. It calls neither in a process that
// has not led. If the process has lost the Lease, the writes of save fail. The contexts end after a short time; that of end is the maximum
// time of a canceled write, so that some time remains for save.
func (r *Replica) BeforeRelease(end, save func(ctx context.Context)) error {
	err := r.Manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveLimit)
		defer cancel()
		ending, ended := context.WithTimeout(saving, fence.ReleaseTimeout)
		end(ending)
		ended()
		save(saving)
		return nil
	}))
	if err != nil {
		return fmt.Errorf("adding the last save: %w", err)
	}
	return nil
}

// Run runs the manager until ctx ends and then returns nil. If it loses the Lease, it returns an error. The process has to exit then. work
// runs in parallel until stop is called; nil for none. See process.Process.Run for the end.
func (r *Replica) Run(ctx context.Context, work process.Background, stop context.CancelFunc) error {
	if work == nil {
		work, stop = nothing{}, func() {}
	}
	r.process.Background, r.process.StopBackground = work, stop
	return r.process.Run(ctx)
}

// End returns the result of a process with a replica, given the error with which it ended. It is nil if the process was stopped while the
// API server did not respond: that end is normal, and End logs it.
func End(log logr.Logger, err error) error {
	if errors.Is(err, apiserver.ErrAway) {
		log.Info("ending", "error", err.Error())
		return nil
	}
	return err
}

// nothing is the background work of a process without any.
type nothing struct{}

func (nothing) Wait() {}

func (nothing) Running() []string { return nil }
