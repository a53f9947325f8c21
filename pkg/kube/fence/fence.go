// Package fence prevents writes of a process that may no longer lead. A Lease alone does not prevent them: a process that was suspended for
// longer than its lease continues where it stopped, and only later notices another leader.
//
// A Fence wraps the transport of a client. It needs one fact, the time when the last successful renewal was sent, which package lead
// provides. Within one lease after that time, no other process leads: the server processed the renewal later, and other processes count
// from when they saw it. The fence divides this time. For a lease of 15 s:
//
//	0 s to 10 s  Writes may start. Each may take half of the lease (7.5 s), but must end by 12.5 s.
//	10 s         Less than a sixth of the lease (2.5 s) would remain, so new writes are rejected.
//	12.5 s       The server has ended every write.
//	13.75 s      This process has stopped waiting for responses.
//	15 s         Another process may lead.
//
// The remaining time covers slow connections and clocks of different speed. Renewals are sent every 3 s with a timeout of 5 s. If one
// renewal gets no response, the fence stays open, because the next one is sent 8 s after the last successful one. Rejected writes are
// retried, so if the fence closes because of late renewals, that costs only a delay.
//
// Replicas that do not lead need a client without a fence for their own writes.
//
// The package also limits repairs. Repairs is a token bucket for the writes that restore one object, because another client may keep
// changing or deleting the object.
package fence

import (
	"bytes"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
)

// Fence lets writes pass while this process certainly leads, and counts them until their responses arrive.
type Fence struct {
	clock clock.PassiveClock
	lease time.Duration
	// renewed returns the time when the last successful renewal was sent; zero while this process does not lead. It is called with mu
	// locked, so every write that starts before its result changes is counted.
	renewed func() time.Time

	mu sync.Mutex
	// pending contains the writes without a response. idle is closed when pending becomes empty; it is nil while no caller waits.
	pending map[*write]struct{}
	idle    chan struct{}
	// unknown is the write with an unknown outcome and the latest deadline; nil if there is none.
	unknown *write

	// refused counts the writes that were not sent although this process holds the Lease.
	refused atomic.Uint64
}

// write is a request that may change the cluster.
type write struct {
	// name is the method and path of the request.
	name string
	// began is the time when the write was sent. serverLimit is the time limit for the server, and limit the time limit for the response.
	// After limit the write can no longer take effect.
	began              time.Time
	serverLimit, limit time.Duration
}

// New returns a fence for a lease with the given duration. renewed returns the time when the last successful renewal was sent; zero while
// this process does not lead.
func New(clk clock.PassiveClock, lease time.Duration, renewed func() time.Time) *Fence {
	return &Fence{clock: clk, lease: lease, renewed: renewed, pending: map[*write]struct{}{}}
}

// Lease returns the duration of the lease.
func (f *Fence) Lease() time.Duration { return f.lease }

// end is the age of a renewal at which all writes that it allowed have ended.
func (f *Fence) end() time.Duration { return f.lease * 5 / 6 }

// most and least are the bounds of the server's time limit for a write.
func (f *Fence) most() time.Duration  { return f.lease / 2 }
func (f *Fence) least() time.Duration { return f.lease / 6 }

// slack is the additional time for the response to arrive, so that it can report why the server took so long.
func (f *Fence) slack() time.Duration { return f.lease / 12 }

// ReleaseTimeout is the maximum wait for the response to a write whose caller has been canceled, as all callers are on SIGTERM.
const ReleaseTimeout = 2 * time.Second

// LastWrite returns the age of the last renewal at which new writes are rejected.
func (f *Fence) LastWrite() time.Duration { return f.end() - f.least() }

// MaxRetryPeriod returns the longest interval of renewals with which the fence stays open if one renewal gets no response.
func MaxRetryPeriod(lease time.Duration) time.Duration { return lease / 4 }

// Register registers a metric of rejected writes for a process with the given name, such as operator.
func (f *Fence) Register(registry prometheus.Registerer, process string) error {
	err := registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "cvo_" + process + "_refused_writes_total",
		Help: "Writes that the " + process + " did not send although it leads, because the last renewal of its Lease was too old.",
	}, func() float64 { return float64(f.refused.Load()) }))
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// Drain waits at most two seconds for the responses to pending writes. The caller must end the leadership first, so that no new write
// starts.
func (f *Fence) Drain(ctx context.Context) {
	f.mu.Lock()
	if len(f.pending) == 0 {
		f.mu.Unlock()
		return
	}
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	idle := f.idle
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, ReleaseTimeout)
	defer cancel()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// Effective returns how much longer a write of this process may take effect, and the method and path of that write. It returns zero once
// the fence is closed and each write has a response or has passed its deadline. Each write is counted from before it is sent until its
// response arrives, so it cannot be missed, for example between reading a clock and sending.
func (f *Fence) Effective() (left time.Duration, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.pending {
		// A pending write whose deadline has passed counts until it ends.
		if l := max(f.left(w), time.Millisecond); l > left {
			left, name = l, w.name
		}
	}
	if f.unknown != nil && f.left(f.unknown) > left {
		left, name = f.left(f.unknown), f.unknown.name
	}
	return left, name
}

// left returns the time until a write's deadline by the monotonic clock only, because a change of the wall clock ends no write.
func (f *Fence) left(w *write) time.Duration { return w.limit - f.clock.Since(w.began) }

// unanswered records a write with an unknown outcome, which may take effect until its deadline.
func (f *Fence) unanswered(w *write) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unknown == nil || f.left(w) > f.left(f.unknown) {
		f.unknown = w
	}
}

// ErrClosed means that a write was not sent.
var ErrClosed = errors.New("this process may no longer lead")

// begin counts a write and returns it with its time limits. It returns ErrClosed if the fence is closed.
func (f *Fence) begin(name string) (*write, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	renewed := f.renewed()
	if renewed.IsZero() {
		return nil, fmt.Errorf("%w: it does not hold the Lease", ErrClosed)
	}
	now := f.clock.Now()
	age := sinceBoth(now, renewed)
	left := f.end() - age
	if left < f.least() {
		f.refused.Add(1)
		return nil, fmt.Errorf("%w: the last renewal of the Lease was %s ago, more than %s", ErrClosed, age.Round(time.Millisecond), f.LastWrite())
	}
	w := &write{name: name, began: now, serverLimit: min(left, f.most())}
	w.limit = w.serverLimit + f.slack()
	f.pending[w] = struct{}{}
	return w, nil
}

// over records that a write has ended.
func (f *Fence) over(w *write) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if delete(f.pending, w); len(f.pending) == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// sinceBoth returns the time between then and now by the clock that shows more. The monotonic clock continues while a process is suspended,
// but not while the machine sleeps; the wall clock is corrected right after the sleep. If the wall clock is set forward for another reason,
// the next renewal opens the fence again.
func sinceBoth(now, then time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}

// Wrap returns a transport that sends writes only while the fence is open.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper { return fenced{f, next} }

// fenced is a transport behind a fence.
type fenced struct {
	*Fence
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	if !changesCluster(r) {
		return t.next.RoundTrip(r)
	}
	caller := r.Context()
	err := caller.Err()
	var w *write
	if err == nil {
		w, err = t.begin(r.Method + " " + r.URL.Path)
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // required by http.RoundTripper
		}
		return nil, fmt.Errorf("not sending %s %s: %w", r.Method, r.URL.Path, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(caller), w.limit)
	// The write continues if its caller is canceled. Only the response shows the outcome, and it usually arrives soon.
	stop := context.AfterFunc(caller, func() { time.AfterFunc(ReleaseTimeout, cancel) })
	r = r.Clone(ctx)
	query := r.URL.Query()
	if timeout, err := time.ParseDuration(query.Get("timeout")); err != nil || timeout > w.serverLimit || timeout <= 0 {
		query.Set("timeout", w.serverLimit.String())
		r.URL.RawQuery = query.Encode()
	}
	over := sync.OnceFunc(func() {
		stop()
		cancel()
		t.over(w)
	})
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		t.unanswered(w)
		over()
		return nil, cmp.Or(caller.Err(), err)
	}
	if resp.StatusCode >= http.StatusInternalServerError && !isRejection(resp) {
		t.unanswered(w) // for example a timeout, after which the server may still process the request
	}
	resp.Body = &endingBody{resp.Body, over}
	return resp, nil
}

// maxRejection is the maximum number of bytes that isRejection reads from a response.
const maxRejection = 64 << 10

// isRejection reports whether a response with status 500 means that the API server has stored nothing. There are three such cases: the
// object has a field that the kind does not have, as in some real releases, or a value that does not fit its type, or a webhook did not
// respond. All happen before storage. Other responses with this status may come from etcd, which may have stored the write.
//
// Only the message distinguishes them, and messages are not a stable API. An unknown message is safe: the process then keeps the Lease for
// a few seconds until the write can no longer take effect. Without these prefixes, every stop shortly after an install of a real
// release would take that long.
func isRejection(resp *http.Response) bool {
	if resp.StatusCode != http.StatusInternalServerError {
		return false
	}
	head, err := io.ReadAll(io.LimitReader(resp.Body, maxRejection))
	resp.Body = &replayed{io.MultiReader(bytes.NewReader(head), resp.Body), resp.Body}
	if err != nil {
		return false
	}
	answer, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(head, nil, nil) // typed clients request protobuf
	status, ok := answer.(*metav1.Status)
	if err != nil || !ok {
		return false
	}
	for _, prefix := range []string{
		"failed to create typed patch object", "failed to convert new object", "Internal error occurred: failed calling webhook",
	} {
		if strings.HasPrefix(status.Message, prefix) {
			return true
		}
	}
	return false
}

// replayed is a response body whose start has already been read.
type replayed struct {
	io.Reader
	io.Closer
}

// endingBody is a response body that calls over when it is closed.
type endingBody struct {
	io.ReadCloser
	over func()
}

func (b *endingBody) Close() error {
	defer b.over()
	return b.ReadCloser.Close()
}

// changesCluster reports whether only a leader may send a request. Reviews are queries in the form of objects that are not stored. A dry
// run does not store anything either.
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
