package target

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

// upload uploads a blob to a repository (OCI distribution specification, pushing blobs).
type upload struct {
	client *http.Client
	repo   name.Repository
	desc   v1.Descriptor

	// mu guards failed, because the client may still read the body after the response.
	mu sync.Mutex
	// failed is the error of the body's source. The client's own error only says that the request was aborted.
	failed error
}

func (u *upload) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failed = err
}

// cause returns the error of the body's source, or nil.
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

// exists reports whether the repository has the blob.
func (u *upload) exists(ctx context.Context) (bool, error) {
	// If the registry does not support HEAD, the blob is sent.
	a, err := u.do(ctx, http.MethodHead, u.url(u.desc.Digest.String(), nil), nil, http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed)
	return a.status == http.StatusOK, err
}

// begin starts an upload. If from is set, it asks the registry to mount the blob from that repository. It returns either the URL for the
// upload or mounted.
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

// location returns the URL for the upload. It may be on another host, because registries may use external storage. It may lack TLS only if
// the registry itself is used without TLS.
func (u *upload) location(a answer) (string, error) {
	if a.location == "" {
		return "", errors.New("the registry sent no upload location")
	}
	at, err := a.from.Parse(a.location)
	if err != nil {
		return "", fmt.Errorf("the registry sent an invalid upload location: %w", err)
	}
	if at.Scheme != a.from.Scheme && at.Scheme != "https" {
		return "", fmt.Errorf("the registry redirects the upload to %s, which does not use TLS", at.Redacted())
	}
	query := at.Query()
	query.Set("digest", u.desc.Digest.String())
	at.RawQuery = query.Encode()
	return at.String(), nil
}

// send sends the whole blob in one request. Both the registry and the local reader verify its digest.
func (u *upload) send(ctx context.Context, location string, open func() (io.ReadCloser, error)) error {
	body, err := open()
	if err != nil {
		u.fail(err)
		return err
	}
	_, err = u.do(ctx, http.MethodPut, location, &watchedBody{ReadCloser: body, upload: u}, http.StatusCreated, http.StatusNoContent)
	return err
}

// answer is the relevant part of a registry's response.
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
			_ = body.Close() // the client does not close an empty body
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
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // makes the connection reusable
	return answer{status: resp.StatusCode, from: resp.Request.URL, location: resp.Header.Get("Location")}, err
}

// watchedBody records read errors of its source in the upload.
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
