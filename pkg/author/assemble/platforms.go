package assemble

import (
	"context"
	"errors"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/release"
)

// Platforms opens the images in an index as bases of a release. It returns none if base is not an index.
func Platforms(ctx context.Context, images *image.Reader, base release.Image) ([]Platform, error) {
	return EachPlatform(ctx, images, base, func(child release.Image) (v1.Image, release.Digest, error) {
		img, err := images.Open(ctx, child)
		return img, child.Digest, err
	})
}

// EachPlatform returns the base for each image in an index. open returns the base and its digest. EachPlatform returns none if the image
// is not an index.
func EachPlatform(ctx context.Context, images *image.Reader, index release.Image, open func(release.Image) (v1.Image, release.Digest, error)) ([]Platform, error) {
	repository, err := images.Repository(index)
	if err != nil {
		return nil, err
	}
	doc, err := repository.Document(ctx, index.Digest)
	if err != nil || !doc.IsIndex() {
		return nil, err
	}
	var platforms []Platform
	for _, m := range doc.Manifests {
		switch {
		case m.MediaType.IsIndex():
			return nil, fmt.Errorf("index %s contains another index, %s: specify that index or an image", index.ByDigest(), m.Digest)
		case m.Platform == nil:
			return nil, fmt.Errorf("index %s has no platform for %s", index.ByDigest(), m.Digest)
		case document.IsAttestation(m):
			continue
		}
		digest, err := release.ParseDigest(m.Digest.String())
		if err != nil {
			return nil, fmt.Errorf("index %s: %w", index.ByDigest(), err)
		}
		p := Platform{Platform: *m.Platform}
		if p.Base, p.BaseDigest, err = open(release.Image{Pullspec: index.Pullspec, Digest: digest}); err != nil {
			return nil, fmt.Errorf("reading the image for %s: %w", m.Platform, err)
		}
		platforms = append(platforms, p)
	}
	if len(platforms) == 0 {
		return nil, errors.New("index " + index.ByDigest() + " contains no images")
	}
	return platforms, nil
}
