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

// TestMissingContentIsNotConfusedWithAMissingServer checks which responses with status 404 mean that the registry lacks the content.
func TestMissingContentIsNotConfusedWithAMissingServer(t *testing.T) {
	request := func(method, url string) *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		require.NoError(t, err)
		return req
	}
	redirected := request(http.MethodGet, "https://storage.example/7f83b1")
	redirected.Response = &http.Response{Request: request(http.MethodGet, "https://registry.example/v2/platform/release/blobs/sha256:7f83b1")}
	ref, err := name.ParseReference("registry.example/platform/release:1.0.0")
	require.NoError(t, err)
	for _, tt := range []struct {
		name    string
		request *http.Request
		missing string // part of the explanation; empty for missing content
	}{
		{"a manifest is content", request(http.MethodGet, "https://registry.example/v2/platform/release/manifests/1.0.0"), ""},
		{"a list of tags is content", request(http.MethodGet, "https://registry.example/v2/release/tags/list"), ""},
		{"a list of referrers is content", request(http.MethodGet, "https://registry.example/v2/release/referrers/sha256:7f83b1"), ""},
		{"a redirected blob is content", redirected, ""},
		{"an error without a request is content", nil, ""},
		{"the first request is none", request(http.MethodGet, "https://registry.example/v2/"), "does not serve the API of a registry"},
		{"a token is none", request(http.MethodGet, "https://auth.example/token?service=registry.example&scope=repository:release:pull"), "does not serve the API of a registry"},
		{"a token below the API is none", request(http.MethodGet, "https://registry.example/v2/auth"), "does not serve the API of a registry"},
		{"an upload is none", request(http.MethodPost, "https://registry.example/v2/release/blobs/uploads/"), "create the repository"},
		{"an upload elsewhere is none", request(http.MethodPatch, "https://registry.example/uploads/1"), "run the command again"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status := &transport.Error{StatusCode: http.StatusNotFound, Request: tt.request}
			assert.Equal(t, tt.missing == "", failure.IsNotFound(status))
			explained := failure.Explain("reading", ref, status)
			assert.Equal(t, tt.missing == "", errors.Is(explained, failure.ErrNotFound))
			assert.ErrorContains(t, explained, tt.missing)
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
