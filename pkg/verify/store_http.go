package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

const (
	// maxAttempts bounds how often one signature is asked for, maxRetries how many repetitions one search has in all:
	// a server in trouble fails at every number.
	maxAttempts = 3
	maxRetries  = 4
	// firstPause is the time before the first repetition; every further one waits twice as long, unless the server
	// asks for another time.
	firstPause = 200 * time.Millisecond
	// maxDrained bounds what is read of an answer that is of no use, so that its connection can be used again.
	maxDrained = 4 << 10
)

// httpStore is a signature store on a web server.
type httpStore struct {
	base   *url.URL
	client *http.Client
	// pause waits between attempts; tests put one in that only writes down.
	pause func(ctx context.Context, d time.Duration) error
}

func newHTTPStore(base *url.URL, client *http.Client) *httpStore {
	if client == nil {
		client = http.DefaultClient
	}
	return &httpStore{base: base, client: registry.StayInTLS(client), pause: pause}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// String is the URL without a password or a query, which may be a secret, too.
func (s *httpStore) String() string { return shown(s.base) }

func shown(u *url.URL) string {
	plain := *u
	plain.RawQuery, plain.ForceQuery, plain.Fragment, plain.RawFragment = "", false, "", ""
	return plain.Redacted()
}

// Signatures asks for signature-1 to signature-9. Not Found ends the search; any other answer concerns only the
// number it was given for. A server that cannot be reached is not asked again. What is found is served by anyone who
// can answer for the URL: it proves nothing yet.
//
// The first signature is asked for alone, because most often there is one, and it is right. Where more are needed,
// as many are asked for at the same time as have been looked at so far.
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

// httpAnswer is what the server said about one signature.
type httpAnswer struct {
	Signature
	found       bool
	unreachable bool
	err         error
}

// fetch asks for several signatures at the same time and returns the answers in their order.
func (s *httpStore) fetch(ctx context.Context, digest release.Digest, first, width int, retries *atomic.Int32) []httpAnswer {
	answers := make([]httpAnswer, width)
	var g errgroup.Group
	for i := range answers {
		g.Go(func() error {
			u := s.base.JoinPath(StoreDir(digest), signatureName(first+i))
			a := httpAnswer{Signature: Signature{Name: signatureName(first + i), Location: shown(u)}}
			var err error
			a.Message, a.found, err = s.get(ctx, u, retries)
			if err != nil {
				a.unreachable = unreachable(err)
				a.err = &signatureError{a.Name, api.Reworded(err, plainNetworkError(err))}
			}
			answers[i] = a
			return nil
		})
	}
	_ = g.Wait() // What fails is an answer.
	return answers
}

// get asks again where that may help, as long as this search has repetitions and time left.
func (s *httpStore) get(ctx context.Context, u *url.URL, retries *atomic.Int32) (data []byte, found bool, err error) {
	wait := firstPause
	for attempt := 1; ; attempt++ {
		data, found, err = s.try(ctx, u)
		if err == nil || ctx.Err() != nil || !transient(err) || attempt == maxAttempts || retries.Add(-1) < 0 {
			return data, found, err
		}
		asked := wait
		if refused, ok := errors.AsType[*statusError](err); ok && refused.retryAfter > 0 {
			asked = refused.retryAfter
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < asked {
			return nil, false, err
		}
		if s.pause(ctx, asked) != nil {
			return nil, false, err
		}
		wait *= 2
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
		if resp.ContentLength > MaxSignatureSize {
			return nil, false, errTooLarge
		}
		data, err = readBounded(resp.Body)
		return data, err == nil, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxDrained))
	if resp.StatusCode == http.StatusNotFound {
		return nil, false, nil
	}
	return nil, false, &statusError{code: resp.StatusCode, retryAfter: retryAfter(resp.Header, time.Now())}
}

// statusError is an answer that is neither a signature nor the word that there is none.
type statusError struct {
	code int
	// retryAfter is how long the server asks to be left alone, zero if it does not say.
	retryAfter time.Duration
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("the server answered %d %s", e.code, http.StatusText(e.code))
	if e.retryAfter > 0 {
		text += fmt.Sprintf(" and asks to come back after %s", e.retryAfter)
	}
	return text
}

// retryAfter reads the header of that name (RFC 9110, section 10.2.3), which is a number of seconds or a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return at.Sub(now).Round(time.Second)
	}
	return 0
}

// transient tells whether the same request may have another answer in a moment.
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

// unreachable tells whether no answer came at all, so that asking for another signature would end the same.
func unreachable(err error) bool {
	if _, ok := errors.AsType[*statusError](err); ok {
		return false
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}
