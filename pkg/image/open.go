package image

import (
	"context"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/release"
)

// Open returns an image to be read as a whole or built upon: of an index, the one for the platform. Every byte that it
// gives is checked against its digest. It holds on to ctx, and serves as long as that does.
func (r *Reader) Open(ctx context.Context, img release.Image) (v1.Image, error) {
	if dir, _, ok := layoutReference(img.Pullspec); ok {
		return openLayout(dir, string(img.Digest))
	}
	ref, err := r.digestRef(img)
	if err != nil {
		return nil, err
	}
	s := &source{reader: r, repo: ref.Context()}
	doc, err := s.image(ctx, img.Digest)
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(&opened{ctx: ctx, source: s, doc: doc})
}

// opened is an image of a source.
type opened struct {
	ctx    context.Context //nolint:containedctx // the library's interface has no place for one
	source *source
	doc    *document
	config []byte
}

// RawManifest implements partial.CompressedImageCore.
func (o *opened) RawManifest() ([]byte, error) { return o.doc.raw, nil }

// MediaType implements partial.CompressedImageCore.
func (o *opened) MediaType() (types.MediaType, error) {
	if o.doc.MediaType == "" {
		return types.OCIManifestSchema1, nil
	}
	return o.doc.MediaType, nil
}

// RawConfigFile implements partial.CompressedImageCore.
func (o *opened) RawConfigFile() ([]byte, error) {
	if o.config != nil {
		return o.config, nil
	}
	if o.doc.Config == nil {
		return nil, fmt.Errorf("%w: the image has no configuration", ErrIntegrity)
	}
	digest, err := release.ParseDigest(o.doc.Config.Digest.String())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIntegrity, err)
	}
	if limit := o.source.reader.opts.Limits.ManifestBytes; o.doc.Config.Size > limit {
		return nil, fmt.Errorf("%w: configuration %s has %d bytes, the limit is %d", ErrLimit, digest, o.doc.Config.Size, limit)
	}
	var config []byte
	err = o.source.layer(o.ctx, digest, o.doc.Config.Size, func(int64, bool) {}, func(r io.Reader) (err error) {
		config, err = io.ReadAll(r)
		return err
	})
	o.config = config
	return config, err
}

// LayerByDigest implements partial.CompressedImageCore.
func (o *opened) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	for _, desc := range o.doc.Layers {
		if desc.Digest == h {
			return &openedLayer{opened: o, desc: desc}, nil
		}
	}
	return nil, fmt.Errorf("%w: layer %s", ErrNotFound, h)
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
	digest, err := release.ParseDigest(l.desc.Digest.String())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIntegrity, err)
	}
	r, w := io.Pipe()
	go func() {
		err := l.opened.source.layer(l.opened.ctx, digest, l.desc.Size, func(int64, bool) {}, func(content io.Reader) error {
			_, err := io.Copy(w, content)
			return err
		})
		if err == nil {
			err = io.EOF
		}
		_ = w.CloseWithError(errors.Join(err))
	}()
	return r, nil
}
