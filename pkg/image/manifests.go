package image

import (
	"context"
	"fmt"
	"io"
	"io/fs"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/release"
)

// Manifests returns a release image's files in manifests/ and release-manifests/, and nothing else, as the layers on
// top of each other leave them. Everything is fetched by digest and checked against it; with a cache folder, what was
// fetched once is read from there, without a word to the registry.
func (r *Reader) Manifests(ctx context.Context, img release.Image) (fs.FS, error) {
	ref, err := r.digestRef(img)
	if err != nil {
		return nil, err
	}
	s := &source{reader: r, repo: ref.Context()}
	doc, err := s.image(ctx, img.Digest)
	if err != nil {
		return nil, err
	}
	if len(doc.Layers) > r.opts.Limits.Layers {
		return nil, fmt.Errorf("reading %s: %w: the image has %d layers, the limit is %d", ref, ErrLimit, len(doc.Layers), r.opts.Limits.Layers)
	}
	u := newUnpacker(r.opts.Limits)
	for i, desc := range doc.Layers {
		if err := r.unpack(ctx, s, u, desc, Progress{Index: i + 1, Layers: len(doc.Layers), Total: desc.Size}); err != nil {
			return nil, fmt.Errorf("reading %s: layer %d of %d: %w", ref, i+1, len(doc.Layers), err)
		}
	}
	if r.cache != nil {
		if err := r.list(ctx, s, img); err != nil {
			return nil, err
		}
	}
	return newFiles(u.files), nil
}

func (r *Reader) unpack(ctx context.Context, s *source, u *unpacker, desc v1.Descriptor, p Progress) error {
	digest, err := release.ParseDigest(desc.Digest.String())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrIntegrity, err)
	}
	if !readable(desc.MediaType) {
		return fmt.Errorf("%w: layer %s has the media type %q, which this operator cannot read", ErrIntegrity, digest, desc.MediaType)
	}
	if desc.Size < 0 || desc.Size > r.opts.Limits.LayerBytes {
		return fmt.Errorf("%w: layer %s has %d bytes, the limit is %d", ErrLimit, digest, desc.Size, r.opts.Limits.LayerBytes)
	}
	p.Layer = digest
	report := func(read int64, cached bool) {
		if r.opts.Progress != nil {
			p.Bytes, p.Cached = read, cached
			r.opts.Progress(p)
		}
	}
	// A layer that turns out wrong must leave no trace, and may be read twice, so each reading starts from a copy.
	var next *unpacker
	err = s.layer(ctx, digest, desc.Size, report, func(content io.Reader) error {
		next = u.clone()
		return next.layer(content, desc.Size)
	})
	if err != nil {
		return err
	}
	*u = *next
	return u.check()
}

// readable lists the media types of layers. Foreign layers lie on other hosts, encrypted ones need a key.
func readable(t types.MediaType) bool {
	switch t {
	case types.OCILayer, types.OCILayerZStd, types.OCIUncompressedLayer, types.DockerLayer, types.DockerUncompressedLayer:
		return true
	}
	return false
}

func (r *Reader) list(ctx context.Context, s *source, img release.Image) error {
	doc, err := s.document(ctx, img.Digest)
	if err != nil {
		return err
	}
	mediaType := doc.MediaType
	if mediaType == "" {
		mediaType = types.OCIManifestSchema1
		if doc.index() {
			mediaType = types.OCIImageIndex
		}
	}
	return r.cache.list(img.Pullspec, img.Digest, mediaType, int64(len(doc.raw)))
}
