package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// stallTransport gives up a connection on which nothing happens for some time. A slow one may go on for as long as its
// caller has patience.
type stallTransport struct {
	inner http.RoundTripper
	limit time.Duration
}

// RoundTrip implements http.RoundTripper.
func (t *stallTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	answer := t.limit
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		answer *= 5 // a registry may have to move a whole layer before it answers
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	stalled := fmt.Errorf("%s: %w for %s", req.URL.Host, ErrStalled, t.limit)
	timer := time.AfterFunc(answer, func() { cancel(stalled) })

	watched := req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		body := func(inner io.ReadCloser) io.ReadCloser {
			return &sentBody{ReadCloser: inner, timer: timer, limit: t.limit, answer: answer}
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
	resp, err := t.inner.RoundTrip(watched)
	timer.Stop()
	if err != nil {
		err = stallError(ctx, stalled, err)
		cancel(nil)
		return nil, err
	}
	resp.Request = req
	resp.Body = &receivedBody{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, stalled: stalled, timer: timer, limit: t.limit}
	return resp, nil
}

// stallError says what has ended the connection: cancelling it looks like anything to those who were using it.
func stallError(ctx context.Context, stalled, err error) error {
	if errors.Is(context.Cause(ctx), ErrStalled) {
		return stalled
	}
	return err
}

// sentBody runs the timer while the registry has to take what was read. The time that the reading itself takes is not
// the registry's.
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

// receivedBody runs the timer while somebody waits for bytes.
type receivedBody struct {
	io.ReadCloser
	ctx     context.Context //nolint:containedctx // a body has no other way to know it
	cancel  context.CancelCauseFunc
	stalled error
	timer   *time.Timer
	limit   time.Duration
}

// Read implements io.Reader.
func (b *receivedBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.limit)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
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
