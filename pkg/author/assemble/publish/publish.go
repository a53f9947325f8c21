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

// artifact is an image or an index.
type artifact interface{ Digest() (v1.Hash, error) }

func push(access *registry.Access, a artifact, pullspec string, write func(name.Tag) error) (release.Image, error) {
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
	digest, err := a.Digest()
	if err != nil {
		return release.Image{}, fmt.Errorf("computing the digest of %s: %w", pullspec, err)
	}
	return release.Image{Pullspec: pullspec, Digest: release.Digest(digest.String())}, nil
}

// ToLayout adds an image to an OCI image layout, which it creates if needed, and names it by the version of its release. It fails if the
// layout has another release with the same version.
func ToLayout(img v1.Image, dir, version string) error {
	return toLayout(img, dir, version, func(p layout.Path, o layout.Option) error { return p.AppendImage(img, o) })
}

// IndexToLayout is like ToLayout, for an index and its images.
func IndexToLayout(index v1.ImageIndex, dir, version string) error {
	return toLayout(index, dir, version, func(p layout.Path, o layout.Option) error { return p.AppendIndex(index, o) })
}

func toLayout(a artifact, dir, version string, add func(layout.Path, layout.Option) error) error {
	present, err := ocilayout.ReadIndex(dir)
	if err != nil {
		return err
	}
	digest, err := a.Digest()
	if err != nil {
		return fmt.Errorf("computing the digest of release %s: %w", version, err)
	}
	for _, m := range present.Manifests {
		if ocilayout.NameOf(m) == version && m.Digest != digest {
			return fmt.Errorf("the OCI layout %s has another release %s (%s): use a new layout, or remove that release", dir, version, m.Digest)
		}
	}
	return ocilayout.Add(dir, version, add)
}
