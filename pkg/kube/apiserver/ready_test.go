package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// TestTextAboutAnExpiredCertificateIsStable has a certificate that was valid for an hour. The text of crypto/x509 has the current time.
func TestTextAboutAnExpiredCertificateIsStable(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	begin := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"example.com"}, IsCA: true, BasicConstraintsValid: true, NotBefore: begin, NotAfter: begin.Add(time.Hour),
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}}
	server.StartTLS()
	defer server.Close()
	cfg := &rest.Config{Host: "https://example.com", TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}),
	}}
	require.EqualError(t, Ready(t.Context(), cfg, strings.TrimPrefix(server.URL, "https://")),
		"x509: certificate has expired or is not yet valid: it is valid from 2020-01-01T00:00:00Z to 2020-01-01T01:00:00Z")
}

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
