package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
)

const (
	// maxResumes is the maximum number of attempts to resume without resumeProgress bytes of progress.
	maxResumes     = 5
	resumeProgress = 1 << 20
)

// resumeTransport resumes interrupted downloads of blobs.
type resumeTransport struct {
	inner   http.RoundTripper
	backoff backoff.Doubling
	client  func(ctx context.Context, inner http.RoundTripper, host, repository string) (*http.Client, error)
}

// RoundTrip implements http.RoundTripper.
func (t *resumeTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.inner.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK || req.Method != http.MethodGet || req.Header.Get("Range") != "" {
		return resp, err
	}
	blob := redirect.First(req).URL
	repository, ok := blobRepository(blob.Path)
	if !ok {
		return resp, nil
	}
	resp.Body = &resumedBody{
		ReadCloser: resp.Body, ctx: req.Context(), transport: t, blob: blob, repository: repository, size: resp.ContentLength,
	}
	return resp, nil
}

// blobRepository returns the repository in the path of a blob: /v2/<repository>/blobs/<digest>.
func blobRepository(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, "/v2/")
	i := strings.LastIndex(rest, "/blobs/")
	if !ok || i < 1 || strings.Contains(rest[i+len("/blobs/"):], "/") {
		return "", false
	}
	return rest[:i], true
}

// resumedBody is the body of a blob, read over one or more connections.
type resumedBody struct {
	io.ReadCloser                 // the current connection
	ctx           context.Context // an io.Reader has no context parameter
	transport     *resumeTransport
	blob          *url.URL
	repository    string
	// size is the size of the whole blob; -1 if unknown.
	size, offset int64
	// resumes counts the attempts since the last progress. whole is set if the registry cannot serve a part of a blob.
	resumes int
	mark    int64
	whole   bool
	// broken is the error of the current connection. done is the final error of the body.
	broken, done error
}

// Read implements io.Reader.
func (b *resumedBody) Read(p []byte) (int, error) {
	for b.done == nil {
		if b.broken != nil {
			if b.done = b.resume(); b.done != nil {
				break
			}
		}
		n, err := b.ReadCloser.Read(p)
		b.offset += int64(n)
		if b.offset-b.mark >= resumeProgress {
			b.mark, b.resumes = b.offset, 0
		}
		switch {
		case errors.Is(err, io.EOF) && (b.size < 0 || b.offset >= b.size):
			b.done = io.EOF
		case errors.Is(err, io.EOF):
			b.broken = io.ErrUnexpectedEOF
		case err != nil:
			b.broken = err
		}
		if n > 0 || len(p) == 0 {
			return n, nil
		}
	}
	return 0, b.done
}

// resume replaces the connection with one that starts at the offset, or returns the error that ends the download.
func (b *resumedBody) resume() error {
	_ = b.ReadCloser.Close()
	for {
		switch {
		case b.ctx.Err() != nil:
			return context.Cause(b.ctx)
		case !isResumable(b.broken) || b.resumes >= maxResumes || b.resumes >= maxSlow && failure.IsSlow(b.broken):
			return fmt.Errorf("downloading %s from %s: the connection broke at byte %d, resumed %d times: %w",
				b.blob.Path, b.blob.Host, b.offset, b.resumes, b.broken)
		}
		if b.resumes > 0 {
			if err := backoff.Sleep(b.ctx, jitter(b.transport.backoff.After(b.resumes))); err != nil {
				return err
			}
		}
		b.resumes++
		body, err := b.reconnect()
		if err == nil {
			b.ReadCloser, b.broken = body, nil
			return nil
		}
		b.broken = err
	}
}

// errPart means that a registry did not send the requested part of a blob.
var errPart = errors.New("the registry did not send the requested part")

func isResumable(err error) bool {
	if status, ok := errors.AsType[*transport.Error](err); ok {
		return status.Temporary()
	}
	return errors.Is(err, errPart) || failure.IsTransient(err)
}

// reconnect requests the missing part. It sends the request to the registry again, because the target of the redirect and the old token
// may have expired.
func (b *resumedBody) reconnect() (io.ReadCloser, error) {
	client, err := b.transport.client(b.ctx, b.transport.inner, b.blob.Host, b.repository)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(b.ctx, http.MethodGet, b.blob.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	if !b.whole {
		part := fmt.Sprintf("bytes=%d-", b.offset)
		if b.size > 0 {
			part += fmt.Sprint(b.size - 1) // some registries do not support a range without an end
		}
		req.Header.Set("Range", part)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := b.rest(resp)
	if err != nil {
		_ = resp.Body.Close()
	}
	return body, err
}

// rest returns the body from the offset on.
func (b *resumedBody) rest(resp *http.Response) (io.ReadCloser, error) {
	if err := transport.CheckError(resp, http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable); err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		// The digest of the whole blob also covers the part that was read before.
		_, err := io.CopyN(io.Discard, resp.Body, b.offset)
		return resp.Body, err
	}
	if resp.StatusCode == http.StatusPartialContent && rangeFits(resp.Header.Get("Content-Range"), b.offset, b.size) {
		return resp.Body, nil
	}
	b.whole = true
	return nil, fmt.Errorf("%w: status %d, Content-Range %q", errPart, resp.StatusCode, resp.Header.Get("Content-Range"))
}

// rangeFits reports whether a Content-Range continues the download. Its format is bytes <first>-<last>/<size>, with * for an unknown size.
func rangeFits(value string, offset, size int64) bool {
	var first, last int64
	var whole string
	if n, err := fmt.Sscanf(value, "bytes %d-%d/%s", &first, &last, &whole); n != 3 || err != nil || first != offset {
		return false
	}
	return size < 0 || whole == "*" || whole == fmt.Sprint(size)
}
