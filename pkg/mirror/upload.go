package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// upload is one blob on its way into a repository (OCI distribution specification, pushing blobs).
type upload struct {
	client *http.Client
	repo   name.Repository
	desc   v1.Descriptor

	// mu: the client may still read the bytes when it has answered already.
	mu sync.Mutex
	// failed is what the source of the bytes did wrong, of which the client says only that the request broke off.
	failed error
}

func (u *upload) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failed = err
}

// cause is what the source of the bytes did wrong, nil if nothing.
func (u *upload) cause() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.failed
}

func (u *upload) url(path string, query url.Values) string {
	return (&url.URL{
		Scheme: u.repo.Scheme(), Host: u.repo.RegistryStr(),
		Path: "/v2/" + u.repo.RepositoryStr() + "/blobs/" + path, RawQuery: query.Encode(),
	}).String()
}

// there asks whether the repository has the blob.
func (u *upload) there(ctx context.Context) (bool, error) {
	// A registry that knows no such question is sent the blob.
	a, err := u.do(ctx, http.MethodHead, u.url(u.desc.Digest.String(), nil), nil, http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed)
	return a.status == http.StatusOK, err
}

// begin asks the registry to take the blob from another of its repositories, or else from here.
func (u *upload) begin(ctx context.Context, from string) (location string, mounted bool, err error) {
	query := url.Values{}
	if from != "" {
		query = url.Values{"mount": {u.desc.Digest.String()}, "from": {from}}
	}
	a, err := u.do(ctx, http.MethodPost, u.url("uploads/", query), nil, http.StatusCreated, http.StatusAccepted)
	if err != nil || a.status == http.StatusCreated {
		return "", err == nil, err
	}
	location, err = u.location(a)
	return location, false, err
}

// location is where the registry wants the bytes. Another host is fine, as registries put blobs into stores of others;
// one without TLS is not, unless the registry itself is spoken to like that.
func (u *upload) location(a answer) (string, error) {
	if a.location == "" {
		return "", errors.New("the registry names no place for the upload")
	}
	at, err := a.from.Parse(a.location)
	if err != nil {
		return "", fmt.Errorf("the registry names no place for the upload: %w", err)
	}
	if at.Scheme != a.from.Scheme && at.Scheme != "https" {
		return "", fmt.Errorf("the registry wants the upload at %s, without TLS", at.Redacted())
	}
	query := at.Query()
	query.Set("digest", u.desc.Digest.String())
	at.RawQuery = query.Encode()
	return at.String(), nil
}

// send puts all of the blob at once. The registry checks its digest, and so does who reads it here.
func (u *upload) send(ctx context.Context, location string, open func() (io.ReadCloser, error)) error {
	body, err := open()
	if err != nil {
		u.fail(err)
		return err
	}
	_, err = u.do(ctx, http.MethodPut, location, &watchedBody{ReadCloser: body, upload: u}, http.StatusCreated, http.StatusNoContent)
	return err
}

// answer is what matters of a registry's answer.
type answer struct {
	status   int
	from     *url.URL
	location string
}

func (u *upload) do(ctx context.Context, method, at string, body io.ReadCloser, wanted ...int) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, at, nil)
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		req.Body, req.ContentLength = body, u.desc.Size
		if u.desc.Size == 0 {
			req.Body = http.NoBody
			_ = body.Close() // nobody else would
		}
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := u.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	if err := transport.CheckError(resp, wanted...); err != nil {
		return answer{}, err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	return answer{status: resp.StatusCode, from: resp.Request.URL, location: resp.Header.Get("Location")}, err
}

// watchedBody remembers what its source did wrong.
type watchedBody struct {
	io.ReadCloser
	upload *upload
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.upload.fail(err)
	}
	return n, err
}
