package registry

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// boundedTransport bounds every answer but blobs, whose readers count for themselves: manifests, lists of referrers,
// tokens, error texts. Without it an endless answer would be read into memory.
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
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: t.limit, what: firstRequest(req).URL.Redacted(), limit: t.limit}
	}
	return resp, nil
}

// maxCommas bounds the lists in an answer: a list of nothings needs a hundred times its size once it is read into memory.
// The longest honest manifests have a few thousand.
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
		return 0, fmt.Errorf("%w: %s answers with more than %d bytes", ErrLimit, b.what, b.limit)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return 0, fmt.Errorf("%w: %s answers with more than %d bytes", ErrLimit, b.what, b.limit)
	}
	if b.commas += bytes.Count(p[:n], []byte(",")); b.commas > maxCommas {
		return 0, fmt.Errorf("%w: %s answers with a list of more than %d things", ErrLimit, b.what, maxCommas)
	}
	return n, err
}
