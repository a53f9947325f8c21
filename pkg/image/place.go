package image

import (
	"context"
	"fmt"
	"io"
	"strings"

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
	// referrers lists what says of itself that it is attached to a digest.
	referrers(ctx context.Context, d release.Digest) ([]v1.Descriptor, error)
}

// remotePlace is a repository of a registry.
type remotePlace struct {
	repo   name.Repository
	puller *remote.Puller
	access *registry.Access
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
	layer, err := p.puller.Layer(ctx, p.repo.Digest(string(d)))
	if err != nil {
		return nil, err
	}
	return layer.Compressed()
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
