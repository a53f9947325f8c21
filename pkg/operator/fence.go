package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// fence keeps a process from writing that cannot be sure to lead. A Lease alone does not: a process that is stopped for
// longer than its lease goes on where it was when it runs again, and only then finds out that another leads by now.
//
// Nobody else leads before a lease has passed since the last renewal that succeeded was sent: the server took it later, and
// others count from when they saw it. Whatever is written ends when five sixths of this time have passed, on the server
// too; the rest is for connections that are slow to end and clocks that do not run alike. A write may take half of the
// lease, or what is left until then. Where less than a sixth is left it is refused: it would be cut short. So a process
// whose renewals take long writes on, with less time for each write, up to the age at which the elector gives the Lease up
// by default. What is refused is tried again: a fence that closes because one renewal is late costs nothing but that.
type fence struct {
	clock clock.PassiveClock
	lease time.Duration

	mu sync.Mutex
	// renewed is when the last renewal that succeeded was sent; zero while this process does not lead.
	renewed time.Time
	// under counts the writes under way, idle is closed when there are none; nil while nobody waits for that.
	under int
	idle  chan struct{}
	// broke is when the last write ended without an answer; zero if none has.
	broke time.Time

	// refused counts the writes that were not sent though this process holds the Lease.
	refused atomic.Uint64
}

func newFence(clk clock.PassiveClock, lease time.Duration) *fence {
	return &fence{clock: clk, lease: lease}
}

// end is how old a renewal is when every write that began by it has ended.
func (f *fence) end() time.Duration { return f.lease * 5 / 6 }

// most and least are how long the server may take for a write.
func (f *fence) most() time.Duration  { return f.lease / 2 }
func (f *fence) least() time.Duration { return f.lease / 6 }

// slack is how much longer the answer may take to arrive, so that it can tell why the server took so long; and how long it
// is waited for when the caller has gone.
func (f *fence) slack() time.Duration { return f.lease / 12 }

// maxRetryPeriod is the retry period at which the fence stays open between two renewals, one of them late.
func maxRetryPeriod(lease time.Duration) time.Duration { return lease / 4 }

// measure registers what tells of writes that are refused.
func (f *fence) measure(registry prometheus.Registerer) error {
	err := registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "cvo_operator_refused_writes_total",
		Help: "Writes that the operator did not send though it leads, because the last renewal of its Lease took too long to be sure of it.",
	}, func() float64 { return float64(f.refused.Load()) }))
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// renew opens the fence: a renewal that was sent at that time has succeeded.
func (f *fence) renew(sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed = sent
}

// shut refuses every write from now on.
func (f *fence) shut() { f.renew(time.Time{}) }

// close refuses every write from now on, and waits for those under way until ctx ends.
func (f *fence) close(ctx context.Context) {
	f.shut()
	f.mu.Lock()
	if f.under == 0 {
		f.mu.Unlock()
		return
	}
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	idle := f.idle
	f.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// settle waits until writes under way have ended, for as long as it takes one to be answered as a rule.
func (f *fence) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, f.slack())
	defer cancel()
	f.close(ctx)
}

// settled reports that the fence is shut and that no write that it let through can change anything any more. Each is
// counted before it is sent, and ends with the server's answer; so this leaves out no moment, as time does between looking
// at the clock and sending. One that ended without an answer is waited for as long as others wait to lead.
func (f *fence) settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	// By the monotonic clock alone: one that is set forth ends no wait.
	return f.renewed.IsZero() && f.under == 0 && (f.broke.IsZero() || f.clock.Since(f.broke) >= f.lease)
}

// unanswered notes that the effect of a write is not known, and may still come.
func (f *fence) unanswered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broke = f.clock.Now()
}

// errFenced is why a write was not sent.
var errFenced = errors.New("this process cannot be sure to lead")

// begin notes a write, unless the fence is closed, and returns how long the server may take for it.
func (f *fence) begin() (time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.renewed.IsZero() {
		return 0, fmt.Errorf("%w: it does not hold the Lease", errFenced)
	}
	age := sinceBoth(f.clock.Now(), f.renewed)
	left := f.end() - age
	if left < f.least() {
		f.refused.Add(1)
		return 0, fmt.Errorf("%w: the Lease was renewed %s ago, and has to be within %s", errFenced, age.Round(time.Millisecond), f.end()-f.least())
	}
	f.under++
	return min(left, f.most()), nil
}

// over notes that a write has ended.
func (f *fence) over() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.under--; f.under == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// sinceBoth is how old something is, by the clock that says more. The monotonic one goes on while a process is
// stopped, but not while the machine sleeps; the other one is set right after that. Where it is set forth for another
// reason, the next renewal opens the fence again.
func sinceBoth(now, then time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}

// wrap puts the fence before a transport.
func (f *fence) wrap(next http.RoundTripper) http.RoundTripper { return fenced{f, next} }

// fenced is a transport with a fence.
type fenced struct {
	*fence
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	if !changesCluster(r) {
		return t.next.RoundTrip(r)
	}
	caller := r.Context()
	err := caller.Err()
	var timeout time.Duration
	if err == nil {
		timeout, err = t.begin()
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper has to
		}
		return nil, fmt.Errorf("not sending %s %s: %w", r.Method, r.URL.Path, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(caller), timeout+t.slack())
	// A caller that goes, as all do when the process is to end, does not take the write along: only an answer tells what
	// came of it, and mostly it is on its way.
	stay := context.AfterFunc(caller, func() { time.AfterFunc(t.slack(), cancel) })
	r = r.Clone(ctx)
	query := r.URL.Query()
	if asked, err := time.ParseDuration(query.Get("timeout")); err != nil || asked > timeout || asked <= 0 {
		query.Set("timeout", timeout.String())
		r.URL.RawQuery = query.Encode()
	}
	over := sync.OnceFunc(func() {
		stay()
		cancel()
		t.fence.over()
	})
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		t.unanswered()
		over()
		return nil, cmp.Or(caller.Err(), err)
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		t.unanswered() // such as that the time is up, which does not end what the server has begun
	}
	resp.Body = &ending{resp.Body, over}
	return resp, nil
}

// ending is a body that tells when it is closed.
type ending struct {
	io.ReadCloser
	over func()
}

func (b *ending) Close() error {
	defer b.over()
	return b.ReadCloser.Close()
}

// changesCluster reports whether a request is one that only a leader may send. Reviews are questions in the form of
// objects, which nobody keeps, and so is what is tried without effect.
func changesCluster(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	for _, group := range []string{"/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/"} {
		if strings.Contains(r.URL.Path, group) {
			return false
		}
	}
	return r.URL.Query().Get("dryRun") != "All"
}
