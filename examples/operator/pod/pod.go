// Package pod is what all programs of the example platform share that stay up: probes, and switches that act while they
// run. It takes who the program is and where the cluster is, and returns a manager to which the program adds its work.
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

// ErrSwitchedOff is how a program ends that a switch tells to crash.
var ErrSwitchedOff = errors.New("crashing, as a switch says")

// Options say who a program is.
type Options struct {
	// Namespace is where the program runs and looks for switches.
	Namespace string
	// Workload is what the switches call it; empty for an operator.
	Workload string
	// Version is the program's.
	Version string
	// Switches count until the ConfigMap says something else about the same key.
	Switches map[string]string
	// Listen is the address of the probes; empty for none.
	Listen string
	// LeaderElection is the name of the Lease by which several of them agree whose turn it is; empty for none.
	LeaderElection string
	// Clock measures how long it has been up.
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

// state is what the switches say; nil until they have been read.
type state struct {
	set switches.Set
	err error
}

// New returns a pod and the manager that runs it. What options.Cache holds is kept up to date beside the switches.
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
	more.LeaderElectionReleaseOnCancel = true // the program ends after it, so the successor need not wait
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

// everywhere is what runs whether this program is the leader or not.
type everywhere struct{ manager.RunnableFunc }

func (everywhere) NeedLeaderElection() bool { return false }

// firstRead reads the switches once: without a ConfigMap nothing else would start that.
func (p *Pod) firstRead(m manager.Manager) manager.RunnableFunc {
	return func(ctx context.Context) error {
		if _, err := m.GetCache().GetInformer(ctx, &corev1.ConfigMap{}); err != nil { // returns when it is filled
			return err
		}
		return p.Refresh(ctx)
	}
}

// Refresh takes over what the switches say now. Whoever is told of a change may be told before the pod is.
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

// Switches returns what the switches say, and an error if some of them cannot be understood.
func (p *Pod) Switches() (switches.Set, error) {
	if s := p.state.Load(); s != nil {
		return s.set, s.err
	}
	return switches.Set{}, nil
}

// Ready is nil when the pod may serve. A pod that has not read its switches is not ready, so that one which is about to
// crash never was.
func (p *Pod) Ready() error {
	s := p.state.Load()
	switch {
	case s == nil:
		return errors.New("the switches are not read yet")
	case s.set.CrashLoop:
		return ErrSwitchedOff
	case s.set.NotReady:
		return errors.New("not ready, as a switch says")
	case p.opts.Workload != "" && p.opts.Clock.Since(p.started) < s.set.Slow:
		return fmt.Errorf("not ready for the first %s, as a switch says", s.set.Slow)
	}
	return nil
}
