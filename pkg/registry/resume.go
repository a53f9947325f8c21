package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

const (
	// maxResumes is how often a download is resumed without getting on by resumeProgress.
	maxResumes     = 5
	resumeProgress = 1 << 20
)

// resumeTransport goes on with downloads of blobs that break off, where they broke off.
type resumeTransport struct {
	inner  http.RoundTripper
	access *Access
}

// RoundTrip implements http.RoundTripper.
func (t *resumeTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.inner.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK || req.Method != http.MethodGet || req.Header.Get("Range") != "" {
		return resp, err
	}
	blob := firstRequest(req).URL
	repository, ok := blobRepository(blob.Path)
	if !ok {
		return resp, nil
	}
	resp.Body = &resumedBody{
		ReadCloser: resp.Body, ctx: req.Context(), transport: t, blob: blob, repository: repository, size: resp.ContentLength,
	}
	return resp, nil
}

// blobRepository is the repository in the path of a blob, which is /v2/<repository>/blobs/<digest>.
func blobRepository(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, "/v2/")
	i := strings.LastIndex(rest, "/blobs/")
	if !ok || i < 1 || strings.Contains(rest[i+len("/blobs/"):], "/") {
		return "", false
	}
	return rest[:i], true
}

// resumedBody is the body of a blob, over as many connections as it takes.
type resumedBody struct {
	io.ReadCloser                 // the connection of the moment
	ctx           context.Context //nolint:containedctx // a body has no other way to know it
	transport     *resumeTransport
	blob          *url.URL
	repository    string
	// size is that of the whole, -1 if the registry does not say.
	size, offset int64
	// resumes counts since the download last got on; whole is set if the registry cannot be asked for a part.
	resumes int
	mark    int64
	whole   bool
	// broken is why the connection of the moment gives no more, done why the body does.
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

// resume replaces the connection by one that begins at the offset, or returns why the download has come to its end.
func (b *resumedBody) resume() error {
	_ = b.ReadCloser.Close()
	for {
		switch {
		case b.ctx.Err() != nil:
			return context.Cause(b.ctx)
		case !worthResuming(b.broken) || b.resumes >= maxResumes || b.resumes >= maxSlow && slow(b.broken):
			return fmt.Errorf("downloading %s from %s: it broke off at byte %d, resumed %d times: %w",
				b.blob.Path, b.blob.Host, b.offset, b.resumes, b.broken)
		}
		if b.resumes > 0 {
			if err := wait(b.ctx, jitter(b.transport.access.opts.Backoff<<(b.resumes-1))); err != nil {
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

// errPart means that a registry answered a request for a part of a blob with something else.
var errPart = errors.New("not the part that was asked for")

func worthResuming(err error) bool {
	if status, ok := errors.AsType[*transport.Error](err); ok {
		return status.Temporary()
	}
	return errors.Is(err, errPart) || passing(err)
}

// reconnect asks for what is missing. It begins at the registry again, with a token of its own and through the redirect:
// the address that a registry redirects to, like the token that it was got with, may not be valid for long.
func (b *resumedBody) reconnect() (io.ReadCloser, error) {
	client, err := b.transport.access.client(b.ctx, b.transport.inner, b.blob.Host, b.repository)
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
			part += fmt.Sprint(b.size - 1) // not all registries understand a range without an end
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

// rest is the answer from the offset on.
func (b *resumedBody) rest(resp *http.Response) (io.ReadCloser, error) {
	if err := transport.CheckError(resp, http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable); err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		// What was read before is checked with the rest, by the digest of the whole.
		_, err := io.CopyN(io.Discard, resp.Body, b.offset)
		return resp.Body, err
	}
	if resp.StatusCode == http.StatusPartialContent && rangeFits(resp.Header.Get("Content-Range"), b.offset, b.size) {
		return resp.Body, nil
	}
	b.whole = true
	return nil, fmt.Errorf("%w: status %d, Content-Range %q", errPart, resp.StatusCode, resp.Header.Get("Content-Range"))
}

// rangeFits checks a Content-Range: bytes <first>-<last>/<size>, with * for a size that is not known.
func rangeFits(value string, offset, size int64) bool {
	var first, last int64
	var whole string
	if n, err := fmt.Sscanf(value, "bytes %d-%d/%s", &first, &last, &whole); n != 3 || err != nil || first != offset {
		return false
	}
	return size < 0 || whole == "*" || whole == fmt.Sprint(size)
}

// client speaks to one repository with its own credentials, for reading.
func (a *Access) client(ctx context.Context, inner http.RoundTripper, host, repository string) (*http.Client, error) {
	registry, err := a.registry(host)
	if err != nil {
		return nil, err
	}
	repo := registry.Repo(repository)
	credentials, err := authn.Resolve(ctx, a.opts.Keychain, repo)
	if err != nil {
		return nil, err
	}
	authenticated, err := transport.NewWithContext(ctx, registry, credentials, transport.NewUserAgent(inner, userAgent), []string{repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: authenticated, CheckRedirect: checkRedirect}, nil
}

// checkRedirect keeps a registry from sending us to addresses within our own network, as the library does.
func checkRedirect(req *http.Request, via []*http.Request) error {
	from, to := via[0].URL.Hostname(), req.URL.Hostname()
	switch {
	case len(via) >= 10:
		return errors.New("redirected more than 10 times")
	case from != to && !public(to):
		return fmt.Errorf("registry %s redirects to the address %s, which is not a public one", from, to)
	}
	return nil
}

// public reports whether a host is a name or a public address. What ends in a number is an address, in one of the odd
// ways that some resolvers understand.
func public(host string) bool {
	host, _, _ = strings.Cut(host, "%")
	if address, err := netip.ParseAddr(host); err == nil {
		address = address.Unmap()
		return address.IsGlobalUnicast() && !address.IsPrivate()
	}
	last := strings.ToLower(host[strings.LastIndex(host, ".")+1:])
	return strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(last, "0x")
}
