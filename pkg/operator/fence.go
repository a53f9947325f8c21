package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// fence keeps a process from writing that cannot be sure to lead. A Lease alone does not: a process that is stopped for
// longer than its lease goes on where it was when it runs again, and only then finds out that another leads by now.
//
// Every write needs a renewal of the Lease that is younger than a third of the lease, and has half of the lease to end,
// on the server too. So whatever was sent ends when five sixths of the lease have passed; the rest is for connections
// that are slow to end and clocks that do not run alike. What is refused is tried again: a fence that closes because one
// renewal is late costs nothing but that.
type fence struct {
	clock clock.PassiveClock
	lease time.Duration

	mu sync.Mutex
	// renewed is when the last renewal that succeeded was sent; zero while this process does not lead.
	renewed time.Time
	// under counts the writes under way, idle is closed when there are none; nil while nobody waits for that.
	under int
	idle  chan struct{}
}

func newFence(clk clock.PassiveClock, lease time.Duration) *fence {
	return &fence{clock: clk, lease: lease}
}

// patience is how old a renewal may be for a write to begin.
func (f *fence) patience() time.Duration { return f.lease / 3 }

// timeout is how long the server may take for a write.
func (f *fence) timeout() time.Duration { return f.lease / 2 }

// slack is how much longer the answer may take to arrive, so that it can tell why the server took so long.
func (f *fence) slack() time.Duration { return f.lease / 12 }

// maxRetryPeriod is the retry period at which the fence stays open between two renewals, one of them late.
func maxRetryPeriod(lease time.Duration) time.Duration { return lease / 4 }

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

// errFenced is why a write was not sent.
var errFenced = errors.New("this process cannot be sure to lead")

// begin notes a write, unless the fence is closed.
func (f *fence) begin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.renewed.IsZero() {
		return fmt.Errorf("%w: it does not hold the Lease", errFenced)
	}
	if age := sinceBoth(f.clock.Now(), f.renewed); age > f.patience() {
		return fmt.Errorf("%w: the Lease was renewed %s ago, and has to be within %s", errFenced, age.Round(time.Millisecond), f.patience())
	}
	f.under++
	return nil
}

func (f *fence) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.under--; f.under == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// sinceBoth is the time between two moments by the clock that says more. The monotonic one goes on while a process is
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
	if err := t.begin(); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper has to
		}
		return nil, fmt.Errorf("not sending %s %s: %w", r.Method, r.URL.Path, err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), t.timeout()+t.slack())
	r = r.Clone(ctx)
	query := r.URL.Query()
	if asked, err := time.ParseDuration(query.Get("timeout")); err != nil || asked > t.timeout() || asked <= 0 {
		query.Set("timeout", t.timeout().String())
		r.URL.RawQuery = query.Encode()
	}
	over := sync.OnceFunc(func() {
		cancel()
		t.end()
	})
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		over()
		return nil, err
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
