package assemble

import (
	"context"
	"errors"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/release"
)

// Platforms opens the images of an index, to build on each; an image that is no index has none.
func Platforms(ctx context.Context, images *image.Reader, base release.Image) ([]Platform, error) {
	return eachPlatform(ctx, images, base, func(child release.Image) (v1.Image, release.Digest, error) {
		img, err := images.Open(ctx, child)
		return img, child.Digest, err
	})
}

// Platforms are what the release's images were built on, if it is an index.
func (e *Existing) Platforms(ctx context.Context, images *image.Reader) ([]Platform, error) {
	return eachPlatform(ctx, images, e.Image, func(child release.Image) (v1.Image, release.Digest, error) {
		one, err := openExisting(ctx, images, child)
		if err != nil {
			return nil, "", err
		}
		base, err := one.Base()
		return base, one.BaseDigest, err
	})
}

func eachPlatform(ctx context.Context, images *image.Reader, index release.Image, open func(release.Image) (v1.Image, release.Digest, error)) ([]Platform, error) {
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
			return nil, fmt.Errorf("index %s holds another index, %s: name that one, or an image", index.ByDigest(), m.Digest)
		case m.Platform == nil:
			return nil, fmt.Errorf("index %s does not say what platform %s is for", index.ByDigest(), m.Digest)
		case m.Platform.OS == "unknown":
			continue // attestations stand in an index as images of an unknown platform
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
		return nil, errors.New("index " + index.ByDigest() + " holds no image")
	}
	return platforms, nil
}
