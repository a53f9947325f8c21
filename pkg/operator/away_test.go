package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

func TestAServerThatIsAwayIsWaitedFor(t *testing.T) {
	refused := &url.Error{Op: "Get", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	for _, test := range []struct {
		name  string
		err   error
		waits bool
	}{
		{"waits while connections are refused", fmt.Errorf("discovering: %w", refused), true},
		{"waits while it starts", apierrors.NewServiceUnavailable("starting"), true},
		{"does not wait where it is not let in", apierrors.NewUnauthorized("who are you"), false},
		{"does not wait for another certificate", errors.New("x509: unknown authority"), false},
		{"does not wait for a name that nobody has", &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				require.NoError(t, awaitServer(t.Context(), clock.RealClock{}, func() error {
					if time.Since(begun) < 3*time.Minute {
						return test.err
					}
					return nil
				}))
				assert.Equal(t, test.waits, time.Since(begun) >= 3*time.Minute)
			})
		})
	}
	t.Run("ends when it shall", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.ErrorIs(t, awaitServer(ctx, clock.RealClock{}, func() error { return refused }), syscall.ECONNREFUSED)
		})
	})
}
