package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/release"
)

// downloads is how many layers of an image are fetched at the same time, or lie fetched and unread on disk.
const downloads = 4

// Manifests returns a release image's files in manifests/ and release-manifests/, and nothing else, as the layers on
// top of each other leave them. Everything is fetched by digest and checked against it; with a cache folder, what was
// fetched once is read from there, without a word to the registry.
func (r *Reader) Manifests(ctx context.Context, img release.Image) (fs.FS, error) {
	found := map[string]packed{}
	if err := r.Walk(ctx, img, collect(found)); err != nil {
		return nil, err
	}
	return newFiles(found), nil
}

// collect keeps what it is given to visit.
func collect(found map[string]packed) func(File) error {
	var content bytes.Buffer
	var packer packer
	return func(f File) error {
		content.Reset()
		content.Grow(int(f.Size) + bytes.MinRead)
		if _, err := content.ReadFrom(f.Content); err != nil {
			return err
		}
		found[f.Name] = packer.pack(content.Bytes(), f.ModTime)
		return nil
	}
}

// ReadFiles returns some of the files that Manifests has, by names such as "release-manifests/image-references". It
// reads from the topmost layer down and fetches no more layers when it has them all; each layer read is checked to its
// end. What the image does not have is not in the map.
func (r *Reader) ReadFiles(ctx context.Context, img release.Image, names ...string) (map[string][]byte, error) {
	found := map[string][]byte{}
	err := r.walk(ctx, img, 1, newWalker(r.opts.Limits, func(f File) error {
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
	}))
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Walk gives the files that Manifests returns one at a time, in no useful order, and holds no more than one in memory.
// A layer is fetched and checked against its digest before its files are given. visit may end the walk with fs.SkipAll;
// where Walk returns an error, what visit was given does not count.
func (r *Reader) Walk(ctx context.Context, img release.Image, visit func(File) error) error {
	return r.walk(ctx, img, downloads, newWalker(r.opts.Limits, visit))
}

// WalkUntil walks as Walk does, but one layer after the other, and reads no layer below the one after which enough says
// so.
func (r *Reader) WalkUntil(ctx context.Context, img release.Image, visit func(File) error, enough func() bool) error {
	w := newWalker(r.opts.Limits, visit)
	w.enough = enough
	return r.walk(ctx, img, 1, w)
}

// WalkImage walks as Reader.Walk does through an image at hand, one layer after the other, and keeps to the default
// limits. A layer's files are given before its end has been seen: only the error that WalkImage returns tells whether
// they are what the image's reader vouches for.
func WalkImage(img v1.Image, visit func(File) error) error {
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	limits := Limits{}.WithDefaults()
	if len(layers) > limits.Layers {
		return fmt.Errorf("%w: the image has %d layers, the limit is %d", ErrLimit, len(layers), limits.Layers)
	}
	w := newWalker(limits, visit)
	for i, layer := range slices.Backward(layers) {
		err := w.imageLayer(layer)
		switch {
		case errors.Is(err, fs.SkipAll):
			return nil
		case err != nil:
			return fmt.Errorf("layer %d of %d: %w", i+1, len(layers), err)
		case w.done:
			return nil
		}
	}
	return nil
}

// imageLayer reads a layer to its end, which is where its reader says what it thinks of the digest.
func (w *walker) imageLayer(layer v1.Layer) (err error) {
	size, err := layer.Size()
	if err != nil {
		return err
	}
	content, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	if err := w.layer(content, size); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, content)
	return err
}

func (r *Reader) walk(ctx context.Context, img release.Image, ahead int, w *walker) error {
	s, err := r.Repository(img)
	if err != nil {
		return err
	}
	doc, err := s.Image(ctx, img.Digest)
	if err != nil {
		return err
	}
	if err := r.checkLayers(doc.Layers); err != nil {
		return fmt.Errorf("reading %s: %w", img.ByDigest(), err)
	}
	err = s.walk(ctx, doc.Layers, ahead, w)
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", img.ByDigest(), err)
	}
	if s.cache() != nil {
		top, err := s.Document(ctx, img.Digest)
		if err != nil {
			return err
		}
		return s.cache().list(img.Pullspec, top.Descriptor())
	}
	return nil
}

// checkLayers looks at what a manifest says of its layers, before any is fetched.
func (r *Reader) checkLayers(layers []v1.Descriptor) error {
	if len(layers) > r.opts.Limits.Layers {
		return fmt.Errorf("%w: the image has %d layers, the limit is %d", ErrLimit, len(layers), r.opts.Limits.Layers)
	}
	for i, desc := range layers {
		if _, err := content(desc, r.opts.Limits.LayerBytes); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(layers), err)
		}
		if !readable(desc.MediaType) {
			return fmt.Errorf("layer %d of %d: %w: layer %s has the media type %q, which cannot be read here: rebuild the image with plain layers",
				i+1, len(layers), ErrIntegrity, desc.Digest, desc.MediaType)
		}
	}
	return nil
}

// readable lists the media types of layers. Foreign layers lie on other hosts, encrypted ones need a key.
func readable(t types.MediaType) bool {
	switch t {
	case types.OCILayer, types.OCILayerZStd, types.OCIUncompressedLayer, types.DockerLayer, types.DockerUncompressedLayer:
		return true
	}
	return false
}

// walk reads layers from the topmost down, and fetches some ahead.
func (s *Repository) walk(ctx context.Context, layers []v1.Descriptor, ahead int, w *walker) error {
	group, ctx := errgroup.WithContext(ctx)
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
				return ctx.Err()
			}
			group.Go(func() error {
				f, err := s.file(ctx, layers[i], s.progress(layers, i))
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
				err := w.layer(f, layers[i].Size)
				_ = f.Close()
				if err != nil && !errors.Is(err, fs.SkipAll) {
					return fmt.Errorf("layer %d of %d: %w", i+1, len(layers), err)
				}
				if err != nil {
					return err
				}
				// Before the next layer may be fetched.
				if i > 0 && (w.done || w.enough()) {
					return fs.SkipAll
				}
				<-slots
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	err := group.Wait()
	for _, c := range fetched {
		select {
		case f := <-c:
			_ = f.Close()
		default:
		}
	}
	return err
}

// progress reports how far a layer is.
func (s *Repository) progress(layers []v1.Descriptor, i int) reporter {
	if s.reader.opts.Progress == nil {
		return nil
	}
	p := Progress{Layer: release.Digest(layers[i].Digest.String()), Index: i + 1, Layers: len(layers), Total: layers[i].Size}
	return func(read int64, from string) {
		s.reader.progress.Lock()
		defer s.reader.progress.Unlock()
		p.Bytes, p.From, p.Cached = read, from, from == ""
		s.reader.opts.Progress(p)
	}
}
