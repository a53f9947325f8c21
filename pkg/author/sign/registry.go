package sign

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// inRegistry is the destination for an image in a registry.
type inRegistry struct {
	access *registry.Access
	image  name.Digest
}

func (r inRegistry) subject(ctx context.Context) (v1.Descriptor, error) {
	desc, err := remote.Head(r.image, r.access.RemoteFor(ctx)...)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("reading %s: %w", r.image, err)
	}
	return *desc, nil
}

func (r inRegistry) tagged(ctx context.Context, tag string) (img v1.Image, ok bool, err error) {
	ref := r.image.Context().Tag(tag)
	img, err = remote.Image(ref, r.access.RemoteFor(ctx)...)
	switch {
	case failure.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading %s: %w", ref, err)
	}
	return img, true, nil
}

func (r inRegistry) putTagged(ctx context.Context, tag string, img v1.Image) (string, error) {
	ref := r.image.Context().Tag(tag)
	if err := remote.Write(ref, img, r.access.RemoteFor(ctx)...); err != nil {
		return "", fmt.Errorf("pushing %s: %w", ref, err)
	}
	return ref.String(), nil
}

func (r inRegistry) putReferrer(ctx context.Context, manifest []byte, blobs []v1.Layer) (string, error) {
	options := r.access.RemoteFor(ctx)
	for _, blob := range blobs {
		if err := remote.WriteLayer(r.image.Context(), blob, options...); err != nil {
			return "", fmt.Errorf("pushing a blob to %s: %w", r.image.Context(), err)
		}
	}
	ref := r.image.Context().Digest(fmt.Sprintf("sha256:%x", sha256.Sum256(manifest)))
	if err := remote.Put(ref, rawManifest(manifest), options...); err != nil {
		return "", fmt.Errorf("pushing %s: %w", ref, err)
	}
	return ref.String(), nil
}

// rawManifest is a serialized OCI image manifest.
type rawManifest []byte

func (m rawManifest) RawManifest() ([]byte, error)        { return m, nil }
func (m rawManifest) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// digestReference returns the reference to an image by digest.
func digestReference(access *registry.Access, img release.Image) (name.Digest, error) {
	ref, err := access.Reference(img.ByDigest())
	if err != nil {
		return name.Digest{}, err
	}
	byDigest, ok := ref.(name.Digest)
	if !ok {
		return name.Digest{}, fmt.Errorf("image %q has no digest", img.ByDigest())
	}
	return byDigest, nil
}
