package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/cluster-version/cvo/pkg/oci/failure"
)

// minBytesPerSecond is far below the rate of every usable connection. Without a minimum, a byte now and then would hold a caller, although
// another mirror may have the content.
const minBytesPerSecond = 1 << 10

// stallTransport closes a connection that makes too little progress for some time.
type stallTransport struct {
	inner http.RoundTripper
	limit time.Duration
}

// RoundTrip implements http.RoundTripper.
func (t *stallTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	patience := patienceFor(req)
	limit := cmp.Or(patience.Limit, t.limit)
	answer := limit
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		answer *= 5 // a registry may have to move a whole layer before it responds
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	stalled := fmt.Errorf("%s: %w for %s", req.URL.Host, failure.ErrStalled, limit)
	timer := time.AfterFunc(answer, func() { cancel(stalled) })

	watched := req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		body := func(inner io.ReadCloser) io.ReadCloser {
			return &sentBody{ReadCloser: inner, timer: timer, limit: limit, answer: answer}
		}
		watched.Body = body(req.Body)
		if req.GetBody != nil {
			watched.GetBody = func() (io.ReadCloser, error) {
				inner, err := req.GetBody()
				if err != nil {
					return nil, err
				}
				return body(inner), nil
			}
		}
	}
	answered := patience.watch(req.URL.Host)
	resp, err := t.inner.RoundTrip(watched)
	timer.Stop()
	answered()
	if err != nil {
		err = stallError(ctx, stalled, err)
		cancel(nil)
		return nil, err
	}
	patience.note(req.URL.Host)
	enough := int(limit.Seconds() * minBytesPerSecond)
	resp.Body = &receivedBody{
		ReadCloser: resp.Body, ctx: ctx, cancel: cancel, timer: timer, limit: limit, enough: enough,
		stalled: fmt.Errorf("%s: %w: fewer than %d bytes in %s", req.URL.Host, failure.ErrStalled, enough, limit),
	}
	return resp, nil
}

// stallError returns the stall as the cause, because users of a canceled connection see arbitrary errors.
func stallError(ctx context.Context, stalled, err error) error {
	if errors.Is(context.Cause(ctx), failure.ErrStalled) {
		return stalled
	}
	return err
}

// sentBody runs the timer while the registry accepts data. It stops the timer while it reads the source.
type sentBody struct {
	io.ReadCloser
	timer         *time.Timer
	limit, answer time.Duration
}

// Read implements io.Reader.
func (b *sentBody) Read(p []byte) (int, error) {
	b.timer.Stop()
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.timer.Reset(b.answer)
	} else {
		b.timer.Reset(b.limit)
	}
	return n, err
}

// receivedBody runs the timer while a reader waits for data. The timer starts again after enough bytes.
type receivedBody struct {
	io.ReadCloser
	ctx     context.Context // an io.Reader has no context parameter
	cancel  context.CancelCauseFunc
	stalled error
	timer   *time.Timer
	limit   time.Duration
	enough  int
	// waited and received are the time and the bytes since the timer started again.
	waited   time.Duration
	received int
}

// Read implements io.Reader.
func (b *receivedBody) Read(p []byte) (int, error) {
	start := time.Now()
	b.timer.Reset(b.limit - b.waited)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	b.waited += time.Since(start)
	if b.received += n; b.received >= b.enough {
		b.waited, b.received = 0, 0
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = stallError(b.ctx, b.stalled, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *receivedBody) Close() error {
	b.timer.Stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
