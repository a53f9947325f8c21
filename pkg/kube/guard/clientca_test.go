package guard

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// silentConfigMaps responds only after a signal.
type silentConfigMaps struct {
	answer chan struct{}
	asked  int
}

func (s *silentConfigMaps) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*corev1.ConfigMap, error) {
	s.asked++
	select {
	case <-s.answer:
		return &corev1.ConfigMap{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestClientCAIsReadOnceForAllCallers cancels the first of two callers while their shared read continues.
func TestClientCAIsReadOnceForAllCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		configMaps := &silentConfigMaps{answer: make(chan struct{})}
		c := &clientCA{clock: clock.RealClock{}, configMaps: configMaps}
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { _, err := c.roots(ctx); first <- err }()
		synctest.Wait()
		go func() { _, err := c.roots(t.Context()); second <- err }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
		close(configMaps.answer)
		require.NoError(t, <-second)
		assert.Equal(t, 1, configMaps.asked)
	})
}

// TestClientCAReadEndsWithItsDeadline checks that a read ends with the caller's deadline and with its own.
func TestClientCAReadEndsWithItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		configMaps := &silentConfigMaps{answer: make(chan struct{})}
		c := &clientCA{clock: clock.RealClock{}, configMaps: configMaps}
		for range 2 {
			_, err := c.roots(t.Context())
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		assert.Equal(t, 2, configMaps.asked)
	})
}
