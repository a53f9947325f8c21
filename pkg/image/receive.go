package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/cluster-version/cvo/pkg/release"
)

// receivedAnnotation marks in the cache's index.json what was received, by the digest of the image that it is of.
const receivedAnnotation = "cvo.cluster-version.github.io/received-for"

// receivedType is the media type of the configuration of what was received, which says nothing.
const receivedType = types.MediaType("application/vnd.cluster-version.received.v1+json")

// Receive reads the files of the two manifest folders from one tar stream, compressed or not, that somebody sends who
// has the image. It keeps to the same limits and rules as for a layer, and reads the stream to its end: one that breaks
// off is an error. That the files are the image's, the sender has to vouch for. With a cache folder, Received finds them
// later.
func (r *Reader) Receive(ctx context.Context, img release.Image, stream io.Reader) (fs.FS, error) {
	found, err := r.receive(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("receiving %s: %w", img.ByDigest(), err)
	}
	if r.cache != nil {
		if err := r.cache.keepReceived(img.Digest, found); err != nil {
			return nil, err
		}
	}
	return newFiles(found), nil
}

// received counts what has come, and stops where a layer would be too large.
type received struct {
	ctx   context.Context
	inner io.Reader
	limit int64
	bytes int64
}

// Read implements io.Reader.
func (r *received) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.inner.Read(p)
	if r.bytes += int64(n); r.bytes > r.limit {
		return 0, fmt.Errorf("%w: more than %d bytes were sent", ErrLimit, r.limit)
	}
	return n, err
}

func (r *Reader) receive(ctx context.Context, stream io.Reader) (map[string]packed, error) {
	found := map[string]packed{}
	w := newWalker(r.opts.Limits, collect(found))
	in := &received{ctx: ctx, inner: stream, limit: r.opts.Limits.LayerBytes}
	plain, closePlain, err := decompress(in)
	if err != nil {
		return nil, err
	}
	defer closePlain()
	bounded := &boundedReader{inner: plain, walker: w, compressed: func() int64 { return in.bytes }}
	if err := w.plain(bounded); err != nil {
		return nil, err
	}
	// What follows the tar's end has the checksum of the compression, and the end of the stream.
	if _, err := io.Copy(io.Discard, bounded); err != nil {
		return nil, broken("the end of the stream", err)
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return nil, broken("the end of the stream", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: neither %s/ nor %s/ has a file: is it a release image?", ErrIntegrity, operatorDir, releaseDir)
	}
	return found, nil
}

// Received returns what an earlier Receive has kept of an image, nil if nothing. It asks no registry.
func (r *Reader) Received(ctx context.Context, img release.Image) (fs.FS, error) {
	if r.cache == nil {
		return nil, nil
	}
	d, ok := r.cache.receivedFor(img.Digest)
	if !ok {
		return nil, nil
	}
	found, err := r.readReceived(ctx, d)
	switch {
	case errors.Is(err, ErrIntegrity), errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrLimit):
		return nil, r.cache.forgetReceived(img.Digest) // it is received anew
	case err != nil:
		return nil, fmt.Errorf("reading image cache: %w", err)
	}
	return newFiles(found), nil
}

func (r *Reader) readReceived(ctx context.Context, d release.Digest) (map[string]packed, error) {
	raw, err := r.cache.document(d, r.opts.Limits)
	if err != nil {
		return nil, err
	}
	if raw == nil {
		return nil, fs.ErrNotExist
	}
	doc, err := parseDocument(raw)
	if err != nil {
		return nil, err
	}
	if err := r.checkLayers(doc.Layers); err != nil {
		return nil, err
	}
	found := map[string]packed{}
	w := newWalker(r.opts.Limits, collect(found))
	for _, layer := range doc.Layers {
		if err := r.readKept(ctx, layer, w); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (r *Reader) readKept(ctx context.Context, layer v1.Descriptor, w *walker) error {
	f, ok, err := r.cache.open(release.Digest(layer.Digest.String()))
	if err != nil {
		return err
	}
	if !ok {
		return fs.ErrNotExist
	}
	defer f.Close()
	checked := newVerifier(ctx, f, release.Digest(layer.Digest.String()), layer.Size, nil)
	if err := w.layer(checked, layer.Size); err != nil {
		return err
	}
	return checked.finish()
}

// receivedFor finds in index.json what was received for an image.
func (c *cache) receivedFor(d release.Digest) (release.Digest, bool) {
	for _, listed := range c.index().Manifests {
		if listed.Annotations[receivedAnnotation] != string(d) {
			continue
		}
		if found, err := release.ParseDigest(listed.Digest.String()); err == nil {
			return found, true
		}
	}
	return "", false
}

func (c *cache) forgetReceived(d release.Digest) error {
	return c.edit(func(listed []v1.Descriptor) []v1.Descriptor {
		return slices.DeleteFunc(listed, func(m v1.Descriptor) bool { return m.Annotations[receivedAnnotation] == string(d) })
	})
}

// keepReceived stores files as an image of one layer that refers to the image they are of (OCI image specification,
// "subject"). The layer is written anew, in the order of names, so the same files have the same digest.
func (c *cache) keepReceived(of release.Digest, found map[string]packed) error {
	layer, err := layerOf(found)
	if err != nil {
		return fmt.Errorf("writing image cache: %w", err)
	}
	config := []byte("{}")
	manifest := v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: describe(receivedType, config), Layers: []v1.Descriptor{describe(types.OCILayerZStd, layer)},
		Annotations: map[string]string{receivedAnnotation: string(of)},
	}
	raw, err := json.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("writing image cache: %w", err)
	}
	for _, content := range [][]byte{layer, config, raw} {
		if err := c.store(digestOf(content), content); err != nil {
			return err
		}
	}
	entry := describe(types.OCIManifestSchema1, raw)
	entry.ArtifactType = string(receivedType)
	entry.Annotations = map[string]string{receivedAnnotation: string(of)}
	return c.edit(func(listed []v1.Descriptor) []v1.Descriptor {
		listed = slices.DeleteFunc(listed, func(m v1.Descriptor) bool { return m.Annotations[receivedAnnotation] == string(of) })
		return append(listed, entry)
	})
}

func describe(mediaType types.MediaType, content []byte) v1.Descriptor {
	return v1.Descriptor{MediaType: mediaType, Size: int64(len(content)), Digest: hashOf(digestOf(content))}
}

func layerOf(found map[string]packed) ([]byte, error) {
	var layer bytes.Buffer
	compressed, err := zstd.NewWriter(&layer, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	out := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		content, err := found[name].unpack()
		if err != nil {
			return nil, err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644, ModTime: found[name].modTime}
		if err := out.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := out.Write(content); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(out.Close(), compressed.Close()); err != nil {
		return nil, err
	}
	return layer.Bytes(), nil
}
