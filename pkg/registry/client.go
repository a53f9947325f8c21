package registry

import (
	"context"
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
