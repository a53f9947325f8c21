// Package backoff computes the delays between attempts that fail in a row, and waits for them. It takes a number of failures
// and returns a delay. It keeps no state: the caller counts its failures, decides which errors are worth another attempt, and
// starts again at zero after a success.
package backoff

import (
	"context"
	"time"
)

// maxDoublings is how often a delay doubles at most. Even a delay of an hour does not overflow then.
const maxDoublings = 20

// Doubling is a delay that doubles with each failure in a row.
type Doubling struct {
	// First is the delay after the first failure.
	First time.Duration
	// Max is the longest delay; zero means that only the number of attempts bounds it.
	Max time.Duration
}

// After returns the delay after a number of failures in a row, zero after none.
func (d Doubling) After(failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	delay := d.First << min(failures-1, maxDoublings)
	if d.Max > 0 {
		delay = min(delay, d.Max)
	}
	return delay
}

// Jitter returns delay changed by at most the given share in either direction, so that clients that failed together do not
// retry together. random is a number from zero up to, but not including, one.
func Jitter(delay time.Duration, share, random float64) time.Duration {
	return delay + time.Duration((2*random-1)*share*float64(delay))
}

// Sleep waits for a delay. It returns the cause if ctx ends first.
func Sleep(ctx context.Context, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return context.Cause(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
