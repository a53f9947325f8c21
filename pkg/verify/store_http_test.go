package verify_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/test/fixture/authority"
)

// impatient opens a store that waits for nothing, and returns how long it would have waited.
func impatient(t *testing.T, rawURL string) (store verify.Store, pauses func() []time.Duration) {
	t.Helper()
	store, err := verify.OpenStore(rawURL, nil)
	require.NoError(t, err)
	var mu sync.Mutex
	var waited []time.Duration
	store = verify.WithoutPauses(store, func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		waited = append(waited, d)
	})
	return store, func() []time.Duration { return waited }
}

func TestHTTPStoreTriesAgain(t *testing.T) {
	status := func(code int, header ...string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
		}
	}
	text := func(w http.ResponseWriter) { _, _ = w.Write([]byte("a")) }
	cut := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("only this"))
		panic(http.ErrAbortHandler)
	}
	for _, test := range []struct {
		name string
		// first are the answers for signature-1; there is no signature-2.
		first  []func(w http.ResponseWriter)
		want   []string
		pauses []time.Duration
	}{
		{
			"asks again while a server is overloaded, after the time it asks for",
			[]func(http.ResponseWriter){status(429, "Retry-After", "7"), status(503, "Retry-After", "2"), text},
			[]string{"signature-1=a"},
			[]time.Duration{7 * time.Second, 2 * time.Second},
		},
		{
			"waits twice as long every time if the server does not say",
			[]func(http.ResponseWriter){status(502), status(504), text},
			[]string{"signature-1=a"},
			[]time.Duration{200 * time.Millisecond, 400 * time.Millisecond},
		},
		{
			"gives up after the third answer",
			[]func(http.ResponseWriter){status(500), status(500), status(500), text},
			[]string{"error: signature-1: the server answered 500 Internal Server Error"},
			[]time.Duration{200 * time.Millisecond, 400 * time.Millisecond},
		},
		{
			"asks again when the connection breaks",
			[]func(http.ResponseWriter){cut, text},
			[]string{"signature-1=a"},
			[]time.Duration{200 * time.Millisecond},
		},
		{
			"takes a refusal as it is",
			[]func(http.ResponseWriter){status(403)},
			[]string{"error: signature-1: the server answered 403 Forbidden"},
			nil,
		},
		{
			"takes an odd Retry-After for none",
			[]func(http.ResponseWriter){status(503, "Retry-After", "-5"), text},
			[]string{"signature-1=a"},
			[]time.Duration{200 * time.Millisecond},
		},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			var asked atomic.Int32
			server := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
				if n > 1 {
					http.NotFound(w, r)
					return
				}
				test.first[asked.Add(1)-1](w)
			})
			store, pauses := impatient(t, server.URL+"/signatures")
			assert.Equal(t, test.want, collect(t, store))
			assert.Equal(t, test.pauses, pauses())
		})
	}
}

func TestHTTPStoreHasFewRepetitions(t *testing.T) {
	var asked atomic.Int32
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		asked.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	store, pauses := impatient(t, server.URL+"/signatures")
	assert.Len(t, collect(t, store), 9)
	assert.Len(t, pauses(), 4)
	assert.EqualValues(t, 9+4, asked.Load())
}

func TestHTTPStoreDoesNotWaitBeyondItsTime(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", newEntity(t, "alice"))}, Stores: []string{server.URL + "/signatures"}}
	_, err := newVerifier(t, policy, verify.Sources{StoreTimeout: time.Minute}).Verify(t.Context(), image())
	require.ErrorIs(t, err, verify.ErrUnverified)
	assert.ErrorContains(t, err, "signature-1: the server answered 429 Too Many Requests and asks to come back after 1h0m0s")
}

func TestUnreachableServerIsAskedForOneSignature(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close()) // Nobody listens there now.
	store, pauses := impatient(t, "http://"+listener.Addr().String())
	assert.Equal(t, []string{"error: signature-1: dial tcp " + listener.Addr().String() + ": connect: connection refused"}, collect(t, store))
	assert.Len(t, pauses(), 2)
	for _, err := range store.Signatures(t.Context(), digest) {
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
}

func TestHTTPStoreAsksForNoMoreThanItNeeds(t *testing.T) {
	for have, requests := range map[int]int32{0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 8: 9, 9: 9} {
		t.Run(fmt.Sprintf("it sends %d requests for %d signatures", requests, have), func(t *testing.T) {
			var asked atomic.Int32
			server := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
				asked.Add(1)
				if n > have {
					http.NotFound(w, r)
					return
				}
				_, _ = fmt.Fprint(w, n)
			})
			store, err := verify.OpenStore(server.URL+"/signatures", nil)
			require.NoError(t, err)
			var want []string
			for n := 1; n <= have; n++ {
				want = append(want, fmt.Sprintf("signature-%d=%d", n, n))
			}
			assert.Equal(t, want, collect(t, store))
			assert.Equal(t, requests, asked.Load())
		})
	}
}

// The third and fourth signature are asked for together: each answer comes only after both requests have.
func TestHTTPStoreLooksAhead(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	server := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
		switch n {
		case 3, 4:
			both.Done()
			both.Wait()
		case 5:
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprint(w, n)
	})
	store, err := verify.OpenStore(server.URL+"/signatures", nil)
	require.NoError(t, err)
	got := collect(t, store)
	assert.Equal(t, []string{"signature-1=1", "signature-2=2", "signature-3=3", "signature-4=4"}, got)
}

func TestHTTPStoreBelievesALengthThatIsTooLarge(t *testing.T) {
	var written atomic.Int64
	server := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(1<<30))
		for {
			n, err := w.Write(make([]byte, 32<<10))
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	store, err := verify.OpenStore(server.URL+"/signatures", nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"error: signature-1: larger than 51200 bytes"}, collect(t, store))
	server.Close()
	assert.Less(t, written.Load(), int64(1<<30))
}

func TestCompressedAnswerIsBoundedAsItUnpacks(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(gzipped(t, bytes.Repeat([]byte{0}, 32<<20)))
	})
	store, err := verify.OpenStore(server.URL+"/signatures", nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"error: signature-1: larger than 51200 bytes"}, collect(t, store))
}

func TestDrippingStoreHasItsTimeAndNoMore(t *testing.T) {
	slow := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte{0x90})
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", newEntity(t, "alice"))}, Stores: []string{slow.URL + "/signatures"}}
	_, err := newVerifier(t, policy, verify.Sources{StoreTimeout: 100 * time.Millisecond}).Verify(t.Context(), image())
	require.ErrorIs(t, err, verify.ErrUnverified)
	assert.ErrorContains(t, err, "no answer within 100ms")
}

func TestSecretsOfAStoreStayOut(t *testing.T) {
	var query, password string
	server := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			http.NotFound(w, r)
			return
		}
		query = r.URL.Query().Get("token")
		_, password, _ = r.BasicAuth()
		_, _ = w.Write([]byte("a"))
	})
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	u.User, u.Path, u.RawQuery = url.UserPassword("me", "secret"), "/signatures", "token=hidden"
	store, err := verify.OpenStore(u.String(), nil)
	require.NoError(t, err)
	for sig, err := range store.Signatures(t.Context(), digest) {
		require.NoError(t, err)
		for _, text := range []string{sig.Location, store.String()} {
			assert.NotContains(t, text, "secret")
			assert.NotContains(t, text, "hidden")
		}
	}
	assert.Equal(t, "hidden", query, "the query is sent")
	assert.Equal(t, "secret", password, "the password is sent")
}

func TestStoreBehindAProxy(t *testing.T) {
	var through atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host != "signatures.example" {
			http.Error(w, "", http.StatusTeapot)
			return
		}
		if through.Add(1) > 1 {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("a"))
	}))
	t.Cleanup(proxy.Close)
	at, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	store, err := verify.OpenStore("http://signatures.example/x", &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at)}})
	require.NoError(t, err)
	assert.Equal(t, []string{"signature-1=a"}, collect(t, store))
}

func certificate(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func TestClusterStores(t *testing.T) {
	secure := func() *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/signature-1") {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write([]byte("a"))
		}))
		s.Config.ErrorLog = discardLog()
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	server := secure()
	plain := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("p"))
	})
	maps := map[string]map[string]string{
		"good":   {"ca.crt": certificate(server)},
		"bundle": {"ca-bundle.crt": certificate(server)},
		"keys":   {"other": certificate(server)},
		"noise":  {"ca.crt": "noise"},
		"other":  {"ca.crt": otherCA(t)},
	}
	read := func(_ context.Context, name string) (map[string]string, error) {
		if data, ok := maps[name]; ok {
			return data, nil
		}
		return nil, errors.New("not found")
	}
	unused := "error: the store is not asked, because its ca, ConfigMap openshift-config/%s, cannot be used: %s"
	for _, test := range []struct {
		name, url, ca string
		client        *http.Client
		want          string
	}{
		{"trusts the store's ca", server.URL, "good", nil, "signature-1=a"},
		{"finds the certificates under the other key", server.URL, "bundle", nil, "signature-1=a"},
		{"trusts nobody else then, not even whom the client trusts", server.URL, "other", server.Client(), "certificate signed by unknown authority"},
		{"does not trust a private authority without ca", server.URL, "", nil, "certificate signed by unknown authority"},
		{"leaves out a store whose ca is not there", server.URL, "missing", server.Client(), fmt.Sprintf(unused, "missing", "not found")},
		{"leaves out a store whose ca lacks the key", server.URL, "keys", server.Client(), fmt.Sprintf(unused, "keys", "it has no key ca.crt")},
		{"leaves out a store whose ca is no certificate", server.URL, "noise", server.Client(), fmt.Sprintf(unused, "noise", "it holds no PEM certificate")},
		{"cannot give certificates to any transport", server.URL, "good", &http.Client{Transport: transportFunc(nil)}, "certificates cannot be given to a verify_test.transportFunc"},
		{"reads from plain HTTP", plain.URL + "/signatures", "", nil, "signature-1=p"},
		{"reads no files", "file:///etc", "", nil, "error: the URL of a store begins with https:// or http:// and a host"},
		{"refuses what is no URL", "https://[::1", "", nil, `error: reading the URL "https://[::1"`},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			stores := verify.ClusterStores([]configv1.SignatureStore{{URL: test.url, CA: configv1.ConfigMapNameReference{Name: test.ca}}}, test.client, read)
			require.Len(t, stores, 1)
			got := collect(t, stores[0])
			require.NotEmpty(t, got)
			assert.Contains(t, got[0], test.want)
		})
	}
	assert.Nil(t, verify.ClusterStores(nil, nil, read), "not set")
	assert.Contains(t, collect(t, verify.ClusterStores([]configv1.SignatureStore{}, nil, read)[0])[0], "the list is empty")
	assert.Len(t, verify.ClusterStores(make([]configv1.SignatureStore, 1000), nil, read), 33)
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestStoreWithoutCAKeepsTheClientsTrust(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	stores := verify.ClusterStores([]configv1.SignatureStore{{URL: server.URL}}, server.Client(), nil)
	assert.Empty(t, collect(t, stores[0]))
}

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// otherCA is the certificate of an authority that has signed nothing.
func otherCA(t *testing.T) string {
	t.Helper()
	a, err := authority.New("other")
	require.NoError(t, err)
	return string(a.Certificate)
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}
