package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/pkg/oci/failure"
)

const (
	// maxAttempts is the maximum number of attempts. maxSlow is the maximum for failures that take as long as a stall.
	maxAttempts = 5
	maxSlow     = 2
	// maxRetryAfter is the longest accepted wait in Retry-After. After a longer one, the request is not retried.
	maxRetryAfter = time.Minute
)

// retryTransport retries requests that may succeed a moment later. These are reads after network errors and transient failures, and
// replayable requests that the registry rejected without processing them.
type retryTransport struct {
	inner   http.RoundTripper
	backoff backoff.Doubling
}

// Retry returns a transport that only retries, with the rules of New. first is the approximate pause before the first retry; each
// further pause is twice as long.
func Retry(inner http.RoundTripper, first time.Duration) http.RoundTripper {
	return &retryTransport{inner: inner, backoff: backoff.Doubling{First: first}}
}

// RoundTrip implements http.RoundTripper.
func (t *retryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		resp, err := t.inner.RoundTrip(req)
		pause, again := t.shouldRetry(req, resp, err, attempt)
		// The response is more useful to the caller than a deadline error.
		if deadline, ok := req.Context().Deadline(); !again || ok && time.Until(deadline) < pause {
			if err != nil && isRead(req) {
				err = &finalError{err: err, attempts: attempt}
			}
			return resp, err
		}
		if resp != nil {
			// Reading the rest makes the connection reusable. That is worth at most 64 KiB.
			_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
			_ = resp.Body.Close()
		}
		if err := backoff.Sleep(req.Context(), pause); err != nil {
			return nil, err
		}
		if req, err = rewound(req); err != nil {
			return nil, err
		}
	}
}

// shouldRetry reports whether to retry a request, and returns the pause before the retry.
func (t *retryTransport) shouldRetry(req *http.Request, resp *http.Response, err error, attempt int) (time.Duration, bool) {
	if attempt >= maxAttempts || req.Context().Err() != nil || !replayable(req) {
		return 0, false
	}
	pause := jitter(t.backoff.After(attempt))
	if err != nil {
		return pause, isRead(req) && failure.IsTransient(err) && (attempt < maxSlow && patienceFor(req).Limit == 0 || !failure.IsSlow(err))
	}
	after, requested := RetryAfter(resp.Header.Get("Retry-After"), time.Now())
	if requested {
		pause = max(pause, after)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		return pause, after <= maxRetryAfter
	case http.StatusServiceUnavailable:
		return pause, after <= maxRetryAfter && (requested || isRead(req))
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout,
		499, 522: // nginx and Cloudflare: the other side closed the connection
		return pause, isRead(req)
	}
	return 0, false
}

// finalError adds the number of attempts to the error of the last attempt.
type finalError struct {
	err      error
	attempts int
}

// Error implements error.
func (e *finalError) Error() string {
	if e.attempts == 1 {
		return e.err.Error()
	}
	return fmt.Sprintf("%v (%d attempts)", e.err, e.attempts)
}

// Unwrap returns the cause.
func (e *finalError) Unwrap() error { return e.err }

// IsWorthRestarting reports whether the library should restart a failed upload: after a broken connection or a transient failure of the
// registry. Reads have already been retried.
func IsWorthRestarting(err error) bool {
	var final *finalError
	var status *transport.Error
	switch {
	case err == nil, errors.As(err, &final), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &status):
		return status.Temporary() || status.StatusCode == http.StatusNotFound && strings.Contains(status.Request.URL.Path, "/blobs/uploads/")
	}
	return failure.IsTransient(err)
}

func isRead(req *http.Request) bool {
	return req.Method == http.MethodGet || req.Method == http.MethodHead
}

func replayable(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// rewound returns the request with its body reset to the start.
func rewound(req *http.Request) (*http.Request, error) {
	if req.GetBody == nil {
		return req, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	again := req.WithContext(req.Context())
	again.Body = body
	return again, nil
}

// RetryAfter parses a Retry-After header (RFC 9110, section 10.2.3): either seconds or a date. A date in the past results in zero.
// RetryAfter returns false if value is invalid.
func RetryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(date.Sub(now), 0), true
	}
	return 0, false
}

// jitter returns a random duration between 50% and 150% of d.
func jitter(d time.Duration) time.Duration {
	return backoff.Jitter(d, 0.5, rand.Float64())
}
