package apiserver

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

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestStartWaitsForTheServer(t *testing.T) {
	refused := &url.Error{Op: "Get", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	for _, test := range []struct {
		name  string
		err   error
		waits bool
	}{
		{"waits while the process has no role yet", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "pod", nil), true},
		{"waits while connections are refused", fmt.Errorf("discovering: %w", refused), true},
		{"waits while the server starts", apierrors.NewServiceUnavailable("starting"), true},
		{"does not wait if the server rejects the credentials", apierrors.NewUnauthorized("who are you"), false},
		{"does not wait if the certificate is invalid", errors.New("x509: unknown authority"), false},
		{"does not wait for an unknown host name", &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				err := Retry(t.Context(), func() error {
					if time.Since(begun) < 3*time.Minute {
						return test.err
					}
					return nil
				})
				if test.waits {
					require.NoError(t, err)
					assert.Less(t, time.Since(begun), 3*time.Minute+startRetry.Max)
					return
				}
				require.ErrorIs(t, err, test.err)
				assert.Zero(t, time.Since(begun))
			})
		})
	}
	t.Run("ends with the context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := Retry(ctx, func() error { return refused })
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			require.ErrorIs(t, err, ErrAway)
		})
	})
}

// TestStartLogsAReasonOnce has connections that break, each with another local port.
func TestStartLogsAReasonOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
		port := 40000
		require.NoError(t, Retry(logr.NewContext(t.Context(), log), func() error {
			if port++; port > 40005 {
				return nil
			}
			return &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: port}, Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6443}, Err: syscall.ECONNRESET}
		}))
		assert.Equal(t, []string{`"level"=0 "msg"="waiting for the API server" "error"="read tcp 10.0.0.1:6443: connection reset by peer"`}, lines)
	})
}
