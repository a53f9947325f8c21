// Package pod contains the shared parts of the example platform's long-running programs: probes, and switches that apply
// while they run. It takes the program's identity and the cluster's configuration, and returns a manager to which the
// program adds its work.
package pod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/examples/operator/switches"
)

// ErrSwitchedOff is the error of a program that a switch crashes.
var ErrSwitchedOff = errors.New("crashing because of a switch")

// Options identify a program.
type Options struct {
	// Namespace is the namespace of the program and its switches.
	Namespace string
	// Workload is the program's name in the switches; empty for an operator.
	Workload string
	// Version is the program's version.
	Version string
	// Switches apply unless the ConfigMap sets the same key.
	Switches map[string]string
	// Listen is the address of the probes; empty for none.
	Listen string
	// LeaderElection is the name of the Lease with which several replicas elect a leader; empty for none.
	LeaderElection string
	// Clock measures the time since the start of the program.
	Clock clock.PassiveClock
}

// Pod is a running program.
type Pod struct {
	opts    Options
	client  client.Client
	started time.Time
	state   atomic.Pointer[state]
	crash   chan struct{}
}

// state is the content of the switches; nil until they have been read.
type state struct {
	set switches.Set
	err error
}

// New returns a pod and the manager that runs it. The manager caches the switches and the objects of more.Cache.
func New(ctx context.Context, config *rest.Config, opts Options, more manager.Options) (*Pod, manager.Manager, error) {
	if _, err := switches.Read(opts.Switches, opts.Workload, opts.Version); err != nil {
		return nil, nil, err
	}
	p := &Pod{opts: opts, started: opts.Clock.Now(), crash: make(chan struct{}, 1)}
	more.Logger = logr.FromContextOrDiscard(ctx)
	more.Metrics = server.Options{BindAddress: "0"}
	more.HealthProbeBindAddress = opts.Listen
	if opts.Listen == "" {
		more.HealthProbeBindAddress = "0"
	}
	more.LeaderElection = opts.LeaderElection != ""
	more.LeaderElectionID, more.LeaderElectionNamespace = opts.LeaderElection, opts.Namespace
	more.LeaderElectionReleaseOnCancel = true // the program ends afterwards, so its successor can start at once
	more.Cache.DefaultNamespaces = map[string]cache.Config{opts.Namespace: {}}
	byObject := map[client.Object]cache.ByObject{
		&corev1.ConfigMap{}: {Field: fields.OneTermEqualSelector("metadata.name", switches.ConfigMap)},
	}
	maps.Copy(byObject, more.Cache.ByObject)
	more.Cache.ByObject = byObject
	m, err := manager.New(config, more)
	if err != nil {
		return nil, nil, err
	}
	p.client = m.GetClient()
	if err := errors.Join(
		m.AddHealthzCheck("alive", func(*http.Request) error { return nil }),
		m.AddReadyzCheck("switches", func(*http.Request) error { return p.Ready() }),
		m.Add(everywhere{p.awaitCrash}),
		m.Add(everywhere{p.firstRead(m)}),
		builder.ControllerManagedBy(m).Named("switches").For(&corev1.ConfigMap{}).
			WithOptions(controller.Options{NeedLeaderElection: new(false), SkipNameValidation: new(true)}).
			Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, p.Refresh(ctx)
			})),
	); err != nil {
		return nil, nil, err
	}
	return p, m, nil
}

// everywhere runs on all replicas, not only on the leader.
type everywhere struct{ manager.RunnableFunc }

func (everywhere) NeedLeaderElection() bool { return false }

// firstRead reads the switches once, because without a ConfigMap no event would trigger it.
func (p *Pod) firstRead(m manager.Manager) manager.RunnableFunc {
	return func(ctx context.Context) error {
		if _, err := m.GetCache().GetInformer(ctx, &corev1.ConfigMap{}); err != nil { // returns once the cache is filled
			return err
		}
		return p.Refresh(ctx)
	}
}

// Refresh reads the current switches. A caller that watches them may see a change before the pod does, and then calls Refresh.
func (p *Pod) Refresh(ctx context.Context) error {
	config := &corev1.ConfigMap{}
	err := p.client.Get(ctx, client.ObjectKey{Namespace: p.opts.Namespace, Name: switches.ConfigMap}, config)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading ConfigMap %s/%s: %w", p.opts.Namespace, switches.ConfigMap, err)
	}
	set, err := switches.Read(switches.Merge(p.opts.Switches, config.Data), p.opts.Workload, p.opts.Version)
	if old := p.state.Swap(&state{set, err}); old == nil || old.set != set {
		logr.FromContextOrDiscard(ctx).Info("switches read", "set", set)
	}
	if set.CrashLoop {
		select {
		case p.crash <- struct{}{}:
		default:
		}
	}
	return nil
}

func (p *Pod) awaitCrash(ctx context.Context) error {
	select {
	case <-p.crash:
		return ErrSwitchedOff
	case <-ctx.Done():
		return nil
	}
}

// Switches returns the current switches, and an error if some of them are invalid.
func (p *Pod) Switches() (switches.Set, error) {
	if s := p.state.Load(); s != nil {
		return s.set, s.err
	}
	return switches.Set{}, nil
}

// Ready returns nil when the pod may serve. A pod that has not read its switches is not ready, so a pod that is about to crash is never
// ready.
func (p *Pod) Ready() error {
	s := p.state.Load()
	switch {
	case s == nil:
		return errors.New("the switches are not read yet")
	case s.set.CrashLoop:
		return ErrSwitchedOff
	case s.set.NotReady:
		return errors.New("not ready because of a switch")
	case p.opts.Workload != "" && p.opts.Clock.Since(p.started) < s.set.Slow:
		return fmt.Errorf("not ready for the first %s because of a switch", s.set.Slow)
	}
	return nil
}
