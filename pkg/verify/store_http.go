package verify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"

	"github.com/cluster-version/cvo/pkg/release"
)

// maxRedirects bounds how often one request may be sent elsewhere.
const maxRedirects = 5

// httpStore is a signature store on a web server.
type httpStore struct {
	base   *url.URL
	client *http.Client
}

func newHTTPStore(base *url.URL, client *http.Client) *httpStore {
	if client == nil {
		client = http.DefaultClient
	}
	bounded := *client
	bounded.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("stopped after %d redirects", maxRedirects)
		}
		if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
			return errors.New("refusing a redirect from https to http")
		}
		return nil
	}
	return &httpStore{base: base, client: &bounded}
}

// String is the URL without a password.
func (s *httpStore) String() string { return s.base.Redacted() }

// Signatures asks for signature-1 to signature-9. Not Found ends the search; any other failure concerns only the
// number it was met at. What is found is served by anyone who can answer for the URL: it proves nothing yet.
func (s *httpStore) Signatures(ctx context.Context, digest release.Digest) iter.Seq2[Signature, error] {
	return func(yield func(Signature, error) bool) {
		for n := firstSignature; n <= lastSignature; n++ {
			u := s.base.JoinPath(StoreDir(digest), signatureName(n))
			sig := Signature{Name: signatureName(n), Location: u.Redacted()}
			data, found, err := s.get(ctx, u)
			switch {
			case ctx.Err() != nil:
				yield(sig, ctx.Err())
				return
			case err != nil:
				err = fmt.Errorf("%s: %s", sig.Name, plainNetworkError(err))
			case !found:
				return
			case len(data) == 0:
				continue
			}
			sig.Message = data
			if !yield(sig, err) {
				return
			}
		}
	}
}

func (s *httpStore) get(ctx context.Context, u *url.URL) (data []byte, found bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, false, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		data, err = readBounded(resp.Body)
		return data, err == nil, err
	case http.StatusNotFound:
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("the server answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
}
