package repository

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/release"
)

// Resolve returns the digest that a pullspec currently refers to. This may be the digest of an index. A pullspec with a digest needs no
// request. DIR, DIR:NAME and DIR@DIGEST refer to an image in a local OCI layout.
func Resolve(ctx context.Context, opts Options, pullspec string) (release.Image, error) {
	if dir, want, ok := layout.SplitReference(pullspec); ok {
		digest, err := layout.NewReader(dir, opts.ManifestBytes).Find(want, attachedName)
		if err != nil {
			return release.Image{}, fmt.Errorf("opening the OCI layout %s: %w", pullspec, err)
		}
		return release.Image{Pullspec: pullspec, Digest: digest}, nil
	}
	ref, err := opts.Access.Reference(pullspec)
	if err != nil {
		return release.Image{}, err
	}
	if byDigest, ok := ref.(name.Digest); ok {
		digest, err := release.ParseDigest(byDigest.DigestStr())
		return release.Image{Pullspec: pullspec, Digest: digest}, err
	}
	s, err := openRemotes(opts, ref)
	if err != nil {
		return release.Image{}, err
	}
	var digest release.Digest
	err = s.try(ctx, request{doing: "resolving", identifier: ref.Identifier()}, func(p place) (err error) {
		digest, err = p.resolve(ctx, ref.Identifier())
		return err
	})
	if err != nil {
		return release.Image{}, err
	}
	return release.Image{Pullspec: pullspec, Digest: digest}, nil
}
