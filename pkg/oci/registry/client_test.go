package registry_test

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/registry"
)

func TestWebClientTrustsTheGivenCAs(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Empty(t, r.Header.Get("Authorization"))
	}))
	defer server.Close()
	own := x509.NewCertPool()
	own.AddCert(server.Certificate())
	for _, test := range []struct {
		name    string
		options registry.Options
		trusted bool
	}{
		{"it trusts the given authorities", registry.Options{Authorities: own}, true},
		{"it does not trust other authorities", registry.Options{}, false},
		{"it makes no exception for insecure registries", registry.Options{Insecure: []string{registry.AnyRegistry}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			require.NoError(t, err)
			resp, err := registry.New(test.options).WebClient().Do(req)
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			assert.Equal(t, test.trusted, err == nil, "%v", err)
		})
	}
}

func TestWebClientRetriesTransientFailures(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	require.NoError(t, err)
	resp, err := registry.New(registry.Options{Backoff: 1}).RetryingWebClient().Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, 3, asked)
}
