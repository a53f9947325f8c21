package mirror

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/layout"
)

// retryPause is the approximate pause before another attempt.
var retryPause = backoff.Doubling{First: 500 * time.Millisecond, Max: 20 * time.Second}

// throttle adapts the number of parallel requests to the capacity of the registries. It halves the limit (width) when a registry is
// overloaded, and increases it by one after width successful requests.
type throttle struct {
	mu         sync.Mutex
	changed    chan struct{} // closed and replaced when a request may enter
	max, width int
	busy, good int
}

func newThrottle(width int) *throttle {
	return &throttle{max: width, width: width, changed: make(chan struct{})}
}

func (t *throttle) enter(ctx context.Context) error {
	for {
		t.mu.Lock()
		if t.busy < t.width {
			t.busy++
			t.mu.Unlock()
			return ctx.Err()
		}
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *throttle) leave(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	switch {
	case err == nil:
		if t.good++; t.good >= t.width && t.width < t.max {
			t.width, t.good = t.width+1, 0
		}
	case overloaded(err):
		t.width, t.good = max(1, t.width/2), 0
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// try calls do up to attempts times, until it succeeds or fails permanently. It returns the number of retries.
func (t *throttle) try(ctx context.Context, attempts int, do func(context.Context) error) (retries int, err error) {
	for retries = range attempts {
		if err := t.enter(ctx); err != nil {
			return retries, err
		}
		err = do(ctx)
		t.leave(err)
		if err == nil || final(ctx, err) || retries == attempts-1 {
			return retries, err
		}
		pause := backoff.Jitter(retryPause.After(retries+1), 0.5, rand.Float64())
		if backoff.Sleep(ctx, pause) != nil {
			return retries, err
		}
	}
	return retries, err
}

// overloaded reports whether an error means that a registry is overloaded.
func overloaded(err error) bool {
	var status *transport.Error
	return errors.As(err, &status) && (status.StatusCode == http.StatusTooManyRequests || status.StatusCode == http.StatusServiceUnavailable)
}

// final reports whether retrying is pointless.
func final(ctx context.Context, err error) bool {
	var path *fs.PathError
	var link *os.LinkError
	var status *transport.Error
	switch {
	case ctx.Err() != nil, errors.Is(err, layout.ErrUnusable), errors.As(err, &path), errors.As(err, &link):
		return true
	case errors.Is(err, failure.ErrUnauthorized), errors.Is(err, failure.ErrNotFound), errors.Is(err, failure.ErrLimit), errors.Is(err, failure.ErrIntegrity):
		return true
	case errors.As(err, &status):
		return status.StatusCode >= 400 && status.StatusCode < 500 && status.StatusCode != http.StatusTooManyRequests &&
			status.StatusCode != http.StatusRequestTimeout && status.StatusCode != http.StatusRequestedRangeNotSatisfiable
	}
	return false
}
