package registry

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Client speaks to the registry of a repository with the credentials for that and the rights that the scopes name, for
// requests that the library does not make as they are needed.
func (a *Access) Client(ctx context.Context, repo name.Repository, scopes ...string) (*http.Client, error) {
	auth, err := authn.Resolve(ctx, a.opts.Keychain, repo)
	if err != nil {
		return nil, fmt.Errorf("finding credentials for %s: %w", repo, err)
	}
	t, err := transport.NewWithContext(ctx, repo.Registry, auth, transport.NewUserAgent(a.transport, userAgent), scopes)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: t}, nil
}

// WebClient speaks to web servers that are no registries, such as signature stores: with the same certificates and the
// same proxy, without credentials, and without the exceptions that are made for insecure registries.
func (a *Access) WebClient() *http.Client { return &http.Client{Transport: a.webTransport()} }

// RetryingWebClient is a WebClient that asks again what a server may answer better a moment later, as registries are asked.
func (a *Access) RetryingWebClient() *http.Client {
	return &http.Client{Transport: &retryTransport{inner: a.webTransport(), backoff: a.opts.Backoff}}
}

func (a *Access) webTransport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.opts.Authorities}
	if a.opts.Proxy != nil {
		t.Proxy = a.opts.Proxy
	}
	return t
}
