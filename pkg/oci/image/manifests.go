package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/oci/image/layer"
	"github.com/cluster-version/cvo/pkg/oci/image/repository"
	"github.com/cluster-version/cvo/pkg/release"
)

// downloads is the maximum number of layers of an image that are being fetched or waiting to be read.
const downloads = 4

// Manifests returns the files in manifests/ and release-manifests/ of a release image, with its layers applied on top of each other. It
// fetches all content by digest and verifies it. Cached content needs no request to the registry.
func (r *Reader) Manifests(ctx context.Context, img release.Image) (fs.FS, error) {
	found := layer.NewCollection()
	if err := r.Walk(ctx, img, found.Add); err != nil {
		return nil, err
	}
	return found.FS(), nil
}

// ReadFiles returns the content of individual files, such as "release-manifests/image-references". It reads the layers from the top down
// and stops when it has all files. It verifies each layer completely before it uses the layer's files. The result omits files that the
// image does not have.
func (r *Reader) ReadFiles(ctx context.Context, img release.Image, names ...string) (map[string][]byte, error) {
	found := map[string][]byte{}
	err := r.walk(ctx, img, 1, func(f layer.File) error {
		if !slices.Contains(names, f.Name) {
			return nil
		}
		data, err := io.ReadAll(f.Content)
		if err != nil {
			return err
		}
		if found[f.Name] = data; len(found) == len(names) {
			return fs.SkipAll
		}
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Walk visits the files that Manifests returns, in arbitrary order. It holds at most one of them in memory. It fetches and verifies a
// layer before it visits the layer's files. visit may end the walk with fs.SkipAll. If Walk returns an error, the caller must discard all
// visited files.
func (r *Reader) Walk(ctx context.Context, img release.Image, visit func(layer.File) error) error {
	return r.walk(ctx, img, downloads, visit, nil)
}

// WalkUntil is like Walk, but fetches layers sequentially. After each layer, it stops if enough returns true.
func (r *Reader) WalkUntil(ctx context.Context, img release.Image, visit func(layer.File) error, enough func() bool) error {
	return r.walk(ctx, img, 1, visit, enough)
}

// walk reads the layers of an image. enough, if set, is called between layers and reports whether the walk can stop.
func (r *Reader) walk(ctx context.Context, img release.Image, ahead int, visit func(layer.File) error, enough func() bool) error {
	s, err := r.Repository(img)
	if err != nil {
		return err
	}
	doc, err := s.Image(ctx, img.Digest)
	if err != nil {
		return err
	}
	if err := layer.Check(doc.Layers, r.opts.Limits.Limits); err != nil {
		return fmt.Errorf("reading %s: %w", img.ByDigest(), err)
	}
	err = r.walkLayers(ctx, s, doc.Layers, ahead, visit, enough)
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", img.ByDigest(), err)
	}
	return s.ListInCache(ctx, img)
}

// walkLayers reads layers from the top down and fetches up to ahead layers in advance.
func (r *Reader) walkLayers(ctx context.Context, s *repository.Repository, layers []v1.Descriptor, ahead int, visit func(layer.File) error, enough func() bool) error {
	w := layer.NewWalker(r.opts.Limits.Limits, visit)
	caller := ctx
	group, ctx := errgroup.WithContext(caller)
	fetched := make([]chan io.ReadCloser, len(layers))
	for i := range fetched {
		fetched[i] = make(chan io.ReadCloser, 1)
	}
	slots := make(chan struct{}, ahead)
	group.Go(func() error {
		for i := range slices.Backward(layers) {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return nil // a fetch knows the cause
			}
			group.Go(func() error {
				f, err := s.File(ctx, layers[i], r.report(layers, i))
				if err != nil {
					return fmt.Errorf("layer %d of %d: %w", i+1, len(layers), err)
				}
				fetched[i] <- f
				return nil
			})
		}
		return nil
	})
	group.Go(func() error {
		for i := range slices.Backward(layers) {
			select {
			case f := <-fetched[i]:
				err := w.Layer(f, layers[i].Size)
				_ = f.Close()
				if err != nil && !errors.Is(err, fs.SkipAll) {
					return fmt.Errorf("layer %d of %d: %w", i+1, len(layers), err)
				}
				if err != nil {
					return err
				}
				// This check must precede the next fetch.
				if i > 0 && (w.Done() || enough != nil && enough()) {
					return fs.SkipAll
				}
				<-slots
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
	err := group.Wait()
	if err == nil {
		err = context.Cause(caller)
	}
	for _, c := range fetched {
		select {
		case f := <-c:
			_ = f.Close()
		default:
		}
	}
	return err
}

// report returns a Reporter for layer i, or nil if Options.Progress is not set.
func (r *Reader) report(layers []v1.Descriptor, i int) repository.Reporter {
	if r.opts.Progress == nil {
		return nil
	}
	p := Progress{Index: i + 1, Layers: len(layers), Total: layers[i].Size}
	return func(read int64, from string) {
		r.progress.Lock()
		defer r.progress.Unlock()
		p.Bytes, p.From = read, from
		r.opts.Progress(p)
	}
}
