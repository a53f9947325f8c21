package registry

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	ggcrtransport "github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/cluster-version/cvo/pkg/oci/registry/credentials"
	"github.com/cluster-version/cvo/pkg/oci/registry/location"
	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
	"github.com/cluster-version/cvo/pkg/oci/registry/transport"
)

// Client returns a client for a repository's registry, with credentials for the permissions in scopes. It is for requests that the library
// cannot make. It fails if it cannot obtain a token.
func (a *Access) Client(ctx context.Context, repo name.Repository, scopes ...string) (*http.Client, error) {
	a.hosts.Name(repo.RegistryStr())
	auth, err := authn.Resolve(ctx, a.keychain(), repo)
	if err != nil {
		return nil, fmt.Errorf("finding credentials for %s: %w", repo, err)
	}
	t, err := ggcrtransport.NewWithContext(ctx, repo.Registry, auth, ggcrtransport.NewUserAgent(a.transport, userAgent), scopes)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: t}, nil
}

// pullClient returns a client over inner with credentials to read one repository.
func (a *Access) pullClient(ctx context.Context, inner http.RoundTripper, host, repository string) (*http.Client, error) {
	registry, err := a.registry(host)
	if err != nil {
		return nil, err
	}
	repo := registry.Repo(repository)
	auth, err := authn.Resolve(ctx, a.keychain(), repo)
	if err != nil {
		return nil, err
	}
	authenticated, err := ggcrtransport.NewWithContext(ctx, registry, auth, ggcrtransport.NewUserAgent(redirect.HideAddresses(inner), userAgent), []string{repo.Scope(ggcrtransport.PullScope)})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: authenticated}, nil
}

// keychain returns the credentials for registries. The transport keeps passwords and refresh tokens off plain HTTP, but cannot distinguish
// a stored access token from one that a token server has issued.
func (a *Access) keychain() authn.Keychain {
	if a.opts.PlainCredentials {
		return a.opts.Keychain
	}
	return credentials.WithoutAccessTokens(a.opts.Keychain, a.mayBePlain)
}

// mayBePlain reports whether a registry may be contacted over plain HTTP and is not at a loopback address.
func (a *Access) mayBePlain(registry string) bool {
	return a.insecure(registry) && !location.IsLoopback(registry)
}

// WebClient returns a client for web servers other than registries, such as signature stores. It uses the same certificates and proxy. It
// sends no credentials, and makes no exceptions for insecure registries. It rejects redirects to forbidden addresses (redirect.Judge).
func (a *Access) WebClient() *http.Client { return &http.Client{Transport: a.webTransport()} }

// RetryingWebClient returns a WebClient that retries requests after transient failures.
func (a *Access) RetryingWebClient() *http.Client {
	return &http.Client{Transport: transport.Retry(a.webTransport(), a.opts.Backoff)}
}

func (a *Access) webTransport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.opts.Authorities}
	t.DialContext = a.dialContext
	if a.opts.Proxy != nil {
		t.Proxy = a.opts.Proxy
	}
	return redirect.NewTransport(t, a.opts.Dial, nil, nil)
}
