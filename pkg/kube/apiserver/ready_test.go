package apiserver

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

func TestReadyReportsFailedChecks(t *testing.T) {
	status, answer := http.StatusOK, "ok"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/readyz", r.URL.Path)
		assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	// The certificate is valid for example.com and 127.0.0.1.
	address := strings.TrimPrefix(server.URL, "https://")
	cfg := &rest.Config{Host: "https://example.com", BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}}

	require.NoError(t, Ready(t.Context(), cfg, address))
	status, answer = http.StatusInternalServerError, "[+]ping ok\n[-]etcd failed: reason withheld\n[-]informer-sync failed: reason withheld\nreadyz check failed\n"
	require.EqualError(t, Ready(t.Context(), cfg, address), "/readyz answers 500: etcd, informer-sync failed")
	status, answer = http.StatusUnauthorized, "{}"
	require.EqualError(t, Ready(t.Context(), cfg, address), "/readyz answers 401")

	other := rest.CopyConfig(cfg)
	other.Host = "https://other.test"
	require.ErrorContains(t, Ready(t.Context(), other, address), "not other.test")

	cfg.Host = server.URL
	status = http.StatusOK
	require.NoError(t, Ready(t.Context(), cfg, ""))
	server.Close()
	require.EqualError(t, Ready(t.Context(), cfg, ""), "connect: connection refused")
}
