package failure_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// A registry may also deny access to a request without credentials. Its token looks like that of an account, so the text must fit both.
func TestDeniedAccessDoesNotClaimThatCredentialsWereAccepted(t *testing.T) {
	ref, err := name.ParseReference("registry.example/platform/release:1.0.0")
	require.NoError(t, err)
	for _, authorization := range []string{"", "Bearer anonymous", "Basic bWU6c2VjcmV0"} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://registry.example/v2/", http.NoBody)
		request.Header.Set("Authorization", authorization)
		err := failure.Explain("reading", ref, &transport.Error{StatusCode: http.StatusForbidden, Request: request})
		require.ErrorIs(t, err, failure.ErrUnauthorized)
		require.ErrorContains(t, err, "reading registry.example/platform/release:1.0.0: unauthorized: registry registry.example denies access to platform/release: "+
			"grant access to the account in the pull secret, or use another account: ")
		assert.NotContains(t, err.Error(), "credentials")
	}
}

// TestRedirectWithoutTLSDoesNotBlameTheRegistry has a registry with TLS that redirects to a server without TLS.
func TestRedirectWithoutTLSDoesNotBlameTheRegistry(t *testing.T) {
	ref := name.MustParseReference("registry.example/a:b")
	err := failure.Explain("reading", ref, &url.Error{Op: "Get", URL: "http://storage.example/x", Err: fmt.Errorf("storage.example %w", failure.ErrWithoutTLS)})
	require.EqualError(t, err, "reading registry.example/a:b: registry registry.example refers to a server without TLS: add that server to the insecure registries, "+
		`or give it a certificate: Get "http://storage.example/x": storage.example would be contacted without TLS`)
	explained, ok := errors.AsType[*failure.AccessError](err)
	require.True(t, ok)
	assert.False(t, explained.WithoutTLS)
}

// TestProxyWithoutTLSIsExplained has a proxy with an https address that speaks plain HTTP, and the attempt of the library without TLS.
func TestProxyWithoutTLSIsExplained(t *testing.T) {
	proxy := &url.Error{Op: "Get", URL: "https://10.0.0.1/v2/", Err: &net.OpError{Op: "proxyconnect", Err: tls.RecordHeaderError{Msg: "no TLS"}}}
	plain := &url.Error{Op: "Get", URL: "http://10.0.0.1/v2/", Err: fmt.Errorf("10.0.0.1 %w", failure.ErrWithoutTLS)}
	err := failure.Explain("reading", name.MustParseReference("10.0.0.1/a:b"), errors.Join(proxy, plain))
	require.ErrorContains(t, err, "the proxy for registry 10.0.0.1 cannot be reached")
}

func TestStableTextHasNoLocalPort(t *testing.T) {
	connection := &net.OpError{
		Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 40001}, Addr: &net.TCPAddr{Port: 443}, Err: syscall.ECONNRESET,
	}
	err := &failure.AccessError{Explanation: "registry a.example cannot be reached", Err: &url.Error{Op: "Get", URL: "https://a.example", Err: connection}}
	assert.Equal(t, "registry a.example cannot be reached: read tcp: connection reset by peer", failure.StableText(err))
}
