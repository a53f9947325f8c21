// Package publish writes an image or an index, with all its layers, to a registry or an OCI layout. It takes finished images. Package sign
// signs them, and package mirror copies them between registries.
package publish

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	ocilayout "github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// Push writes an image to a registry under a tag. It returns the pullspec and digest of the image. It writes the tag last.
func Push(ctx context.Context, access *registry.Access, img v1.Image, pullspec string) (release.Image, error) {
	return push(access, img, pullspec, func(tag name.Tag) error { return remote.Write(tag, img, access.RemoteFor(ctx)...) })
}

// PushIndex is like Push, for an index and its images.
func PushIndex(ctx context.Context, access *registry.Access, index v1.ImageIndex, pullspec string) (release.Image, error) {
	return push(access, index, pullspec, func(tag name.Tag) error { return remote.WriteIndex(tag, index, access.RemoteFor(ctx)...) })
}

func push(access *registry.Access, artifact interface{ Digest() (v1.Hash, error) }, pullspec string, write func(name.Tag) error) (release.Image, error) {
	ref, err := access.Reference(pullspec)
	if err != nil {
		return release.Image{}, err
	}
	tag, ok := ref.(name.Tag)
	if !ok {
		return release.Image{}, fmt.Errorf("pushing to %s: use a pullspec with a tag instead of a digest", pullspec)
	}
	if err := write(tag); err != nil {
		return release.Image{}, fmt.Errorf("pushing to %s: %w", pullspec, err)
	}
	digest, err := artifact.Digest()
	if err != nil {
		return release.Image{}, fmt.Errorf("computing the digest of %s: %w", pullspec, err)
	}
	return release.Image{Pullspec: pullspec, Digest: release.Digest(digest.String())}, nil
}

// ToLayout adds a named image to an OCI image layout, which it creates if needed. It replaces an image with the same name.
func ToLayout(img v1.Image, dir, as string) error {
	return ocilayout.Add(dir, as, func(p layout.Path, o layout.Option) error { return p.AppendImage(img, o) })
}

// IndexToLayout is like ToLayout, for an index and its images.
func IndexToLayout(index v1.ImageIndex, dir, as string) error {
	return ocilayout.Add(dir, as, func(p layout.Path, o layout.Option) error { return p.AppendIndex(index, o) })
}
