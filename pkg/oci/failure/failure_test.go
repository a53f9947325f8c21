package failure_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/oci/failure"
)

func TestErrorsAreClassified(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, tt := range []struct {
		name                          string
		err                           error
		transient, slow, noConnection bool
	}{
		{"it retries a reset connection", syscall.ECONNRESET, true, false, false},
		{"it retries a truncated response", io.ErrUnexpectedEOF, true, false, false},
		{"it retries a refused connection", dial(syscall.ECONNREFUSED), true, false, true},
		{"it retries a stalled transfer", fmt.Errorf("a.example: %w for 1m", failure.ErrStalled), true, true, true},
		{"it retries a timeout", dial(os.ErrDeadlineExceeded), true, true, true},
		{"it retries a failing name server", &net.DNSError{IsTemporary: true}, true, false, false},
		{"it does not retry an unknown name", &net.DNSError{IsNotFound: true}, false, false, false},
		{"it does not retry a missing certificate", &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, false, false, false},
		{"it does not retry plain HTTP", tls.RecordHeaderError{Msg: "not TLS"}, false, false, false},
		{"it does not retry a connection without TLS", failure.ErrWithoutTLS, false, false, false},
		{"it does not retry an oversized response", failure.ErrLimit, false, false, false},
		{"it does not retry after the caller canceled", context.Canceled, false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.transient, failure.IsTransient(tt.err))
			assert.Equal(t, tt.slow, failure.IsSlow(tt.err))
			assert.Equal(t, tt.noConnection, failure.NoConnection(tt.err))
		})
	}
}

func TestStableTextHasNoLocalPort(t *testing.T) {
	connection := &net.OpError{
		Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 40001}, Addr: &net.TCPAddr{Port: 443}, Err: syscall.ECONNRESET,
	}
	err := &failure.AccessError{Explanation: "registry a.example cannot be reached", Err: &url.Error{Op: "Get", URL: "https://a.example", Err: connection}}
	assert.Equal(t, "registry a.example cannot be reached: read tcp: connection reset by peer", failure.StableText(err))
}
