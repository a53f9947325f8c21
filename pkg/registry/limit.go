package registry

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// limitTransport bounds how much one registry has to do at a time. There are places for downloads, which last until
// they are read, and places for the short requests that a download may depend on; uploads, which may be fed by a
// download, need none. So nobody holds a place while waiting for one of the same kind.
type limitTransport struct {
	inner http.RoundTripper
	max   int

	mu    sync.Mutex
	hosts map[string]*places
}

type places struct {
	downloads, requests chan struct{}
}

func newLimitTransport(inner http.RoundTripper, limit int) *limitTransport {
	return &limitTransport{inner: inner, max: limit, hosts: map[string]*places{}}
}

// RoundTrip implements http.RoundTripper.
func (t *limitTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil && req.Body != http.NoBody {
		return t.inner.RoundTrip(req)
	}
	kind := t.places(req.URL.Host).requests
	if req.Method == http.MethodGet && blobRequest(req) {
		kind = t.places(req.URL.Host).downloads
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
	resp.Body = &placedBody{ReadCloser: resp.Body, leave: leave}
	return resp, nil
}

func (t *limitTransport) places(host string) *places {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.hosts[host]
	if !ok {
		p = &places{downloads: make(chan struct{}, t.max), requests: make(chan struct{}, t.max)}
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

// placedBody leaves its place when it has been read or is not wanted any more.
type placedBody struct {
	io.ReadCloser
	leave func()
}

// Read implements io.Reader.
func (b *placedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.leave()
	}
	return n, err
}

// Close implements io.Closer.
func (b *placedBody) Close() error {
	defer b.leave()
	return b.ReadCloser.Close()
}
