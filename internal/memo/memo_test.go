package memo_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/internal/memo"
)

func TestReadReplacesAResultThatIsDue(t *testing.T) {
	var last memo.Last[int]
	next := func(_ context.Context, last int) int { return last + 1 }
	for _, tt := range []struct {
		due  bool
		want int
	}{{true, 1}, {false, 1}, {true, 2}} {
		got, err := last.Read(t.Context(), time.Minute, func(int) bool { return tt.due }, next)
		require.NoError(t, err)
		assert.Equal(t, tt.want, got)
		assert.Equal(t, tt.want, last.Value())
	}
}

// TestReadIsShared cancels the first of two callers while their read continues.
func TestReadIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last memo.Last[int]
		reads := 0
		read := func(ctx context.Context) (int, error) {
			return last.Read(ctx, time.Minute, func(n int) bool { return n == 0 }, func(ctx context.Context, _ int) int {
				reads++
				time.Sleep(time.Second)
				require.NoError(t, ctx.Err())
				return 1
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { _, err := read(ctx); first <- err }()
		synctest.Wait()
		go func() { _, err := read(t.Context()); second <- err }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
		assert.Zero(t, last.Value())
		require.NoError(t, <-second)
		assert.Equal(t, 1, reads)
	})
}

func TestReadEndsAfterItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last memo.Last[error]
		start := time.Now()
		got, err := last.Read(t.Context(), time.Minute, func(err error) bool { return err == nil }, func(ctx context.Context, _ error) error {
			<-ctx.Done()
			return ctx.Err()
		})
		require.NoError(t, err)
		require.ErrorIs(t, got, context.DeadlineExceeded)
		assert.Equal(t, time.Minute, time.Since(start))
	})
}
