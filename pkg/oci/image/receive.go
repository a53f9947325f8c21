package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image/integrity"
	"github.com/cluster-version/cvo/pkg/oci/image/layer"
	"github.com/cluster-version/cvo/pkg/release"
)

// Receive reads the files of the two manifest folders from a tar stream, compressed or not. The rules and limits for layers apply. Receive
// reads the stream to its end, and a truncated stream is an error. The caller must trust the sender that the files belong to the image.
// With a cache folder, Received returns the files later.
func (r *Reader) Receive(ctx context.Context, img release.Image, stream io.Reader) (fs.FS, error) {
	found := layer.NewCollection()
	if err := layer.NewWalker(r.opts.Limits.Limits, found.Add).Stream(ctx, stream); err != nil {
		return nil, fmt.Errorf("receiving %s: %w", img.ByDigest(), err)
	}
	if r.cache != nil {
		packed, err := found.Layer()
		if err != nil {
			return nil, fmt.Errorf("writing image cache: %w", err)
		}
		if err := r.cache.KeepReceived(img.Digest, packed); err != nil {
			return nil, err
		}
	}
	return found.FS(), nil
}

// Received returns the files that an earlier Receive stored for an image, or nil. It contacts no registry.
func (r *Reader) Received(ctx context.Context, img release.Image) (fs.FS, error) {
	if r.cache == nil {
		return nil, nil
	}
	d, ok := r.cache.ReceivedFor(img.Digest)
	if !ok {
		return nil, nil
	}
	found, err := r.readReceived(ctx, d)
	switch {
	case errors.Is(err, failure.ErrIntegrity), errors.Is(err, fs.ErrNotExist), errors.Is(err, failure.ErrLimit):
		return nil, r.cache.ForgetReceived(img.Digest) // the next Receive stores it again
	case err != nil:
		return nil, fmt.Errorf("reading image cache: %w", err)
	}
	return found.FS(), nil
}

func (r *Reader) readReceived(ctx context.Context, d release.Digest) (*layer.Collection, error) {
	raw, err := r.cache.Document(d, r.opts.Limits.ManifestBytes)
	if err != nil {
		return nil, err
	}
	if raw == nil {
		return nil, fs.ErrNotExist
	}
	doc, err := document.Parse(raw)
	if err != nil {
		return nil, err
	}
	if err := layer.Check(doc.Layers, r.opts.Limits.Limits); err != nil {
		return nil, err
	}
	found := layer.NewCollection()
	w := layer.NewWalker(r.opts.Limits.Limits, found.Add)
	for _, desc := range doc.Layers {
		if err := r.readKept(ctx, desc, w); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (r *Reader) readKept(ctx context.Context, desc v1.Descriptor, w *layer.Walker) error {
	digest := release.Digest(desc.Digest.String())
	f, ok, err := r.cache.Get(digest)
	if err != nil {
		return err
	}
	if !ok {
		return fs.ErrNotExist
	}
	defer f.Close()
	checked := integrity.NewReader(ctx, f, digest, desc.Size, nil)
	if err := w.Layer(checked, desc.Size); err != nil {
		return err
	}
	return checked.Finish()
}
