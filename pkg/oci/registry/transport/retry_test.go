package transport

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

	"github.com/cluster-version/cvo/pkg/oci/failure"
)

// script responds to each request with its next answer, and repeats the last one. It runs on synctest's clock.
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

//threat:429-503-absurd it gives up if Retry-After is too long
//threat:429-503-absurd it ignores an invalid Retry-After
func TestTransientFailuresAreRetried(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, tt := range []struct {
		name, method string
		answers      []answer
		// attempts is the expected number of attempts. least and most limit the total time.
		attempts    int
		least, most time.Duration
	}{
		{"it does not retry a successful request", http.MethodGet, []answer{{status: 200}}, 1, 0, 0},
		{"it does not retry a permanent failure", http.MethodGet, []answer{{status: 404}, {status: 200}}, 1, 0, 0},
		{"it retries a read after a server error", http.MethodGet, []answer{{status: 502}, {status: 500}, {status: 200}}, 3, 300 * time.Millisecond, 900 * time.Millisecond},
		{"it retries a read after a network error", http.MethodHead, []answer{{err: refused}, {err: io.ErrUnexpectedEOF}, {status: 200}}, 3, 300 * time.Millisecond, 900 * time.Millisecond},
		{"it gives up after five attempts with growing pauses", http.MethodGet, []answer{{status: 503}}, 5, 1500 * time.Millisecond, 4500 * time.Millisecond},
		{"it gives up after five network errors", http.MethodGet, []answer{{err: syscall.ECONNRESET}}, 5, 1500 * time.Millisecond, 4500 * time.Millisecond},
		{"it gives up after two stalls", http.MethodGet, []answer{{err: failure.ErrStalled}}, 2, 100 * time.Millisecond, 300 * time.Millisecond},
		{"it does not retry an unknown name", http.MethodGet, []answer{{err: &net.DNSError{IsNotFound: true}}, {status: 200}}, 1, 0, 0},
		{"it waits for the duration in Retry-After", http.MethodGet, []answer{{status: 429, retryAfter: "30"}, {status: 200}}, 2, 30 * time.Second, 30 * time.Second},
		{"it waits until the date in Retry-After", http.MethodGet, []answer{{status: 503, retryAfter: "Sat, 01 Jan 2000 00:00:20 GMT"}, {status: 200}}, 2, 20 * time.Second, 20 * time.Second},
		{"it waits briefly despite Retry-After 0", http.MethodGet, []answer{{status: 429, retryAfter: "0"}, {status: 200}}, 2, 100 * time.Millisecond, 300 * time.Millisecond},
		{"it gives up if Retry-After is too long", http.MethodGet, []answer{{status: 429, retryAfter: "61"}, {status: 200}}, 1, 0, 0},
		{"it ignores an invalid Retry-After", http.MethodGet, []answer{{status: 429, retryAfter: "99999999999999999999"}, {status: 200}}, 2, 100 * time.Millisecond, 300 * time.Millisecond},
		{"it retries a rejected write", http.MethodPatch, []answer{{status: 429}, {status: 503, retryAfter: "1"}, {status: 202}}, 3, 1100 * time.Millisecond, 1400 * time.Millisecond},
		{"it does not retry a write that may have succeeded", http.MethodPatch, []answer{{status: 502}, {status: 202}}, 1, 0, 0},
		{"it does not retry a write after a broken connection", http.MethodPut, []answer{{err: syscall.ECONNRESET}, {status: 202}}, 1, 0, 0},
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
				resp, err := Retry(s, 200*time.Millisecond).RoundTrip(req)
				last := tt.answers[min(tt.attempts, len(tt.answers))-1]
				if last.err == nil {
					require.NoError(t, err)
					assert.Equal(t, last.status, resp.StatusCode)
					defer resp.Body.Close()
					text, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					assert.Equal(t, "body", string(text), "the body of the last response is complete")
				} else {
					require.ErrorIs(t, err, last.err)
					assert.Equal(t, tt.method == http.MethodPut, IsWorthRestarting(err), "the library retries only uploads")
				}
				require.Len(t, s.times, tt.attempts)
				taken := s.times[len(s.times)-1]
				assert.GreaterOrEqual(t, taken, tt.least)
				assert.LessOrEqual(t, taken, tt.most)
				for _, b := range s.bodies {
					if body != nil {
						assert.Equal(t, "layer", b, "each attempt sends the whole body")
					}
				}
			})
		})
	}
}

func TestRetryEndsWithItsContext(t *testing.T) {
	try := func(ctx context.Context) (s *script, resp *http.Response, err error) {
		s = &script{answers: []answer{{status: 429, retryAfter: "50"}}, start: time.Now()}
		resp, err = Retry(s, time.Second).RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "https://registry.example/v2/", nil))
		return s, resp, err
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		s, _, err := try(ctx) //nolint:bodyclose // there is no response
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Second, time.Since(s.start))
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s, resp, err := try(ctx)
		require.NoError(t, err, "there is no time for a retry, so this is the result")
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		assert.Zero(t, time.Since(s.start))
	})
}

// TestSlowTransfersAreNotStalled covers a slow reader and an upload from a slow source.
func TestSlowTransfersAreNotStalled(t *testing.T) {
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

// slowReader returns one byte an hour.
type slowReader struct{ left int }

func (r *slowReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	r.left--
	time.Sleep(time.Hour)
	return copy(p, "x"), nil
}

// contextReader returns bytes until its context ends, like the body of a response.
type contextReader struct{ ctx context.Context } // io.Reader has no context parameter

func (r contextReader) Read(p []byte) (int, error) { return copy(p, "x"), r.ctx.Err() }

// TestRequestsAreLimited has more readers than slots. Each request takes a second, and reading a download takes another second.
func TestRequestsAreLimited(t *testing.T) {
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
		assert.Equal(t, 6*time.Second, time.Since(start), "registries have separate limits")
	})
}

// TestLimitCausesNoDeadlock fills all slots with downloads that need other requests, like a copy within one registry.
func TestLimitCausesNoDeadlock(t *testing.T) {
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
		// The uploaded content comes from another repository, which requires a token first.
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
		_, err = do(ctx, http.MethodGet, blob, nil) //nolint:bodyclose // there is no response
		require.ErrorIs(t, err, context.DeadlineExceeded, "waiting for a slot ends with the context")
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

func TestRepositoryIsReadFromTheBlobPath(t *testing.T) {
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

func TestRangeMustContinueTheDownload(t *testing.T) {
	for value, want := range map[string]bool{
		"bytes 10-99/100": true, "bytes 10-50/100": true, "bytes 10-99/*": true,
		"bytes 11-99/100": false, "bytes 10-99/101": false, "10-99/100": false, "": false, "bytes 10-/100": false, "bytes -1-9/100": false,
	} {
		assert.Equal(t, want, rangeFits(value, 10, 100), value)
	}
	assert.True(t, rangeFits("bytes 10-99/100", 10, -1))
}
