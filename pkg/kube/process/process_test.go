package process

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// testWork is background work with one part, the rollout.
type testWork struct{ ended chan struct{} }

func (w *testWork) Wait() { <-w.ended }

func (w *testWork) Running() []string {
	select {
	case <-w.ended:
		return nil
	default:
		return []string{"rollout"}
	}
}

// testCandidate takes part in the election once elects is set.
type testCandidate struct {
	elects, resigned atomic.Bool
	// resigns is the time that it needs to resign.
	resigns time.Duration
}

func (c *testCandidate) Withdraw() bool { return !c.elects.Load() }

func (c *testCandidate) Resign(ctx context.Context) {
	c.resigned.Store(ctx.Err() == nil)
	time.Sleep(c.resigns)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestProcessEndsWithinTheLimit(t *testing.T) {
	t.Parallel()
	lost := errors.New("leader election lost")
	for _, tt := range []struct {
		name string
		// elects is true if the process takes part in the election.
		elects bool
		// manager and work are the times that the manager and the background work need to end, and resigns is the time to release the Lease.
		manager, work, resigns time.Duration
		// fails is the time after which the manager fails by itself; zero means never.
		fails time.Duration
		took  time.Duration
		err   error
		names string
	}{
		{name: "ends when everything has ended", elects: true, manager: 2 * time.Second, work: time.Second, took: 2 * time.Second},
		{name: "waits for background work", elects: true, manager: time.Second, work: 3 * time.Second, took: 3 * time.Second},
		{name: "gives up if the manager hangs", elects: true, manager: time.Hour, took: EndLimit, err: ErrNotEnded, names: "manager"},
		{name: "gives up if background work hangs", elects: true, work: time.Hour, took: EndLimit, err: ErrNotEnded, names: "rollout"},
		{name: "gives up if both hang", elects: true, manager: time.Hour, work: time.Hour, took: EndLimit, err: ErrNotEnded, names: "rollout, manager"},
		{name: "ends if the Lease is lost", elects: true, fails: time.Minute, work: time.Second, took: time.Second, err: lost},
		{name: "gives up if background work hangs after the Lease is lost", elects: true, fails: time.Minute, work: time.Hour, took: EndLimit, err: lost, names: "rollout"},
		{name: "ends background work while it resigns", elects: true, fails: time.Minute, work: 8 * time.Second, resigns: 4 * time.Second, took: 8 * time.Second, err: lost},
		{name: "ends immediately before the election", manager: time.Hour, work: 0, took: 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var logged string
				log := funcr.New(func(_, args string) { logged += args }, funcr.Options{})
				ctx, signal := context.WithCancel(t.Context())
				managed, stop := context.WithCancel(t.Context())
				background, stopBackground := context.WithCancel(t.Context())
				work := &testWork{ended: make(chan struct{})}
				go func() {
					defer close(work.ended)
					<-background.Done()
					time.Sleep(tt.work)
				}()
				c := &testCandidate{resigns: tt.resigns}
				p := &Process{
					Start: func() error {
						if tt.elects {
							c.elects.Store(true)
						}
						if tt.fails > 0 {
							time.Sleep(tt.fails)
							return lost
						}
						<-managed.Done()
						time.Sleep(tt.manager)
						return nil
					},
					Stop: stop, Candidate: c, Background: work, StopBackground: stopBackground, Log: log,
				}
				time.AfterFunc(time.Minute, signal)
				began := time.Now()
				err := p.Run(ctx)
				assert.Equal(t, time.Minute+tt.took, time.Since(began))
				require.ErrorIs(t, err, tt.err)
				if tt.names != "" {
					require.ErrorIs(t, err, ErrNotEnded)
					require.ErrorContains(t, err, ": "+tt.names+": still running after 10s")
					assert.Contains(t, logged, "goroutine", "the log contains the stacks of running goroutines")
				}
				assert.Equal(t, tt.elects && tt.manager < EndLimit, c.resigned.Load(), "the process resigns after the election")
				assert.Equal(t, tt.elects, managed.Err() != nil, "a manager that has not started is not stopped")
				stop()
				stopBackground()
				time.Sleep(2 * time.Hour) // lets the hanging parts end, so that the test can end
			})
		})
	}
}

// TestHangingMapperEndsWithTheProcess uses an API server that does not respond to the mapper's request.
func TestHangingMapperEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		hanging := roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		mapper, err := MapperUntil(ctx)(&rest.Config{Host: "https://server"}, &http.Client{Transport: hanging})
		require.NoError(t, err)
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		_, err = mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Unserved"}, "v1")
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Second, time.Since(began))
	})
}
