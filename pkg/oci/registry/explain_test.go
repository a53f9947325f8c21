package registry_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/registry"
)

// TestUnreachableRegistryIsExplained checks that the message names the registry and the remedy.
func TestUnreachableRegistryIsExplained(t *testing.T) {
	closed := listen(t, nil)
	for _, tt := range []struct {
		name, host, want string
		options          registry.Options
	}{
		{"it explains a closed port", closed, "cannot be reached: check that it is running", registry.Options{}},
		{"it explains a dead proxy", "registry.example:5000", "the proxy for registry registry.example:5000 cannot be reached", registry.Options{
			Proxy: func(*http.Request) (*url.URL, error) { return &url.URL{Scheme: "http", Host: closed}, nil },
		}},
		{"it explains a closed connection", listen(t, func(c net.Conn) { _ = c.Close() }), "closes the connection without a response: check its log", registry.Options{}},
		{"it explains a silent registry", listen(t, func(net.Conn) {}), "does not respond in time: check the load", registry.Options{Stall: 20 * time.Millisecond}},
		{"it explains an ingress whose registry is down", absent(t), "does not serve the API of a registry: check that it is running", registry.Options{}},
		{"it explains a server error", broken(t), "reports a server error: check its log", registry.Options{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.options.Backoff = time.Millisecond
			access := registry.New(tt.options)
			for _, pullspec := range []string{tt.host + "/a/b:1", tt.host + "/a/b@sha256:" + strings.Repeat("0", 64)} {
				ref, err := access.Reference(pullspec)
				require.NoError(t, err)
				_, err = remote.Get(ref, append(access.Remote(), remote.WithContext(t.Context()))...)
				require.Error(t, err)
				assert.False(t, failure.IsNotFound(err))
				err = failure.Explain("resolving", ref, err)
				var inaccessible *failure.AccessError
				require.ErrorAs(t, err, &inaccessible)
				require.ErrorContains(t, err, "registry "+tt.host)
				require.ErrorContains(t, err, tt.want)
				require.NotErrorIs(t, err, failure.ErrNotFound)

				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_, err = remote.Get(ref, append(access.Remote(), remote.WithContext(ctx))...)
				assert.NotContains(t, failure.Explain("resolving", ref, err).Error(), "registry "+tt.host, "a canceled request is not explained")
			}
		})
	}
}

// listen returns the address of a server that runs serve for each connection. If serve is nil, nothing listens there.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if serve == nil {
		require.NoError(t, listener.Close())
		return listener.Addr().String()
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = connection.Close() })
			serve(connection)
		}
	}()
	return listener.Addr().String()
}

func broken(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) }))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// absent returns the address of a server that is no registry.
func absent(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
