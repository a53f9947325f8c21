package image

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// place is somewhere that content of one image repository may lie. What it gives is not checked yet. Errors are as the
// registry, or the disk, gives them.
type place interface {
	fmt.Stringer
	// resolve tells which digest a tag stands for.
	resolve(ctx context.Context, tag string) (release.Digest, error)
	// document gives a manifest or an index, by digest or by tag.
	document(ctx context.Context, identifier string) ([]byte, error)
	blob(ctx context.Context, d release.Digest) (io.ReadCloser, error)
	// lacks reports whether the place is known not to have a tag, without asking for that one.
	lacks(ctx context.Context, tag string) bool
	// referrers lists what says of itself that it is attached to a digest.
	referrers(ctx context.Context, d release.Digest) ([]v1.Descriptor, error)
}

// remotePlace is a repository of a registry.
type remotePlace struct {
	repo   name.Repository
	puller *remote.Puller
	access *registry.Access

	listing  sync.Once
	attached map[string]bool // the tags that attach something; nil if they could not be listed
}

// String implements fmt.Stringer.
func (p *remotePlace) String() string { return p.repo.String() }

func (p *remotePlace) ref(identifier string) name.Reference { return reference(p.repo, identifier) }

// reference names something in a repository by digest or tag.
func reference(repo name.Repository, identifier string) name.Reference {
	if d, err := release.ParseDigest(identifier); err == nil {
		return repo.Digest(string(d))
	}
	return repo.Tag(identifier)
}

// resolve implements place. HEAD may be refused or lack headers where GET works, so its failure is not yet an answer; a
// lie about the digest shows when the content is fetched by it.
func (p *remotePlace) resolve(ctx context.Context, tag string) (release.Digest, error) {
	ref := p.ref(tag)
	hash := v1.Hash{}
	if desc, err := p.puller.Head(ctx, ref); err == nil {
		hash = desc.Digest
	} else if desc, err := p.puller.Get(ctx, ref); err == nil {
		hash = desc.Digest
	} else {
		return "", err
	}
	return release.ParseDigest(hash.String())
}

// document implements place.
func (p *remotePlace) document(ctx context.Context, identifier string) ([]byte, error) {
	desc, err := p.puller.Get(ctx, p.ref(identifier))
	if err != nil && strings.HasPrefix(err.Error(), "manifest digest: ") {
		// The library notices a wrong digest itself, and has no kind of error for it.
		return nil, fmt.Errorf("%w: %w", ErrIntegrity, err)
	}
	if err != nil {
		return nil, err
	}
	return desc.Manifest, nil
}

// blob implements place.
func (p *remotePlace) blob(ctx context.Context, d release.Digest) (io.ReadCloser, error) {
	// A descriptor's own "urls" are not followed: they would let an image name any host.
	t := &tap{}
	layer, err := p.puller.Layer(context.WithValue(ctx, tapKey{}, t), p.repo.Digest(string(d)))
	if err != nil {
		return nil, err
	}
	closer, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	if t.body == nil {
		return closer, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{t.body, closer}, nil
}

// tap is where the transport leaves the body of its latest answer to a request. The library wraps the body of a blob to
// hash what is read of it; our readers do that, and must, as they go on at another place, so once is enough.
type tap struct{ body io.Reader }

type tapKey struct{}

// tappedTransport fills the tap of a request's context.
type tappedTransport struct{ inner http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t tappedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.inner.RoundTrip(req)
	if tap, ok := req.Context().Value(tapKey{}).(*tap); ok && err == nil {
		tap.body = resp.Body
	}
	return resp, err
}

// maxTagPages is how many pages of tags, of a thousand each as a rule, are read rather than asking for single tags.
const maxTagPages = 5

// lacks implements place. A list that is refused, empty or too long says nothing.
func (p *remotePlace) lacks(ctx context.Context, tag string) bool {
	p.listing.Do(func() { p.attached = p.attachedTags(ctx) })
	return p.attached != nil && !p.attached[tag]
}

func (p *remotePlace) attachedTags(ctx context.Context) map[string]bool {
	lister, err := p.puller.Lister(ctx, p.repo)
	if err != nil {
		return nil
	}
	attached, empty := map[string]bool{}, true
	for range maxTagPages {
		if !lister.HasNext() {
			break
		}
		page, err := lister.Next(ctx)
		if err != nil {
			return nil
		}
		for _, tag := range page.Tags {
			empty = false
			if attachedName(tag) {
				attached[tag] = true
			}
		}
	}
	if empty || lister.HasNext() {
		return nil
	}
	return attached
}

// referrers implements place, by the referrers API, or the fallback tag where a registry has none (OCI distribution
// specification).
func (p *remotePlace) referrers(ctx context.Context, d release.Digest) ([]v1.Descriptor, error) {
	ref := p.repo.Digest(string(d))
	// The puller is the one that has authenticated already; the context is given apart because reusing drops it.
	index, err := remote.Referrers(ref, append(p.access.Remote(), remote.Reuse(p.puller), remote.WithContext(ctx))...)
	if err != nil {
		return nil, err
	}
	raw, err := index.RawManifest()
	if err != nil {
		return nil, err
	}
	doc, err := parseDocument(raw)
	if err != nil {
		return nil, err
	}
	return doc.Manifests, nil
}
