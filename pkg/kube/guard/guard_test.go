package guard

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

// controlPlane is the control plane of all tests in this package.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// guarded is a server behind a guard that counts the guard's requests to the API server.
type guarded struct {
	url      string
	clock    *testingclock.FakePassiveClock
	requests atomic.Int64
}

// newGuarded serves a page behind a guard.
func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{clock: testingclock.NewFakePassiveClock(time.Now().Add(time.Minute))} // the clock stands still, and certificates are issued later
	cfg := controlPlane.For(t).Config("operator-test")
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			g.requests.Add(1)
			return next.RoundTrip(req)
		})
	})
	httpClient, err := rest.HTTPClientFor(cfg)
	require.NoError(t, err)
	guard, err := New(g.clock, cfg, httpClient, nil)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(guard.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	g.url = server.URL + "/page"
	return g
}

// get returns the status of the response to a user with these credentials.
func (g *guarded) get(t *testing.T, cfg *rest.Config) int {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.Insecure, cfg.CAData, cfg.CAFile = true, nil, ""
	client, err := rest.HTTPClientFor(cfg)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url, http.NoBody)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

func TestGuardRejectsServerCertificates(t *testing.T) {
	g := newGuarded(t)
	other := fixture.NewIssuer(t, "later trusted")
	certificate, key := other.Issue(t, "vera", x509.ExtKeyUsageServerAuth)
	trustClientCA(t, other)
	cfg := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: certificate, KeyData: key}}
	assert.Equal(t, http.StatusUnauthorized, g.get(t, cfg))
}

// trustClientCA makes the cluster publish a second client CA, as during a rotation. The API server that publishes the ConfigMap keeps the
// entries of other writers.
func trustClientCA(t *testing.T, a fixture.Issuer) {
	t.Helper()
	configMaps := kubernetes.NewForConfigOrDie(controlPlane.For(t).Config("test")).CoreV1().ConfigMaps(clientCANamespace)
	require.Eventually(t, func() bool {
		published, err := configMaps.Get(t.Context(), clientCAName, metav1.GetOptions{})
		if err != nil {
			return false
		}
		published.Data[clientCAKey] += string(a.Certificate)
		_, err = configMaps.Update(t.Context(), published, metav1.UpdateOptions{})
		return err == nil
	}, time.Minute, 20*time.Millisecond)
}

func TestGuardFollowsTheClientCA(t *testing.T) {
	g := newGuarded(t)
	next := fixture.NewIssuer(t, "next")
	newcomer := next.ClientConfig(t, "newcomer")
	assert.Equal(t, http.StatusUnauthorized, g.get(t, newcomer))

	trustClientCA(t, next)
	assert.Equal(t, http.StatusUnauthorized, g.get(t, newcomer), "the client CA is not read for every caller")
	before := g.requests.Load()
	g.clock.SetTime(g.clock.Now().Add(clientCAEvery))
	assert.Equal(t, http.StatusOK, g.get(t, newcomer), "the client CA is read again later")
	assert.Equal(t, int64(2), g.requests.Load()-before, "one read of the client CA and one access review")
}

func TestGuardCachesAnswersForAWhile(t *testing.T) {
	g := newGuarded(t)
	garbage := &rest.Config{BearerToken: "garbage"}
	for range 3 {
		assert.Equal(t, http.StatusUnauthorized, g.get(t, garbage))
	}
	assert.Equal(t, int64(1), g.requests.Load(), "a token is reviewed only once")
	g.clock.SetTime(g.clock.Now().Add(remembered + time.Second))
	assert.Equal(t, http.StatusUnauthorized, g.get(t, garbage))
	assert.Equal(t, int64(2), g.requests.Load(), "a token is reviewed again later")

	admin := controlPlane.For(t).Config("test")
	for range 3 {
		assert.Equal(t, http.StatusOK, g.get(t, admin))
	}
	assert.Equal(t, int64(4), g.requests.Load(), "the client CA is read once, and the access is reviewed once")
}

func TestGuardBoundsItsCache(t *testing.T) {
	r := newReviews(clock.RealClock{})
	for i := range 3 * maxRemembered {
		r.cache.Add(i, true, time.Minute)
	}
	assert.Len(t, r.cache.Keys(), maxRemembered)
}

// TestGuardDoesNotAdmitUncheckedCallers checks that without the API server callers get neither access nor status 401.
//
//threat:stranger-connects-operator
func TestGuardDoesNotAdmitUncheckedCallers(t *testing.T) {
	cfg := &rest.Config{Host: "https://127.0.0.1:1"}
	guard, err := New(clock.RealClock{}, cfg, &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })}, nil)
	require.NoError(t, err)
	handler := guard.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("served") }))
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/page", nil)
	req.Header.Set("Authorization", "bearer anything")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.NotContains(t, w.Body.String(), "127.0.0.1", "details of the cluster are only logged")
}
