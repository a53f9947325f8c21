package operator

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/test/fault"
)

// answering is a server in memory that remembers what reaches it.
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

const aWrite = "https://server/api/v1/namespaces/x/configmaps/y"

func TestFenceByAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &answering{}
		f := newFence(clock.RealClock{}, 12*time.Second)
		transport := f.wrap(server)
		require.ErrorIs(t, send(t, transport, http.MethodPatch, aWrite), errFenced, "before it has led")
		f.renew(time.Now())
		require.NoError(t, send(t, transport, http.MethodPatch, aWrite))
		time.Sleep(8 * time.Second)
		require.NoError(t, send(t, transport, http.MethodPatch, aWrite))
		time.Sleep(time.Millisecond)
		assert.Zero(t, f.refused.Load(), "what does not lead has nothing to write")
		require.ErrorIs(t, send(t, transport, http.MethodPatch, aWrite), errFenced, "two thirds of the lease after the last renewal")
		require.ErrorIs(t, send(t, transport, http.MethodDelete, aWrite), errFenced)
		require.NoError(t, send(t, transport, http.MethodGet, aWrite))
		require.NoError(t, send(t, transport, http.MethodPost, "https://server/apis/authorization.k8s.io/v1/subjectaccessreviews"))
		require.NoError(t, send(t, transport, http.MethodPatch, aWrite+"?dryRun=All"))
		f.renew(time.Now())
		require.NoError(t, send(t, transport, http.MethodPatch, aWrite), "a late renewal opens it again")
		f.close(t.Context())
		require.ErrorIs(t, send(t, transport, http.MethodPatch, aWrite), errFenced, "given back")
		assert.Len(t, server.got, 6)

		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, f.measure(registry))
		assert.Contains(t, textOf(t, registry), "cvo_operator_refused_writes_total 2\n")
	})
}

func TestFenceBoundsWrites(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, query, want string }{
		{"tells the server how long it may take", "", "6s"},
		{"shortens what is too long", "?timeout=30s&fieldManager=x", "6s"},
		{"leaves what is shorter", "?timeout=2s", "2s"},
		{"takes none for none", "?timeout=0s", "6s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := &answering{}
			f := newFence(clock.RealClock{}, 12*time.Second)
			f.renew(time.Now())
			require.NoError(t, send(t, f.wrap(server), http.MethodPatch, aWrite+tt.query))
			assert.Equal(t, tt.want, server.got[0].URL.Query().Get("timeout"))
			deadline, ok := server.got[0].Context().Deadline()
			require.True(t, ok)
			assert.LessOrEqual(t, time.Until(deadline), 7*time.Second)
		})
	}
}

// TestFenceSlowConnection has a connection hold a write back for longer than the lease. Whenever it has begun, it is given
// up before the lease runs out, and never reaches the server.
func TestFenceSlowConnection(t *testing.T) {
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
			require.ErrorIs(t, send(t, f.wrap(slow), http.MethodPatch, aWrite), context.DeadlineExceeded)
			assert.Less(t, time.Since(renewed), lease-lease/24)
			assert.Empty(t, server.got)
		})
	}
}

// TestFenceLeavesLess has renewals take long. The server is given the less time for a write the later it begins, so that
// it ends before anybody else may lead.
func TestFenceLeavesLess(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]string{
		time.Second: "6s", 4 * time.Second: "6s", 5 * time.Second: "5s", 7500 * time.Millisecond: "2.5s", 8 * time.Second: "2s",
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &answering{}
			f := newFence(clock.RealClock{}, 12*time.Second)
			sent := time.Now()
			time.Sleep(age)
			f.renew(sent) // that is how long it took
			require.NoError(t, send(t, f.wrap(server), http.MethodPatch, aWrite))
			assert.Equal(t, want, server.got[0].URL.Query().Get("timeout"))
		})
	}
}

// TestFenceWaits has a Lease given back while a write is under way.
func TestFenceWaits(t *testing.T) {
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
		resp, err := f.wrap(http.DefaultTransport).RoundTrip(r)
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
	require.Eventually(t, func() bool { return send(t, f.wrap(&answering{}), http.MethodPatch, aWrite) != nil }, time.Minute, time.Millisecond, "nothing new begins")
	select {
	case <-closed:
		require.FailNow(t, "the Lease would be given back while a write is under way")
	default:
	}
	close(answer)
	<-closed
	require.NoError(t, <-ended)
}

// TestFenceOutlastsCallers has the caller of a write go, as all do when the process is told to end. The answer is waited for,
// but not for long.
func TestFenceOutlastsCallers(t *testing.T) {
	t.Parallel()
	const lease = 12 * time.Second
	for _, tt := range []struct {
		name             string
		before           time.Duration
		took             time.Duration
		answered, begins bool
	}{
		{"the answer is on its way", time.Second, lease/12 - time.Millisecond, true, true},
		{"there is none", time.Second, lease, false, true},
		{"it was not sent yet", 0, 0, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFence(clock.RealClock{}, lease)
			f.renew(time.Now())
			ctx, cancel := context.WithCancel(t.Context())
			began := false
			transport := f.wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
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
			assert.LessOrEqual(t, time.Since(start), tt.before+lease/12, tt.name)
			if tt.begins && tt.answered {
				require.NoError(t, err, tt.name)
			} else {
				require.ErrorIs(t, err, context.Canceled, tt.name)
			}
			f.settle(t.Context())
			assert.Equal(t, tt.answered, f.settled(), tt.name)
		})
	}
}

// TestFenceSettles has writes end in many ways. Once the fence is shut it says whether any of them may still take effect.
func TestFenceSettles(t *testing.T) {
	t.Parallel()
	const lease = 12 * time.Second
	broken := errors.New("connection reset")
	for _, tt := range []struct {
		name, method string
		status       int
		err          error
		settled      bool
	}{
		{"done", http.MethodPatch, http.StatusOK, nil, true},
		{"refused for what is there", http.MethodPut, http.StatusConflict, nil, true},
		{"refused for now", http.MethodPost, http.StatusTooManyRequests, nil, true},
		{"the server's time is up", http.MethodPatch, http.StatusGatewayTimeout, nil, false},
		{"something between has no server", http.MethodDelete, http.StatusBadGateway, nil, false},
		{"etcd does not answer", http.MethodPatch, http.StatusInternalServerError, nil, false},
		{"the connection breaks", http.MethodPatch, 0, broken, false},
		{"given up", http.MethodPatch, 0, context.DeadlineExceeded, false},
		{"a read breaks", http.MethodGet, 0, broken, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFence(clock.RealClock{}, lease)
				assert.True(t, f.settled(), "it has never led")
				f.renew(time.Now())
				assert.False(t, f.settled(), "it is open")
				err := send(t, f.wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
					if tt.err != nil {
						return nil, tt.err
					}
					return &http.Response{StatusCode: tt.status, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
				})), tt.method, aWrite)
				require.ErrorIs(t, err, tt.err)
				f.settle(t.Context())
				assert.Equal(t, tt.settled, f.settled())
				time.Sleep(lease)
				assert.True(t, f.settled(), "nobody waits longer for it")
			})
		})
	}
}

// setForth is a clock that somebody sets forth; time goes by as before.
type setForth struct{ by time.Duration }

func (c *setForth) Now() time.Time                     { return time.Now().Add(c.by) }
func (c *setForth) Since(then time.Time) time.Duration { return time.Since(then) }

// TestClockThatIsSetForthEndsNoWait: others' writes, and ours at the server, know nothing of our clock.
func TestClockThatIsSetForthEndsNoWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clk := &setForth{}
		f := newFence(clk, 12*time.Second)
		f.unanswered()
		follower, lock := standing(releaseA, releaseA, releaseA, releaseA)
		follower.clock, follower.fence = clk, newFence(clk, 12*time.Second)
		lock.set(recordOf("other"))
		_, _, err := follower.Get(t.Context())
		require.NoError(t, err)

		clk.by = time.Hour
		assert.False(t, f.settled())
		require.ErrorIs(t, follower.Create(t.Context(), recordOf("me")), errOthers)
		time.Sleep(12 * time.Second)
		assert.True(t, f.settled())
		require.NoError(t, follower.Create(t.Context(), recordOf("me")))
	})
}

func TestSinceBoth(t *testing.T) {
	t.Parallel()
	then := time.Now()
	assert.Equal(t, time.Second, sinceBoth(then.Add(time.Second), then))
	slept := then.Add(time.Second).Round(0).Add(time.Hour) // a wall clock that was set forth by the time of a sleep
	assert.GreaterOrEqual(t, sinceBoth(slept, then), time.Hour)
}
