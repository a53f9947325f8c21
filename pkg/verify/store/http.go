package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
	"github.com/cluster-version/cvo/pkg/oci/registry/transport"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
)

const (
	// maxAttempts is the maximum number of requests for one signature. maxRetries is the maximum number of retries in one search, because a
	// failing server fails for every signature.
	maxAttempts = 3
	maxRetries  = 4
	// maxDrained is the maximum number of bytes read from a useless response in order to reuse its connection.
	maxDrained = 4 << 10
)

// retryPause is the pause before another attempt, unless the server requests another time.
var retryPause = backoff.Doubling{First: 200 * time.Millisecond}

// httpStore is a signature store on a web server.
type httpStore struct {
	base   *url.URL
	client *http.Client
	// pause waits between attempts. Tests replace it with a function that only records the wait.
	pause func(ctx context.Context, d time.Duration) error
}

func newHTTPStore(base *url.URL, client *http.Client) *httpStore {
	if client == nil {
		client = http.DefaultClient
	}
	return &httpStore{base: base, client: redirect.Safe(client), pause: backoff.Sleep}
}

// String returns the URL without password and query, because both may be secret.
func (s *httpStore) String() string { return redacted(s.base) }

func redacted(u *url.URL) string {
	plain := *u
	plain.RawQuery, plain.ForceQuery, plain.Fragment, plain.RawFragment = "", false, "", ""
	return plain.Redacted()
}

// Signatures requests signature-1 to signature-9. Not Found ends the search. Any other failure concerns only one signature, unless the
// server is unreachable. Anyone may control the server behind the URL, so its signatures prove nothing yet.
//
// Signatures first requests only one signature, because usually there is only one and it is valid. If the caller needs more, each round
// requests as many in parallel as the caller has examined so far.
func (s *httpStore) Signatures(ctx context.Context, digest release.Digest) iter.Seq2[Signature, error] {
	return func(yield func(Signature, error) bool) {
		var retries atomic.Int32
		retries.Store(maxRetries)
		for n := firstSignature; n <= lastSignature; {
			width := min(max(1, n-firstSignature), lastSignature-n+1)
			for _, a := range s.fetch(ctx, digest, n, width, &retries) {
				switch {
				case ctx.Err() != nil:
					yield(a.Signature, ctx.Err())
					return
				case a.err == nil && !a.found:
					return
				case a.err == nil && len(a.Message) == 0:
					continue
				}
				if !yield(a.Signature, a.err) || a.unreachable {
					return
				}
			}
			n += width
		}
	}
}

// httpAnswer is the server's response to the request for one signature.
type httpAnswer struct {
	Signature
	found       bool
	unreachable bool
	err         error
}

// fetch requests several signatures in parallel and returns the responses in order.
func (s *httpStore) fetch(ctx context.Context, digest release.Digest, first, width int, retries *atomic.Int32) []httpAnswer {
	answers := make([]httpAnswer, width)
	var g errgroup.Group
	for i := range answers {
		g.Go(func() error {
			u := s.base.JoinPath(Dir(digest), signatureName(first+i))
			a := httpAnswer{Signature: Signature{Name: signatureName(first + i), Location: redacted(u)}}
			var err error
			a.Message, a.found, err = s.get(ctx, u, retries)
			if err != nil {
				a.unreachable = unreachable(err)
				a.err = &SignatureError{a.Name, api.Reworded(err, failure.StableText(err))}
			}
			answers[i] = a
			return nil
		})
	}
	_ = g.Wait() // Failures are in the answers.
	return answers
}

// get requests one signature. It retries transient failures while the search has retries and time left.
func (s *httpStore) get(ctx context.Context, u *url.URL, retries *atomic.Int32) (data []byte, found bool, err error) {
	for attempt := 1; ; attempt++ {
		data, found, err = s.try(ctx, u)
		if err == nil || ctx.Err() != nil || !transient(err) || attempt == maxAttempts || retries.Add(-1) < 0 {
			return data, found, err
		}
		asked := retryPause.After(attempt)
		if refused, ok := errors.AsType[*statusError](err); ok && refused.retryAfter > 0 {
			asked = refused.retryAfter
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < asked {
			return nil, false, err
		}
		if s.pause(ctx, asked) != nil {
			return nil, false, err
		}
	}
}

func (s *httpStore) try(ctx context.Context, u *url.URL) (data []byte, found bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, false, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		if resp.ContentLength > openpgp.MaxSignatureSize {
			return nil, false, errTooLarge
		}
		data, err = readBounded(resp.Body)
		return data, err == nil, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxDrained))
	if resp.StatusCode == http.StatusNotFound {
		return nil, false, nil
	}
	after, _ := transport.RetryAfter(resp.Header.Get("Retry-After"), time.Now())
	return nil, false, &statusError{code: resp.StatusCode, retryAfter: after.Round(time.Second)}
}

// statusError is a response with a status other than OK and Not Found.
type statusError struct {
	code int
	// retryAfter is how long the server asks to wait; zero if it does not ask.
	retryAfter time.Duration
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("the server answered %d %s", e.code, http.StatusText(e.code))
	if e.retryAfter > 0 {
		text += fmt.Sprintf(" and requests a retry after %s", e.retryAfter)
	}
	return text
}

// transient reports whether the same request may soon succeed.
func transient(err error) bool {
	if refused, ok := errors.AsType[*statusError](err); ok {
		switch refused.code {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
			http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.IsTemporary
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// unreachable reports whether there was no response at all, so that a request for another signature would also fail.
func unreachable(err error) bool {
	if _, ok := errors.AsType[*statusError](err); ok {
		return false
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}
