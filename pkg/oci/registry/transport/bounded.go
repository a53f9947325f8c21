package transport

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
)

// boundedTransport limits the size of every response except blobs, whose readers have their own limits. It covers manifests, lists of
// referrers, tokens and error texts. Without a limit, an endless response would fill the memory.
type boundedTransport struct {
	inner http.RoundTripper
	limit int64
}

// RoundTrip implements http.RoundTripper.
func (t boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if !blobRequest(req) {
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: t.limit, what: redirect.First(req).URL.Redacted(), limit: t.limit}
	}
	return resp, nil
}

// maxCommas limits the lists in a response, because a list of empty entries needs a hundred times its size in memory. The longest real
// manifests have a few thousand entries.
const maxCommas = 100_000

type boundedBody struct {
	io.ReadCloser
	left, limit int64
	commas      int
	what        string
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("%w: the response of %s has more than %d bytes", failure.ErrLimit, b.what, b.limit)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return 0, fmt.Errorf("%w: the response of %s has more than %d bytes", failure.ErrLimit, b.what, b.limit)
	}
	if b.commas += bytes.Count(p[:n], []byte(",")); b.commas > maxCommas {
		return 0, fmt.Errorf("%w: the response of %s has a list of more than %d items", failure.ErrLimit, b.what, maxCommas)
	}
	return n, err
}
