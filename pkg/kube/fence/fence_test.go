package fence

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/test/fault"
)

// answering is an in-memory server that records its requests.
type answering struct{ got []*http.Request }

func (a *answering) RoundTrip(r *http.Request) (*http.Response, error) {
	a.got = append(a.got, r)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("ok")), Request: r}, nil
}

func send(t *testing.T, transport http.RoundTripper, method, url string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
	require.NoError(t, err)
	resp, err := transport.RoundTrip(r)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

// testFence is the fence of a process whose renewals the test sets.
type testFence struct {
	*Fence
	mu   sync.Mutex
	sent time.Time
}

func newFence(clk clock.PassiveClock, lease time.Duration) *testFence {
	f := &testFence{}
	f.Fence = New(clk, lease, func() time.Time {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.sent
	})
	return f
}

// renew records a renewal that was sent at the given time. A zero time ends the leadership.
func (f *testFence) renew(sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = sent
}

func (f *testFence) shut() { f.renew(time.Time{}) }

// close closes the fence and waits for the responses.
func (f *testFence) close(ctx context.Context) {
	f.shut()
	f.Drain(ctx)
}

// settled reports whether the fence is closed and none of its writes can take effect.
func (f *testFence) settled() bool {
	left, _ := f.Effective()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent.IsZero() && left <= 0
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

const aWrite = "https://server/api/v1/namespaces/x/configmaps/y"

func TestFenceClosesWithTheAgeOfTheRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &answering{}
		f := newFence(clock.RealClock{}, 12*time.Second)
		transport := f.Wrap(server)
		require.ErrorIs(t, send(t, transport, http.MethodPatch, aWrite), ErrClosed, "the process has never led")
		f.renew(time.Now())
		require.NoError(t, send(t, transport, http.MethodPatch, aWrite))
		time.Sleep(8 * time.Second)
		require.NoError(t, send(t, transport, http.MethodPatch, aWrite))
		time.Sleep(time.Millisecond)
		assert.Zero(t, f.refused.Load(), "writes without the Lease are not counted as refused")
		require.ErrorIs(t, send(t, transport, http.MethodPatch, aWrite), ErrClosed, "two thirds of the lease after the last renewal")
		require.ErrorIs(t, send(t, transport, http.MethodDelete, aWrite), ErrClosed)
		require.NoError(t, send(t, transport, http.MethodGet, aWrite))
		require.NoError(t, send(t, transport, http.MethodPost, "https://server/apis/authorization.k8s.io/v1/subjectaccessreviews"))
		require.NoError(t, send(t, transport, http.MethodPatch, aWrite+"?dryRun=All"))
		f.renew(time.Now())
		require.NoError(t, send(t, transport, http.MethodPatch, aWrite), "a late renewal opens the fence again")
		f.close(t.Context())
		require.ErrorIs(t, send(t, transport, http.MethodPatch, aWrite), ErrClosed, "the Lease has been released")
		assert.Len(t, server.got, 6)

		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, f.Register(registry, "operator"))
		refused, err := registry.Gather()
		require.NoError(t, err)
		require.Equal(t, "cvo_operator_refused_writes_total", refused[0].GetName())
		assert.InDelta(t, 2, refused[0].GetMetric()[0].GetCounter().GetValue(), 0)
	})
}

func TestFenceBoundsTheTimeOfAWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, query, want string }{
		{"sends a time limit to the server", "", "6s"},
		{"shortens a limit that is too long", "?timeout=30s&fieldManager=x", "6s"},
		{"keeps a shorter limit", "?timeout=2s", "2s"},
		{"treats an empty limit as none", "?timeout=0s", "6s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := &answering{}
			f := newFence(clock.RealClock{}, 12*time.Second)
			f.renew(time.Now())
			require.NoError(t, send(t, f.Wrap(server), http.MethodPatch, aWrite+tt.query))
			assert.Equal(t, tt.want, server.got[0].URL.Query().Get("timeout"))
			deadline, ok := server.got[0].Context().Deadline()
			require.True(t, ok)
			assert.LessOrEqual(t, time.Until(deadline), 7*time.Second)
		})
	}
}

// TestFenceEndsADelayedWriteBeforeTheLease delays a write on its connection for longer than the lease, at different ages of the renewal.
// The write ends before the lease expires and never reaches the server.
func TestFenceEndsADelayedWriteBeforeTheLease(t *testing.T) {
	t.Parallel()
	const lease = 12 * time.Second
	for age := time.Duration(0); age <= lease*2/3; age += time.Second {
		synctest.Test(t, func(t *testing.T) {
			server := &answering{}
			slow, err := fault.New(server, fault.Options{Rates: map[fault.Kind]float64{fault.Delay: 1}, MaxDelay: 1000 * lease})
			require.NoError(t, err)
			f := newFence(clock.RealClock{}, lease)
			renewed := time.Now()
			f.renew(renewed)
			time.Sleep(age)
			require.ErrorIs(t, send(t, f.Wrap(slow), http.MethodPatch, aWrite), context.DeadlineExceeded)
			assert.Less(t, time.Since(renewed), lease-lease/24)
			assert.Empty(t, server.got)
		})
	}
}

// TestFenceShortensLateWrites uses slow renewals. The later a write starts, the less time the server has for it. The write always ends
// before another process may lead.
func TestFenceShortensLateWrites(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]string{
		time.Second: "6s", 4 * time.Second: "6s", 5 * time.Second: "5s", 7500 * time.Millisecond: "2.5s", 8 * time.Second: "2s",
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &answering{}
			f := newFence(clock.RealClock{}, 12*time.Second)
			sent := time.Now()
			time.Sleep(age)
			f.renew(sent) // the renewal took that long
			require.NoError(t, send(t, f.Wrap(server), http.MethodPatch, aWrite))
			assert.Equal(t, want, server.got[0].URL.Query().Get("timeout"))
		})
	}
}

// TestFenceWaitsForWritesBeforeRelease releases the Lease during a write.
func TestFenceWaitsForWritesBeforeRelease(t *testing.T) {
	t.Parallel()
	arrived, answer := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-answer
	}))
	defer server.Close()
	f := newFence(clock.RealClock{}, time.Minute)
	f.renew(time.Now())
	ended := make(chan error, 1)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, server.URL, http.NoBody)
	require.NoError(t, err)
	go func() {
		resp, err := f.Wrap(http.DefaultTransport).RoundTrip(r)
		if err == nil {
			err = resp.Body.Close()
		}
		ended <- err
	}()
	<-arrived
	closed := make(chan struct{})
	go func() {
		f.close(t.Context())
		close(closed)
	}()
	require.Eventually(t, func() bool { return send(t, f.Wrap(&answering{}), http.MethodPatch, aWrite) != nil }, time.Minute, time.Millisecond, "no new write starts")
	select {
	case <-closed:
		require.FailNow(t, "the Lease would be released during a write")
	default:
	}
	close(answer)
	<-closed
	require.NoError(t, <-ended)
}

// TestFenceWaitsForWritesOfCanceledCallers cancels the caller of a write, as SIGTERM cancels all callers. The fence waits for the
// response, but only for a limited time.
func TestFenceWaitsForWritesOfCanceledCallers(t *testing.T) {
	t.Parallel()
	const lease = 12 * time.Second
	for _, tt := range []struct {
		name             string
		before           time.Duration
		took             time.Duration
		answered, begins bool
	}{
		{"the response arrives late", time.Second, ReleaseTimeout - time.Millisecond, true, true},
		{"there is no response", time.Second, lease, false, true},
		{"the write was not sent yet", 0, 0, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFence(clock.RealClock{}, lease)
			f.renew(time.Now())
			ctx, cancel := context.WithCancel(t.Context())
			began := false
			transport := f.Wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
				began = true
				select {
				case <-r.Context().Done():
					return nil, r.Context().Err()
				case <-time.After(tt.before + tt.took):
				}
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
			}))
			if tt.before == 0 {
				cancel()
			} else {
				time.AfterFunc(tt.before, cancel)
			}
			start := time.Now()
			r, err := http.NewRequestWithContext(ctx, http.MethodPatch, aWrite, http.NoBody)
			require.NoError(t, err)
			resp, err := transport.RoundTrip(r)
			if err == nil {
				err = resp.Body.Close()
			}
			assert.Equal(t, tt.begins, began, tt.name)
			assert.LessOrEqual(t, time.Since(start), tt.before+ReleaseTimeout, tt.name)
			if tt.begins && tt.answered {
				require.NoError(t, err, tt.name)
			} else {
				require.ErrorIs(t, err, context.Canceled, tt.name)
			}
			f.close(t.Context())
			assert.Equal(t, tt.answered, f.settled(), tt.name)
		})
	}
}

// TestFenceReportsWritesThatMayTakeEffect covers all outcomes of a write. Once the fence is closed, it reports whether any write may still
// take effect.
func TestFenceReportsWritesThatMayTakeEffect(t *testing.T) {
	t.Parallel()
	const lease = 12 * time.Second
	broken := errors.New("connection reset")
	const rejected = -1 // status 500, with the message of a rejection
	for _, tt := range []struct {
		name, method string
		status       int
		err          error
		settled      bool
	}{
		{"done", http.MethodPatch, http.StatusOK, nil, true},
		{"a conflict", http.MethodPut, http.StatusConflict, nil, true},
		{"too many requests", http.MethodPost, http.StatusTooManyRequests, nil, true},
		{"a timeout of the server", http.MethodPatch, http.StatusGatewayTimeout, nil, false},
		{"a proxy without a server", http.MethodDelete, http.StatusBadGateway, nil, false},
		{"no response from etcd", http.MethodPatch, http.StatusInternalServerError, nil, false},
		{"an object that the API server cannot read", http.MethodPatch, rejected, nil, true},
		{"a broken connection", http.MethodPatch, 0, broken, false},
		{"a caller's timeout", http.MethodPatch, 0, context.DeadlineExceeded, false},
		{"a failed read", http.MethodGet, 0, broken, true},
	} {
		t.Run("it handles "+tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFence(clock.RealClock{}, lease)
				assert.True(t, f.settled(), "the process has never led")
				f.renew(time.Now())
				assert.False(t, f.settled(), "the fence is open")
				err := send(t, f.Wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
					if tt.err != nil {
						return nil, tt.err
					}
					status, body := tt.status, "{}"
					if status == rejected {
						status, body = http.StatusInternalServerError, `{"apiVersion": "v1", "kind": "Status", "message": "failed to create typed patch object (/x; v1, Kind=X): .y: field not declared in schema"}`
					}
					return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
				})), tt.method, aWrite)
				require.ErrorIs(t, err, tt.err)
				f.close(t.Context())
				assert.Equal(t, tt.settled, f.settled())
				time.Sleep(f.most() + f.slack() - time.Millisecond)
				assert.Equal(t, tt.settled, f.settled(), "before the write's deadline")
				time.Sleep(time.Millisecond)
				assert.True(t, f.settled(), "the write's deadline has passed")
			})
		})
	}
}

// TestFenceCloseDoesNotWaitForAHangingWrite uses a write that hangs and whose caller waits. The process still ends, and reports how long
// the write may take effect.
func TestFenceCloseDoesNotWaitForAHangingWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFence(clock.RealClock{}, 12*time.Second)
		f.renew(time.Now())
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, aWrite, http.NoBody)
		require.NoError(t, err)
		hangs := f.Wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if resp, err := hangs.RoundTrip(r); err == nil {
				_ = resp.Body.Close()
			}
		}()
		synctest.Wait()
		began := time.Now()
		f.close(t.Context())
		assert.Equal(t, ReleaseTimeout, time.Since(began))
		left, write := f.Effective()
		assert.Equal(t, f.most()+f.slack()-ReleaseTimeout, left)
		assert.Equal(t, "PATCH /api/v1/namespaces/x/configmaps/y", write)
		<-ended
		assert.True(t, f.settled())
	})
}

// wallClock is a clock whose wall time is set forward. The monotonic time does not change.
type wallClock struct{ forward time.Duration }

func (c *wallClock) Now() time.Time                     { return time.Now().Add(c.forward) }
func (c *wallClock) Since(then time.Time) time.Duration { return time.Since(then) }

// TestSettingTheClockDoesNotEndAWrite sets the wall clock forward, which does not make the server end a write earlier.
func TestSettingTheClockDoesNotEndAWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clk := &wallClock{}
		f := newFence(clk, 12*time.Second)
		f.unanswered(&write{began: time.Now(), limit: 12 * time.Second})
		clk.forward = time.Hour
		assert.False(t, f.settled())
		time.Sleep(12 * time.Second)
		assert.True(t, f.settled())
	})
}

func TestSinceBothReturnsTheLongerTime(t *testing.T) {
	t.Parallel()
	then := time.Now()
	assert.Equal(t, time.Second, sinceBoth(then.Add(time.Second), then))
	slept := then.Add(time.Second).Round(0).Add(time.Hour) // a wall clock that was set forward after a sleep
	assert.GreaterOrEqual(t, sinceBoth(slept, then), time.Hour)
}
