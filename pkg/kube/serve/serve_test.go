package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/kube/certificate"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

// controlPlane is the control plane of all tests in this package.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// served is a running endpoint with an empty metrics page.
type served struct {
	*Endpoint
	url string
}

// newServed serves without a guard, and ignores the cluster's TLS profile.
func newServed(t *testing.T, options Options) *served {
	t.Helper()
	options.Listen, options.ParseProfile = "127.0.0.1:0", parseProfile
	e, err := Listen(t.Context(), clock.RealClock{}, options)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+MetricsPath, func(http.ResponseWriter, *http.Request) {})
	for _, runnable := range e.Runnables(ctx, nil, mux) {
		if _, ok := runnable.(*tlsProfile); ok {
			continue
		}
		running.Go(func() {
			if err := runnable.Start(ctx); err != nil {
				t.Errorf("serving: %v", err)
			}
		})
	}
	return &served{e, "https://" + e.Address()}
}

// parseProfile parses a TLS profile like the operator.
func parseProfile(profile *configv1.TLSSecurityProfile) (minVersion string, suites []string) {
	parsed := inject.TLSOf(profile)
	return parsed.MinVersion, parsed.CipherSuites
}

// client returns a client that trusts the endpoint's own certificate and has no credentials.
func (s *served) client(t *testing.T) *Client {
	t.Helper()
	c, err := NewClient(&rest.Config{}, s.url, Trust{Fingerprint: s.Certificate().Fingerprint()}, nil)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// ask requests the metrics.
func ask(ctx context.Context, c *Client) error {
	resp, err := c.Get(ctx, MetricsPath, "")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// writePair writes a certificate and its key like an update of a mounted Secret: sequentially, each file atomically.
func writePair(t *testing.T, dir string, certificate, key []byte) (certFile, keyFile string) {
	t.Helper()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, data := range map[string][]byte{certFile: certificate, keyFile: key} {
		temporary := fmt.Sprintf("%s.%d", file, time.Now().UnixNano())
		require.NoError(t, os.WriteFile(temporary, data, 0o600))
		require.NoError(t, os.Rename(temporary, file))
	}
	return certFile, keyFile
}

func TestEndpointServesACertificateFromFiles(t *testing.T) {
	old, next := fixture.NewIssuer(t, "old"), fixture.NewIssuer(t, "next")
	dir := t.TempDir()
	chain, key := old.Issue(t, "server", x509.ExtKeyUsageServerAuth)
	certFile, keyFile := writePair(t, dir, chain, key)
	r := newServed(t, Options{Certificate: certificate.Options{CertFile: certFile, KeyFile: keyFile}})
	reach := func(ca []byte) error {
		client, err := NewClient(&rest.Config{}, r.url, Trust{CA: ca}, nil)
		require.NoError(t, err)
		defer client.Close()
		return ask(t.Context(), client)
	}
	require.NoError(t, reach(old.Certificate))
	err := ask(t.Context(), r.client(t))
	require.NoError(t, err, "a client with the fingerprint gets the certificate for the own key")
	require.ErrorContains(t, reach(next.Certificate), "certificate signed by unknown authority")

	chain, key = next.Issue(t, "server", x509.ExtKeyUsageServerAuth)
	writePair(t, dir, chain, key)
	require.Eventually(t, func() bool { return reach(next.Certificate) == nil }, time.Minute, 20*time.Millisecond)
	require.Error(t, reach(old.Certificate))
}

func TestEndpointSwitchesToAGivenCertificate(t *testing.T) {
	dir, given := t.TempDir(), fixture.NewIssuer(t, "given")
	r := newServed(t, Options{Certificate: certificate.Options{
		CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key", Optional: true, Interval: 10 * time.Millisecond,
	}})
	err := ask(t.Context(), r.client(t))
	require.NoError(t, err, "the files are missing")
	reach := func() error {
		client, err := NewClient(&rest.Config{}, r.url, Trust{CA: given.Certificate}, nil)
		require.NoError(t, err)
		defer client.Close()
		return ask(t.Context(), client)
	}
	require.Error(t, reach())
	chain, key := given.Issue(t, "server", x509.ExtKeyUsageServerAuth)
	writePair(t, dir, chain, key)
	require.Eventually(t, func() bool { return reach() == nil }, time.Minute, 20*time.Millisecond)
	err = ask(t.Context(), r.client(t))
	require.NoError(t, err, "clients with the fingerprint from the Lease get the certificate for its key")
}

func TestListenRejectsInvalidOptions(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		text    string
	}{
		"it refuses a certificate without a key": {Options{Listen: "127.0.0.1:0", Certificate: certificate.Options{CertFile: "x"}}, "needs both"},
		"it refuses missing files":               {Options{Listen: "127.0.0.1:0", Certificate: certificate.Options{CertFile: "/x", KeyFile: "/y"}}, "reading the serving certificate"},
		"it refuses an unusable address":         {Options{Listen: "192.0.2.1:1"}, "listening for metrics and health"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Listen(t.Context(), clock.RealClock{}, c.options)
			require.ErrorContains(t, err, c.text)
		})
	}
}

// TestClientSendsCredentialsOnlyToATrustedServer checks that only the leader receives the credentials.
//
//threat:another-server-poses
func TestClientSendsCredentialsOnlyToATrustedServer(t *testing.T) {
	var shown, requests atomic.Int64
	impostor := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	impostor.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, VerifyConnection: func(s tls.ConnectionState) error {
		shown.Add(int64(len(s.PeerCertificates)))
		return nil
	}}
	impostor.StartTLS()
	defer impostor.Close()
	cfg := controlPlane.For(t).Config("test")
	cfg.BearerToken = "secret"
	for name, trust := range map[string]Trust{
		"it compares the fingerprint": {Fingerprint: strings.Repeat("x", 43)},
		"it verifies with the CA":     {CA: fixture.NewIssuer(t, "another").Certificate},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := NewClient(cfg, impostor.URL, trust, nil)
			require.NoError(t, err)
			err = ask(t.Context(), client)
			require.Error(t, err)
			if trust.Fingerprint != "" {
				require.ErrorIs(t, err, ErrUntrusted)
			}
			assert.Zero(t, shown.Load(), "no client certificate is sent")
			assert.Zero(t, requests.Load(), "no request is sent")
		})
	}
	own := impostor.Certificate()
	client, err := NewClient(cfg, impostor.URL, Trust{Fingerprint: certificate.Fingerprint(own)}, nil)
	require.NoError(t, err)
	_ = ask(t.Context(), client)
	assert.Equal(t, int64(1), shown.Load(), "a trusted server receives the client certificate")
	assert.Equal(t, int64(1), requests.Load())
}

func TestNewClientRejectsUntrustedServers(t *testing.T) {
	for name, c := range map[string]struct {
		server string
		trust  Trust
		text   string
	}{
		"it never speaks plain HTTP":       {"http://127.0.0.1:9099", Trust{Fingerprint: "x"}, "not a URL like https://"},
		"it needs a URL":                   {"127.0.0.1:9099", Trust{Fingerprint: "x"}, "not a URL like https://"},
		"it needs a trusted certificate":   {"https://127.0.0.1:9099", Trust{}, "neither a fingerprint nor a CA to trust is set"},
		"it needs a CA with a certificate": {"https://127.0.0.1:9099", Trust{CA: []byte("x")}, "contains no PEM certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewClient(&rest.Config{}, c.server, c.trust, nil)
			require.ErrorContains(t, err, c.text)
		})
	}
}

//threat:another-server-poses
func TestClientDoesNotFollowRedirects(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer server.Close()
	client, err := NewClient(controlPlane.For(t).Config("test"), server.URL, Trust{Fingerprint: certificate.Fingerprint(server.Certificate())}, nil)
	require.NoError(t, err)
	err = ask(t.Context(), client)
	require.ErrorContains(t, err, "302 Found")
	assert.Zero(t, elsewhere.Load())
}
