package registry

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script answers each request by the next of its answers, and the last one for ever. The time is that of synctest.
type script struct {
	answers []answer
	times   []time.Duration
	bodies  []string
	start   time.Time
}

type answer struct {
	status     int
	retryAfter string
	err        error
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	s.times = append(s.times, time.Since(s.start))
	if req.Body != nil {
		body, _ := io.ReadAll(req.Body)
		s.bodies = append(s.bodies, string(body))
	}
	a := s.answers[min(len(s.times), len(s.answers))-1]
	if a.err != nil {
		return nil, a.err
	}
	resp := &http.Response{StatusCode: a.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("body")), Request: req}
	if a.retryAfter != "" {
		resp.Header.Set("Retry-After", a.retryAfter)
	}
	return resp, nil
}

func TestRetry(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, tt := range []struct {
		name, method string
		answers      []answer
		// attempts and the time they take at least and at most
		attempts    int
		least, most time.Duration
	}{
		{"it does not repeat what has worked", http.MethodGet, []answer{{status: 200}}, 1, 0, 0},
		{"it does not repeat what will not work", http.MethodGet, []answer{{status: 404}, {status: 200}}, 1, 0, 0},
		{"it repeats a read that the registry could not answer", http.MethodGet, []answer{{status: 502}, {status: 500}, {status: 200}}, 3, 300 * time.Millisecond, 900 * time.Millisecond},
		{"it repeats a read after a network error", http.MethodHead, []answer{{err: refused}, {err: io.ErrUnexpectedEOF}, {status: 200}}, 3, 300 * time.Millisecond, 900 * time.Millisecond},
		{"it gives up after five times, each later than the one before", http.MethodGet, []answer{{status: 503}}, 5, 1500 * time.Millisecond, 4500 * time.Millisecond},
		{"it gives up after five network errors", http.MethodGet, []answer{{err: syscall.ECONNRESET}}, 5, 1500 * time.Millisecond, 4500 * time.Millisecond},
		{"it gives up after two stalls", http.MethodGet, []answer{{err: ErrStalled}}, 2, 100 * time.Millisecond, 300 * time.Millisecond},
		{"it does not repeat a name that does not exist", http.MethodGet, []answer{{err: &net.DNSError{IsNotFound: true}}, {status: 200}}, 1, 0, 0},
		{"it waits as long as it is told", http.MethodGet, []answer{{status: 429, retryAfter: "30"}, {status: 200}}, 2, 30 * time.Second, 30 * time.Second},
		{"it waits until the time it is told", http.MethodGet, []answer{{status: 503, retryAfter: "Sat, 01 Jan 2000 00:00:20 GMT"}, {status: 200}}, 2, 20 * time.Second, 20 * time.Second},
		{"it waits a moment where it is told not to", http.MethodGet, []answer{{status: 429, retryAfter: "0"}, {status: 200}}, 2, 100 * time.Millisecond, 300 * time.Millisecond},
		{"it does not wait for ever", http.MethodGet, []answer{{status: 429, retryAfter: "61"}, {status: 200}}, 1, 0, 0},
		{"it does not believe in endless times", http.MethodGet, []answer{{status: 429, retryAfter: "99999999999999999999"}, {status: 200}}, 2, 100 * time.Millisecond, 300 * time.Millisecond},
		{"it repeats a write that was turned away", http.MethodPatch, []answer{{status: 429}, {status: 503, retryAfter: "1"}, {status: 202}}, 3, 1100 * time.Millisecond, 1400 * time.Millisecond},
		{"it does not repeat a write that may have been done", http.MethodPatch, []answer{{status: 502}, {status: 202}}, 1, 0, 0},
		{"it does not repeat a write whose connection broke", http.MethodPut, []answer{{err: syscall.ECONNRESET}, {status: 202}}, 1, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: tt.answers, start: time.Now()}
				var body io.Reader
				if tt.method == http.MethodPatch {
					body = strings.NewReader("layer")
				}
				req := httptest.NewRequestWithContext(t.Context(), tt.method, "https://registry.example/v2/x", body)
				if body != nil {
					req, _ = http.NewRequestWithContext(t.Context(), tt.method, "https://registry.example/v2/x", body)
				}
				resp, err := (&retryTransport{inner: s, backoff: 200 * time.Millisecond}).RoundTrip(req)
				last := tt.answers[min(tt.attempts, len(tt.answers))-1]
				if last.err == nil {
					require.NoError(t, err)
					assert.Equal(t, last.status, resp.StatusCode)
					defer resp.Body.Close()
					text, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					assert.Equal(t, "body", string(text), "the last answer is whole")
				} else {
					require.ErrorIs(t, err, last.err)
					assert.Equal(t, tt.method == http.MethodPut, worthBeginningAnew(err), "the library does not repeat what was repeated")
				}
				require.Len(t, s.times, tt.attempts)
				taken := s.times[len(s.times)-1]
				assert.GreaterOrEqual(t, taken, tt.least)
				assert.LessOrEqual(t, taken, tt.most)
				for _, b := range s.bodies {
					if body != nil {
						assert.Equal(t, "layer", b, "the body is sent from its start")
					}
				}
			})
		})
	}
}

func TestRetryHonoursContext(t *testing.T) {
	try := func(ctx context.Context) (s *script, resp *http.Response, err error) {
		s = &script{answers: []answer{{status: 429, retryAfter: "50"}}, start: time.Now()}
		resp, err = (&retryTransport{inner: s, backoff: time.Second}).RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "https://registry.example/v2/", nil))
		return s, resp, err
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		s, _, err := try(ctx) //nolint:bodyclose // there is no answer
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Second, time.Since(s.start))
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s, resp, err := try(ctx)
		require.NoError(t, err, "there is no time to ask again, so this is the answer")
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		assert.Zero(t, time.Since(s.start))
	})
}

// TestStallIsNoDeadline has a reader, and an upload's source, that take their time.
func TestStallIsNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watched := &stallTransport{limit: time.Minute, inner: roundTrip(func(req *http.Request) (*http.Response, error) {
			_, err := io.Copy(io.Discard, req.Body)
			return &http.Response{StatusCode: 200, Body: io.NopCloser(contextReader{req.Context()}), Request: req}, err
		})}
		resp, err := watched.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "https://registry.example/v2/x", &slowReader{left: 3}))
		require.NoError(t, err)
		for range 3 {
			_, err = resp.Body.Read(make([]byte, 1))
			require.NoError(t, err)
			time.Sleep(time.Hour)
		}
		require.NoError(t, resp.Body.Close())
	})
}

// slowReader takes an hour for each of its bytes.
type slowReader struct{ left int }

func (r *slowReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	r.left--
	time.Sleep(time.Hour)
	return copy(p, "x"), nil
}

// contextReader gives bytes until its context ends, as the body of an answer does.
type contextReader struct{ ctx context.Context } //nolint:containedctx // see above

func (r contextReader) Read(p []byte) (int, error) { return copy(p, "x"), r.ctx.Err() }

// TestLimit has more readers than places. Each request takes a second, and each download another one to be read.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := map[string]int{}, map[string]int{}
		count := func(host string, n int) {
			mu.Lock()
			defer mu.Unlock()
			now[host] += n
			most[host] = max(most[host], now[host])
		}
		inner := roundTrip(func(req *http.Request) (*http.Response, error) {
			count(req.URL.Host, 1)
			time.Sleep(time.Second)
			return &http.Response{StatusCode: 200, Body: &countedBody{done: sync.OnceFunc(func() { count(req.URL.Host, -1) })}, Request: req}, nil
		})
		limited := newLimitTransport(inner, 2)
		start := time.Now()
		var group sync.WaitGroup
		for _, host := range []string{"a.example", "b.example"} {
			for range 6 {
				group.Go(func() {
					resp, err := limited.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/v2/x/blobs/sha256:0", nil))
					if assert.NoError(t, err) {
						time.Sleep(time.Second)
						assert.NoError(t, resp.Body.Close())
					}
				})
			}
		}
		group.Wait()
		assert.Equal(t, map[string]int{"a.example": 2, "b.example": 2}, most)
		assert.Equal(t, 6*time.Second, time.Since(start), "registries do not wait for each other")
	})
}

// TestLimitIsNoTrap holds all places for downloads while it needs others: as a copy within one registry does.
func TestLimitIsNoTrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := newLimitTransport(roundTrip(func(req *http.Request) (*http.Response, error) {
			_, err := io.Copy(io.Discard, req.Body)
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, err
		}), 1)
		do := func(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
			if body == nil {
				body = http.NoBody
			}
			req, err := http.NewRequestWithContext(ctx, method, "https://a.example"+path, body)
			require.NoError(t, err)
			return limited.RoundTrip(req)
		}
		const blob = "/v2/x/blobs/sha256:0"
		download, err := do(t.Context(), http.MethodGet, blob, nil)
		require.NoError(t, err)
		// What is uploaded comes from another repository, which wants a token first.
		source := readFunc(func([]byte) (int, error) {
			for _, r := range []struct{ method, path string }{{http.MethodGet, "/v2/"}, {http.MethodHead, blob}} {
				resp, err := do(t.Context(), r.method, r.path, nil)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			}
			return 0, io.EOF
		})
		upload, err := do(t.Context(), http.MethodPatch, "/v2/x/blobs/uploads/1", source)
		require.NoError(t, err)
		require.NoError(t, upload.Body.Close())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = do(ctx, http.MethodGet, blob, nil) //nolint:bodyclose // there is no answer
		require.ErrorIs(t, err, context.DeadlineExceeded, "waiting for a place ends with the context")
		require.NoError(t, download.Body.Close())
		again, err := do(t.Context(), http.MethodGet, blob, nil)
		require.NoError(t, err)
		require.NoError(t, again.Body.Close())
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

type countedBody struct{ done func() }

func (b *countedBody) Read([]byte) (int, error) { return 0, errors.New("not read in this test") }
func (b *countedBody) Close() error             { b.done(); return nil }

func TestAddresses(t *testing.T) {
	for _, host := range []string{"registry.example", "8.8.8.8", "2001:4860::1", "a1", "cdn-01.example.c0m"} {
		assert.True(t, public(host), host)
	}
	for _, host := range []string{"127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "0.0.0.0", "2130706433", "0x7f000001", "127.1", ""} {
		assert.False(t, public(host), host)
	}
	for _, host := range []string{"localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000", "::1", "x.localhost:80"} {
		assert.True(t, loopback(host), host)
	}
	for _, host := range []string{"localhost.example", "10.0.0.1", "registry.example:127"} {
		assert.False(t, loopback(host), host)
	}
}

func TestBlobRepository(t *testing.T) {
	for path, want := range map[string]string{
		"/v2/a/blobs/sha256:0":               "a",
		"/v2/a/b/c/blobs/sha256:0":           "a/b/c",
		"/v2/a/blobs/b/blobs/sha256:0":       "a/blobs/b",
		"/v2/a/blobs/uploads/1":              "",
		"/v2/a/manifests/sha256:0":           "",
		"/v2/blobs/sha256:0":                 "",
		"/storage/v2/a/blobs/sha256:0":       "",
		"/v2/a/blobs/uploads/1?digest=sha:0": "",
	} {
		got, ok := blobRepository(path)
		assert.Equal(t, want, got, path)
		assert.Equal(t, want != "", ok, path)
	}
}

func TestRangeFits(t *testing.T) {
	for value, want := range map[string]bool{
		"bytes 10-99/100": true, "bytes 10-50/100": true, "bytes 10-99/*": true,
		"bytes 11-99/100": false, "bytes 10-99/101": false, "10-99/100": false, "": false, "bytes 10-/100": false, "bytes -1-9/100": false,
	} {
		assert.Equal(t, want, rangeFits(value, 10, 100), value)
	}
	assert.True(t, rangeFits("bytes 10-99/100", 10, -1))
}
