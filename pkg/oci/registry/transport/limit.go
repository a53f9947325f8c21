package transport

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// limitTransport limits the concurrent requests to one registry. It never causes a deadlock, because no request holds a slot while it
// waits for a slot of the same kind. A download holds a slot until its body has been read. It may depend on short requests, which have
// separate slots. Uploads, which may read from a download, need no slot.
type limitTransport struct {
	inner http.RoundTripper
	max   int

	mu    sync.Mutex
	hosts map[string]*slots
}

type slots struct {
	downloads, requests chan struct{}
}

func newLimitTransport(inner http.RoundTripper, limit int) *limitTransport {
	return &limitTransport{inner: inner, max: limit, hosts: map[string]*slots{}}
}

// RoundTrip implements http.RoundTripper.
func (t *limitTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil && req.Body != http.NoBody {
		return t.inner.RoundTrip(req)
	}
	kind := t.slots(req.URL.Host).requests
	if req.Method == http.MethodGet && blobRequest(req) {
		kind = t.slots(req.URL.Host).downloads
	}
	leave, err := enter(req.Context(), kind)
	if err != nil {
		return nil, err
	}
	resp, err := t.inner.RoundTrip(req)
	if err != nil {
		leave()
		return nil, err
	}
	resp.Body = &slotBody{ReadCloser: resp.Body, leave: leave}
	return resp, nil
}

func (t *limitTransport) slots(host string) *slots {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.hosts[host]
	if !ok {
		p = &slots{downloads: make(chan struct{}, t.max), requests: make(chan struct{}, t.max)}
		t.hosts[host] = p
	}
	return p
}

func enter(ctx context.Context, kind chan struct{}) (leave func(), err error) {
	select {
	case kind <- struct{}{}:
		return sync.OnceFunc(func() { <-kind }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// slotBody releases its slot after it has been read or closed.
type slotBody struct {
	io.ReadCloser
	leave func()
}

// Read implements io.Reader.
func (b *slotBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.leave()
	}
	return n, err
}

// Close implements io.Closer.
func (b *slotBody) Close() error {
	defer b.leave()
	return b.ReadCloser.Close()
}
