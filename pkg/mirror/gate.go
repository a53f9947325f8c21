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

	"github.com/cluster-version/cvo/pkg/image"
)

const (
	// firstPause is before the second attempt; every further one waits twice as long, up to maxPause.
	firstPause = 500 * time.Millisecond
	maxPause   = 20 * time.Second
)

// gate lets so many through at a time as the registries bear: when one says that this is too much the width is halved,
// and grows by one whenever as many as it is wide have gone well.
type gate struct {
	mu         sync.Mutex
	changed    chan struct{} // closed, and made anew, when there may be room
	max, width int
	busy, good int
}

func newGate(width int) *gate { return &gate{max: width, width: width, changed: make(chan struct{})} }

func (g *gate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		if g.busy < g.width {
			g.busy++
			g.mu.Unlock()
			return ctx.Err()
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gate) leave(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy--
	switch {
	case err == nil:
		if g.good++; g.good >= g.width && g.width < g.max {
			g.width, g.good = g.width+1, 0
		}
	case overloaded(err):
		g.width, g.good = max(1, g.width/2), 0
	}
	close(g.changed)
	g.changed = make(chan struct{})
}

// try does something, up to so many times as long as another time may go better. It tells how often it was done again.
func (g *gate) try(ctx context.Context, attempts int, do func(context.Context) error) (again int, err error) {
	pause := firstPause
	for again = range attempts {
		if err := g.enter(ctx); err != nil {
			return again, err
		}
		err = do(ctx)
		g.leave(err)
		if err == nil || final(ctx, err) || again == attempts-1 {
			return again, err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2)) //nolint:gosec // spreads requests, guards nothing
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return again, err
		}
		pause = min(2*pause, maxPause)
	}
	return again, err
}

// overloaded reports whether a registry wants fewer requests.
func overloaded(err error) bool {
	var status *transport.Error
	return errors.As(err, &status) && (status.StatusCode == http.StatusTooManyRequests || status.StatusCode == http.StatusServiceUnavailable)
}

// final reports whether trying again is of no use.
func final(ctx context.Context, err error) bool {
	var path *fs.PathError
	var link *os.LinkError
	var status *transport.Error
	switch {
	case ctx.Err() != nil, errors.Is(err, errFolder), errors.As(err, &path), errors.As(err, &link):
		return true
	case errors.Is(err, image.ErrUnauthorized), errors.Is(err, image.ErrNotFound), errors.Is(err, image.ErrLimit), errors.Is(err, image.ErrIntegrity):
		return true
	case errors.As(err, &status):
		return status.StatusCode >= 400 && status.StatusCode < 500 && status.StatusCode != http.StatusTooManyRequests &&
			status.StatusCode != http.StatusRequestTimeout && status.StatusCode != http.StatusRequestedRangeNotSatisfiable
	}
	return false
}
