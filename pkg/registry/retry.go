package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

const (
	// maxAttempts is how often a request is sent at most, maxSlow how often if each time may take as long as a stall.
	maxAttempts = 5
	maxSlow     = 2
	// maxRetryAfter is the longest wait that a registry may ask for.
	maxRetryAfter = time.Minute
)

// retryTransport sends again what a registry may answer better a moment later: reads after network errors and passing
// failures, and anything that can be sent twice and was turned away unread.
type retryTransport struct {
	inner   http.RoundTripper
	backoff time.Duration
}

// RoundTrip implements http.RoundTripper.
func (t *retryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		resp, err := t.inner.RoundTrip(req)
		pause, again := t.again(req, resp, err, attempt)
		// An answer is worth more than the word that time is up.
		if deadline, ok := req.Context().Deadline(); !again || ok && time.Until(deadline) < pause {
			if err != nil && isRead(req) {
				err = &finalError{err: err, attempts: attempt}
			}
			return resp, err
		}
		if resp != nil {
			// What is read here lets the connection be used again; it is not worth more than that.
			_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
			_ = resp.Body.Close()
		}
		if err := wait(req.Context(), pause); err != nil {
			return nil, err
		}
		if req, err = rewound(req); err != nil {
			return nil, err
		}
	}
}

// again decides whether a request is sent once more, and after which pause.
func (t *retryTransport) again(req *http.Request, resp *http.Response, err error, attempt int) (time.Duration, bool) {
	if attempt >= maxAttempts || req.Context().Err() != nil || !replayable(req) {
		return 0, false
	}
	pause := jitter(t.backoff << (attempt - 1))
	if err != nil {
		return pause, isRead(req) && passing(err) && (attempt < maxSlow || !slow(err))
	}
	after, told := retryAfter(resp.Header.Get("Retry-After"), time.Now())
	if told {
		pause = max(pause, after)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		return pause, after <= maxRetryAfter
	case http.StatusServiceUnavailable:
		return pause, after <= maxRetryAfter && (told || isRead(req))
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout,
		499, 522: // what nginx and Cloudflare say when the other side has gone
		return pause, isRead(req)
	}
	return 0, false
}

// finalError is an error after all attempts that were worth it.
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

// Unwrap is for errors.Is.
func (e *finalError) Unwrap() error { return e.err }

// worthBeginningAnew tells the library whether to repeat an upload that failed: one whose connection broke, or that the
// registry could not take at the moment. Reads have been repeated already.
func worthBeginningAnew(err error) bool {
	var final *finalError
	var status *transport.Error
	switch {
	case err == nil, errors.As(err, &final), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &status):
		return status.Temporary() || status.StatusCode == http.StatusNotFound && strings.Contains(status.Request.URL.Path, "/blobs/uploads/")
	}
	return passing(err)
}

func isRead(req *http.Request) bool {
	return req.Method == http.MethodGet || req.Method == http.MethodHead
}

func replayable(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// rewound is a request with its body from the start.
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

// passing reports whether an error may be gone a moment later.
func passing(err error) bool {
	var dns *net.DNSError
	var plain tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	var operation *net.OpError
	switch {
	case errors.Is(err, ErrStalled):
		return true
	case errors.Is(err, ErrWithoutTLS), errors.Is(err, ErrLimit), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &dns):
		return !dns.IsNotFound
	case errors.As(err, &plain), errors.As(err, &certificate):
		return false
	case errors.As(err, &operation):
		return operation.Op != "remote error" && operation.Op != "local error" // what TLS has to say
	}
	var timeout net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		slices.ContainsFunc([]error{syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNREFUSED}, func(no error) bool { return errors.Is(err, no) }) ||
		errors.As(err, &timeout) && timeout.Timeout() ||
		// net/http does not export these.
		strings.Contains(err.Error(), "http2: ") || strings.Contains(err.Error(), "stream error: ")
}

// slow reports whether an error is that of a long wait.
func slow(err error) bool {
	var timeout net.Error
	return errors.Is(err, ErrStalled) || errors.As(err, &timeout) && timeout.Timeout()
}

// retryAfter reads the header of that name: seconds or a date.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(date.Sub(now), 0), true
	}
	return 0, false
}

// jitter is a time between a half and one and a half of d, so that clients that failed together do not come back
// together.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d+1)
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
