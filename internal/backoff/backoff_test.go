package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/internal/backoff"
)

func TestDelayDoublesUpToItsMaximum(t *testing.T) {
	delay := backoff.Doubling{First: 2 * time.Second, Max: 30 * time.Second}
	for failures, want := range map[int]time.Duration{
		-1: 0, 0: 0, 1: 2 * time.Second, 2: 4 * time.Second, 4: 16 * time.Second, 5: 30 * time.Second, 1000: 30 * time.Second,
	} {
		assert.Equal(t, want, delay.After(failures), "after %d failures", failures)
	}
}

func TestDelayWithoutMaximumStaysPositive(t *testing.T) {
	delay := backoff.Doubling{First: time.Hour}
	assert.Equal(t, 16*time.Hour, delay.After(5))
	assert.Positive(t, delay.After(1<<40))
}

func TestJitterStaysWithinItsShare(t *testing.T) {
	assert.Equal(t, 8*time.Second, backoff.Jitter(10*time.Second, 0.2, 0))
	assert.Equal(t, 10*time.Second, backoff.Jitter(10*time.Second, 0.2, 0.5))
	assert.Less(t, backoff.Jitter(10*time.Second, 0.2, 0.999), 12*time.Second)
}

func TestSleepEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		require.NoError(t, backoff.Sleep(t.Context(), time.Minute))
		assert.Equal(t, time.Minute, time.Since(started))

		cause := errors.New("the operator ends")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		require.ErrorIs(t, backoff.Sleep(ctx, time.Minute), cause)
		assert.Equal(t, time.Minute+time.Second, time.Since(started))
	})
}
