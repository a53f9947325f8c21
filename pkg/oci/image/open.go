package image

import (
	"context"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image/repository"
	"github.com/cluster-version/cvo/pkg/release"
)

// Open returns an image for reading or as a base for a new image. For an index, it returns the image for the platform. It verifies all
// content, as Repository.Blob does. The image keeps ctx and is valid until ctx ends.
func (r *Reader) Open(ctx context.Context, img release.Image) (v1.Image, error) {
	s, err := r.Repository(img)
	if err != nil {
		return nil, err
	}
	doc, err := s.Image(ctx, img.Digest)
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(&opened{ctx: ctx, repository: s, doc: doc})
}

// opened is an image of a repository.
type opened struct {
	ctx        context.Context // the library's interface has no context parameter
	repository *repository.Repository
	doc        *document.Document
}

// RawManifest implements partial.CompressedImageCore.
func (o *opened) RawManifest() ([]byte, error) { return o.doc.Raw, nil }

// MediaType implements partial.CompressedImageCore.
func (o *opened) MediaType() (types.MediaType, error) { return o.doc.MediaType, nil }

// RawConfigFile implements partial.CompressedImageCore.
func (o *opened) RawConfigFile() ([]byte, error) { return o.repository.Config(o.ctx, o.doc) }

// LayerByDigest implements partial.CompressedImageCore.
func (o *opened) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	for _, desc := range o.doc.Layers {
		if desc.Digest == h {
			return &openedLayer{opened: o, desc: desc}, nil
		}
	}
	if o.doc.Config != nil && o.doc.Config.Digest == h {
		return &openedLayer{opened: o, desc: *o.doc.Config}, nil
	}
	return nil, fmt.Errorf("%w: the image has no layer %s", failure.ErrNotFound, h)
}

type openedLayer struct {
	opened *opened
	desc   v1.Descriptor
}

// Digest implements partial.CompressedLayer.
func (l *openedLayer) Digest() (v1.Hash, error) { return l.desc.Digest, nil }

// Size implements partial.CompressedLayer.
func (l *openedLayer) Size() (int64, error) { return l.desc.Size, nil }

// MediaType implements partial.CompressedLayer.
func (l *openedLayer) MediaType() (types.MediaType, error) { return l.desc.MediaType, nil }

// Compressed implements partial.CompressedLayer.
func (l *openedLayer) Compressed() (io.ReadCloser, error) {
	return l.opened.repository.Blob(l.opened.ctx, l.desc)
}
