package store_test

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

	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/store"
	"github.com/cluster-version/cvo/test/fixture/authority"
	"github.com/cluster-version/cvo/test/fixture/signing"
)

// collect returns the signatures of a store, and its errors as "error: ...".
func collect(t *testing.T, s store.Store) []string {
	t.Helper()
	var out []string
	for sig, err := range s.Signatures(t.Context(), digest) {
		if err != nil {
			out = append(out, "error: "+err.Error())
			continue
		}
		out = append(out, sig.Name+"="+string(sig.Message))
	}
	return out
}

func TestHTTPStoreReadsSignaturesUntilOneIsMissing(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request, n int)
		want   []string
	}{
		{"stops at the first missing number", func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 3 {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write([]byte{'a' + byte(n)})
		}, []string{"signature-1=b", "signature-2=c"}},
		{"continues after a failure, an empty body and a large body", func(w http.ResponseWriter, r *http.Request, n int) {
			switch n {
			case 1:
				http.Error(w, "", http.StatusInternalServerError)
			case 2:
			case 3:
				_, _ = w.Write(bytes.Repeat([]byte("x"), openpgp.MaxSignatureSize+1))
			case 4:
				_, _ = w.Write([]byte("y"))
			default:
				http.NotFound(w, r)
			}
		}, []string{"error: signature-1: the server answered 500 Internal Server Error", "error: signature-3: larger than 51200 bytes", "signature-4=y"}},
		{"follows a limited number of redirects", func(w http.ResponseWriter, r *http.Request, n int) {
			switch {
			case n == 1 && r.URL.RawQuery == "":
				http.Redirect(w, r, r.URL.Path+"?there", http.StatusFound)
			case n == 1:
				_, _ = w.Write([]byte("z"))
			case n == 2:
				http.Redirect(w, r, r.URL.Path, http.StatusFound)
			default:
				http.NotFound(w, r)
			}
		}, []string{"signature-1=z", "error: signature-2: stopped after 5 redirects"}},
		{"reads nine signatures at most", func(w http.ResponseWriter, _ *http.Request, n int) {
			_, _ = w.Write([]byte(strconv.Itoa(n)))
		}, []string{
			"signature-1=1", "signature-2=2", "signature-3=3", "signature-4=4", "signature-5=5", "signature-6=6",
			"signature-7=7", "signature-8=8", "signature-9=9",
		}},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			opened, _ := openWithoutPauses(t, signing.Serve(t, test.answer).URL+"/signatures")
			assert.Equal(t, test.want, collect(t, opened))
		})
	}
}

func TestHTTPStoreStopsReadingEndlessBodies(t *testing.T) {
	var stopped atomic.Bool
	server := signing.Serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			http.NotFound(w, r)
			return
		}
		chunk := make([]byte, 16<<10)
		for {
			if _, err := w.Write(chunk); err != nil {
				stopped.Store(true)
				return
			}
		}
	})
	opened, err := store.Open(server.URL+"/signatures/", nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"error: signature-1: larger than 51200 bytes"}, collect(t, opened))
	server.Close() // This waits for the handler, which ends only after its client has disconnected.
	assert.True(t, stopped.Load())
}

//threat:signature-stores-lie
func TestRedirectToPlainHTTPIsRejected(t *testing.T) {
	plain := signing.Serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) { _, _ = w.Write([]byte("x")) })
	server := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	t.Cleanup(server.Close)
	opened, err := store.Open(server.URL, server.Client())
	require.NoError(t, err)
	assert.Contains(t, collect(t, opened), "error: signature-1: refusing a redirect from https to http")
}

// openWithoutPauses opens a store that never pauses. It also returns a function that returns the pauses that the store would have made.
func openWithoutPauses(t *testing.T, rawURL string) (opened store.Store, pauses func() []time.Duration) {
	t.Helper()
	opened, err := store.Open(rawURL, nil)
	require.NoError(t, err)
	var mu sync.Mutex
	var waited []time.Duration
	opened = store.WithoutPauses(opened, func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		waited = append(waited, d)
	})
	return opened, func() []time.Duration { return waited }
}

func TestHTTPStoreRetriesTransientFailures(t *testing.T) {
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
		// first are the responses for signature-1. There is no signature-2.
		first  []func(w http.ResponseWriter)
		want   []string
		pauses []time.Duration
	}{
		{
			"retries after the time that an overloaded server requests",
			[]func(http.ResponseWriter){status(429, "Retry-After", "7"), status(503, "Retry-After", "2"), text},
			[]string{"signature-1=a"},
			[]time.Duration{7 * time.Second, 2 * time.Second},
		},
		{
			"doubles the wait if the server requests no time",
			[]func(http.ResponseWriter){status(502), status(504), text},
			[]string{"signature-1=a"},
			[]time.Duration{200 * time.Millisecond, 400 * time.Millisecond},
		},
		{
			"gives up after the third response",
			[]func(http.ResponseWriter){status(500), status(500), status(500), text},
			[]string{"error: signature-1: the server answered 500 Internal Server Error"},
			[]time.Duration{200 * time.Millisecond, 400 * time.Millisecond},
		},
		{
			"retries after a broken connection",
			[]func(http.ResponseWriter){cut, text},
			[]string{"signature-1=a"},
			[]time.Duration{200 * time.Millisecond},
		},
		{
			"does not retry after a refusal",
			[]func(http.ResponseWriter){status(403)},
			[]string{"error: signature-1: the server answered 403 Forbidden"},
			nil,
		},
		{
			"ignores an invalid Retry-After",
			[]func(http.ResponseWriter){status(503, "Retry-After", "-5"), text},
			[]string{"signature-1=a"},
			[]time.Duration{200 * time.Millisecond},
		},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			var asked atomic.Int32
			server := signing.Serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
				if n > 1 {
					http.NotFound(w, r)
					return
				}
				test.first[asked.Add(1)-1](w)
			})
			opened, pauses := openWithoutPauses(t, server.URL+"/signatures")
			assert.Equal(t, test.want, collect(t, opened))
			assert.Equal(t, test.pauses, pauses())
		})
	}
}

func TestHTTPStoreLimitsItsRetries(t *testing.T) {
	var asked atomic.Int32
	server := signing.Serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		asked.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	opened, pauses := openWithoutPauses(t, server.URL+"/signatures")
	assert.Len(t, collect(t, opened), 9)
	assert.Len(t, pauses(), 4)
	assert.EqualValues(t, 9+4, asked.Load())
}

func TestHTTPStoreDoesNotWaitBeyondItsDeadline(t *testing.T) {
	server := signing.Serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	opened, err := store.Open(server.URL+"/signatures", nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, err := range opened.Signatures(ctx, digest) {
		require.ErrorContains(t, err, "signature-1: the server answered 429 Too Many Requests and requests a retry after 1h0m0s")
	}
}

func TestUnreachableServerIsAskedOnlyOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close()) // Nothing listens there now.
	opened, pauses := openWithoutPauses(t, "http://"+listener.Addr().String())
	assert.Equal(t, []string{"error: signature-1: dial tcp " + listener.Addr().String() + ": connect: connection refused"}, collect(t, opened))
	assert.Len(t, pauses(), 2)
	for _, err := range opened.Signatures(t.Context(), digest) {
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
}

func TestHTTPStoreSendsFewRequests(t *testing.T) {
	for have, requests := range map[int]int32{0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 8: 9, 9: 9} {
		t.Run(fmt.Sprintf("it sends %d requests for %d signatures", requests, have), func(t *testing.T) {
			var asked atomic.Int32
			server := signing.Serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
				asked.Add(1)
				if n > have {
					http.NotFound(w, r)
					return
				}
				_, _ = fmt.Fprint(w, n)
			})
			opened, err := store.Open(server.URL+"/signatures", nil)
			require.NoError(t, err)
			var want []string
			for n := 1; n <= have; n++ {
				want = append(want, fmt.Sprintf("signature-%d=%d", n, n))
			}
			assert.Equal(t, want, collect(t, opened))
			assert.Equal(t, requests, asked.Load())
		})
	}
}

// TestHTTPStoreReadsAheadInParallel answers the third and fourth request only after both have arrived, so they must be parallel.
func TestHTTPStoreReadsAheadInParallel(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	server := signing.Serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
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
	opened, err := store.Open(server.URL+"/signatures", nil)
	require.NoError(t, err)
	got := collect(t, opened)
	assert.Equal(t, []string{"signature-1=1", "signature-2=2", "signature-3=3", "signature-4=4"}, got)
}

func TestHTTPStoreRejectsATooLargeContentLength(t *testing.T) {
	var written atomic.Int64
	server := signing.Serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
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
	opened, err := store.Open(server.URL+"/signatures", nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"error: signature-1: larger than 51200 bytes"}, collect(t, opened))
	server.Close()
	assert.Less(t, written.Load(), int64(1<<30))
}

func TestDecompressedResponseIsLimited(t *testing.T) {
	server := signing.Serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(gzipped(t, bytes.Repeat([]byte{0}, 32<<20)))
	})
	opened, err := store.Open(server.URL+"/signatures", nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"error: signature-1: larger than 51200 bytes"}, collect(t, opened))
}

//threat:secrets-appear-status
func TestSecretsOfAStoreAreNotPrinted(t *testing.T) {
	var query, password string
	server := signing.Serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
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
	opened, err := store.Open(u.String(), nil)
	require.NoError(t, err)
	for sig, err := range opened.Signatures(t.Context(), digest) {
		require.NoError(t, err)
		for _, text := range []string{sig.Location, opened.String()} {
			assert.NotContains(t, text, "secret")
			assert.NotContains(t, text, "hidden")
		}
	}
	assert.Equal(t, "hidden", query, "the query is sent")
	assert.Equal(t, "secret", password, "the password is sent")
}

func TestStoreIsReadThroughAProxy(t *testing.T) {
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
	opened, err := store.Open("http://signatures.example/x", &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at)}})
	require.NoError(t, err)
	assert.Equal(t, []string{"signature-1=a"}, collect(t, opened))
}

func certificate(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

//threat:store-own-ca
func TestClusterStoresUseTheirCA(t *testing.T) {
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
	plain := signing.Serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
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
	unused := "error: the store was not searched, because its ca in ConfigMap openshift-config/%s cannot be used: %s"
	for _, test := range []struct {
		name, url, ca string
		client        *http.Client
		want          string
	}{
		{"trusts the store's ca", server.URL, "good", nil, "signature-1=a"},
		{"reads the certificates under the other key", server.URL, "bundle", nil, "signature-1=a"},
		{"trusts only that ca, not the client's authorities", server.URL, "other", server.Client(), "certificate signed by unknown authority"},
		{"does not trust a private authority without ca", server.URL, "", nil, "certificate signed by unknown authority"},
		{"omits a store with a missing ca", server.URL, "missing", server.Client(), fmt.Sprintf(unused, "missing", "not found")},
		{"omits a store with a ca without the key", server.URL, "keys", server.Client(), fmt.Sprintf(unused, "keys", "it has neither key ca.crt nor key ca-bundle.crt")},
		{"omits a store with an invalid ca", server.URL, "noise", server.Client(), fmt.Sprintf(unused, "noise", "it contains no PEM certificate")},
		{"rejects an unknown transport", server.URL, "good", &http.Client{Transport: transportFunc(nil)}, "cannot set certificates on a transport of type store_test.transportFunc"},
		{"reads from plain HTTP", plain.URL + "/signatures", "", nil, "signature-1=p"},
		{"reads no files", "file:///etc", "", nil, "error: the URL of a store must begin with https:// or http:// and a host"},
		{"rejects an invalid URL", "https://[::1", "", nil, `error: reading the URL "https://[::1"`},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			stores := store.ForCluster([]configv1.SignatureStore{{URL: test.url, CA: configv1.ConfigMapNameReference{Name: test.ca}}}, test.client, read)
			require.Len(t, stores, 1)
			got := collect(t, stores[0])
			require.NotEmpty(t, got)
			assert.Contains(t, got[0], test.want)
		})
	}
	assert.Nil(t, store.ForCluster(nil, nil, read), "the field is unset")
	assert.Contains(t, collect(t, store.ForCluster([]configv1.SignatureStore{}, nil, read)[0])[0], "the list is empty")
	assert.Len(t, store.ForCluster(make([]configv1.SignatureStore, 1000), nil, read), 33)
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestStoreWithoutCAKeepsTheClientsTrust(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	stores := store.ForCluster([]configv1.SignatureStore{{URL: server.URL}}, server.Client(), nil)
	assert.Empty(t, collect(t, stores[0]))
}

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// otherCA returns the certificate of an authority that has issued nothing.
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
