// Package process runs a manager and background work, and ends both within a time limit. It also contains what every manager in this module
// needs: a mapper that ends with the process, and runnables that also run without the leadership.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// EndLimit is the time within which a process must end after a signal, or after it has lost the Lease. The manager's runnables have half of
// it; the other half is for the responses to writes and the request that releases the Lease. The kubelet waits longer; see
// terminationGracePeriodSeconds in the Deployment.
const EndLimit = 10 * time.Second

// RunnableLimit is the time for which the manager waits for its runnables before it closes the fence and releases the Lease.
const RunnableLimit = EndLimit / 2

// resignLimit is the time for Resign. It fits into EndLimit after RunnableLimit.
const resignLimit = 4 * time.Second

// maxStacks is the maximum size in bytes of the stacks that are logged if a process does not end.
const maxStacks = 64 << 10

// ErrNotEnded means that Run has returned although parts of the process are still running. The caller must exit.
var ErrNotEnded = errors.New("the process did not end in time")

// Background is the work of a process outside its manager.
type Background interface {
	// Wait returns once all work has ended.
	Wait()
	// Running returns the names of unfinished work.
	Running() []string
}

// Candidate takes part in a leader election.
type Candidate interface {
	// Withdraw reports whether the process has not taken part in the election yet. If so, it never will.
	Withdraw() bool
	// Resign releases a Lease that the process may hold without knowing it. The election has ended.
	Resign(ctx context.Context)
}

// Process runs a manager and background work, and ends both within EndLimit.
type Process struct {
	// Start runs the manager until Stop.
	Start func() error
	Stop  context.CancelFunc
	// Candidate takes part in the election that the manager runs; see *lead.Candidate.
	Candidate Candidate
	// Background runs in parallel with the manager until StopBackground is called.
	Background     Background
	StopBackground context.CancelFunc
	// Log receives a message with all stacks if the process does not end in time.
	Log logr.Logger
}

// Managed sets Stop and returns the context for the manager and its runnables. That context outlives ctx, because Run decides when it ends.
func (p *Process) Managed(ctx context.Context) context.Context {
	managed, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.Stop = stop
	return managed
}

// Run returns nil once ctx has ended and everything has stopped. It returns an error if the manager fails, for example because it lost the
// Lease, and ErrNotEnded if some part does not stop within EndLimit.
//
// A process that has not taken part in the election has written nothing as a leader and has no Lease to release, so Run returns
// immediately. It does not stop the manager, because a manager that is stopped while its caches first fill never returns and keeps a core
// busy (runnableGroup.Start in controller-runtime 0.25).
func (p *Process) Run(ctx context.Context) error {
	returned, managed := make(chan struct{}), make(chan error, 1)
	go func() {
		err := p.Start()
		close(returned)
		resigning, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignLimit)
		defer cancel()
		p.Candidate.Resign(resigning)
		managed <- err
	}()
	select {
	case <-returned:
	case <-ctx.Done():
		if p.Candidate.Withdraw() {
			p.Log.Info("ending: this process has not taken part in the election yet")
			return nil
		}
	}
	p.Stop()
	p.StopBackground()
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		p.Background.Wait()
	}()
	late := time.NewTimer(EndLimit)
	defer late.Stop()
	var err error
	for managed != nil || idle != nil {
		select {
		case err = <-managed:
			managed = nil
		case <-idle:
			idle = nil
		case <-late.C:
			return errors.Join(err, p.overdue(managed != nil))
		}
	}
	return err
}

// overdue logs the running parts and the stacks of all goroutines. It returns an error with the names of the parts.
func (p *Process) overdue(manager bool) error {
	parts := p.Background.Running()
	if manager {
		parts = append(parts, "manager")
	}
	stacks := make([]byte, maxStacks)
	stacks = stacks[:runtime.Stack(stacks, true)]
	err := fmt.Errorf("%w: %s: still running after %s", ErrNotEnded, strings.Join(parts, ", "), EndLimit)
	p.Log.Error(err, "exiting anyway", "stacks", string(stacks))
	return err
}

// MapperUntil returns a constructor of a mapper whose requests end with ctx. Otherwise a mapper ignores its caller's context when it
// requests an unknown kind, and waits 32 s for the response. A process without network would take as long to end.
func MapperUntil(ctx context.Context) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(cfg *rest.Config, client *http.Client) (meta.RESTMapper, error) {
		bound := *client
		bound.Transport = endingWith{ctx.Done(), client.Transport}
		return apiutil.NewDynamicRESTMapper(cfg, &bound)
	}
}

// endingWith is a transport that cancels its requests once done is closed.
type endingWith struct {
	done <-chan struct{}
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t endingWith) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	go func() {
		select {
		case <-t.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	resp, err := t.next.RoundTrip(r.Clone(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &cancelingBody{resp.Body, cancel}
	return resp, nil
}

// cancelingBody is a response body that calls cancel when it is closed.
type cancelingBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *cancelingBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// EveryReplica is a manager.Runnable that also runs while this process does not lead.
type EveryReplica func(ctx context.Context) error

// Start implements manager.Runnable.
func (r EveryReplica) Start(ctx context.Context) error { return r(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (EveryReplica) NeedLeaderElection() bool { return false }
