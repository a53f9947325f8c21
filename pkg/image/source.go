package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// maxIndexDepth bounds how many indexes lie between an image's digest and its manifest.
const maxIndexDepth = 3

// source gives content of one repository by digest, from the cache or from the registry. Its context is that of one
// operation, and it lives no longer.
type source struct {
	reader *Reader
	repo   name.Repository
	puller *remote.Puller // made with the first request
}

func (s *source) pull() (*remote.Puller, error) {
	if s.puller != nil {
		return s.puller, nil
	}
	var err error
	s.puller, err = s.reader.puller()
	return s.puller, err
}

func (s *source) ref(d release.Digest) name.Digest { return s.repo.Digest(string(d)) }

// document is an image manifest or an index: what both have.
type document struct {
	MediaType types.MediaType `json:"mediaType"`
	Config    *v1.Descriptor  `json:"config"`
	Layers    []v1.Descriptor `json:"layers"`
	Manifests []v1.Descriptor `json:"manifests"`
	Subject   *v1.Descriptor  `json:"subject"`
	Artifact  string          `json:"artifactType"`
	raw       []byte
}

func (d *document) index() bool { return d.Layers == nil && d.Manifests != nil }

func parseDocument(raw []byte) (*document, error) {
	d := &document{raw: raw}
	if err := json.Unmarshal(raw, d); err != nil {
		return nil, fmt.Errorf("%w: the manifest is no JSON object: %w", ErrIntegrity, err)
	}
	// Readers must not disagree on what such a document is (OCI image specification, CVE-2021-41190).
	if d.Manifests != nil && (d.Layers != nil || d.Config != nil) {
		return nil, fmt.Errorf("%w: the manifest is both an image and an index", ErrIntegrity)
	}
	if d.Manifests == nil && d.Layers == nil {
		return nil, fmt.Errorf("%w: the manifest has neither layers nor manifests (media type %q): rebuild the image as OCI or Docker schema 2", ErrIntegrity, d.MediaType)
	}
	return d, nil
}

// document fetches a manifest or an index by digest.
func (s *source) document(ctx context.Context, d release.Digest) (*document, error) {
	raw, err := s.cachedDocument(d)
	if err != nil {
		return nil, err
	}
	if raw == nil {
		puller, err := s.pull()
		if err != nil {
			return nil, err
		}
		desc, err := puller.Get(ctx, s.ref(d))
		if err != nil {
			return nil, registry.Explain("fetching", s.ref(d), err)
		}
		raw = desc.Manifest
		if got := digestOf(raw); got != d {
			return nil, fmt.Errorf("fetching %s: %w: the manifest has the digest %s", s.ref(d), ErrIntegrity, got)
		}
		if s.reader.cache != nil {
			if err := s.reader.cache.store(d, bytes.NewReader(raw)); err != nil {
				return nil, err
			}
		}
	}
	doc, err := parseDocument(raw)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.ref(d), err)
	}
	return doc, nil
}

// cachedDocument returns nil if the cache has no good copy; a bad one is removed.
func (s *source) cachedDocument(d release.Digest) ([]byte, error) {
	if s.reader.cache == nil {
		return nil, nil
	}
	f, ok, err := s.reader.cache.open(d)
	if err != nil || !ok {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, s.reader.opts.Limits.ManifestBytes))
	if err != nil {
		return nil, fmt.Errorf("reading image cache: %w", err)
	}
	if digestOf(raw) != d {
		return nil, s.reader.cache.remove(d)
	}
	return raw, nil
}

func digestOf(data []byte) release.Digest {
	sum := sha256.Sum256(data)
	return release.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// image follows indexes from a digest to the manifest of one platform.
func (s *source) image(ctx context.Context, d release.Digest) (*document, error) {
	for range maxIndexDepth {
		doc, err := s.document(ctx, d)
		if err != nil {
			return nil, err
		}
		if !doc.index() {
			return doc, nil
		}
		desc, err := s.choose(doc.Manifests)
		if err != nil {
			return nil, fmt.Errorf("reading index %s: %w", s.ref(d), err)
		}
		if d, err = release.ParseDigest(desc.Digest.String()); err != nil {
			return nil, fmt.Errorf("reading index: %w: %w", ErrIntegrity, err)
		}
	}
	return nil, fmt.Errorf("reading %s: %w: more than %d indexes inside each other", s.ref(d), ErrLimit, maxIndexDepth)
}

// choose picks a platform. The manifests of a release are the same on all, so without a wish the only one will do.
func (s *source) choose(manifests []v1.Descriptor) (v1.Descriptor, error) {
	wanted := s.reader.platform
	if wanted == nil {
		wanted = &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	}
	var platforms []string
	var images []v1.Descriptor
	for _, m := range manifests {
		if m.Platform != nil && m.Platform.Satisfies(*wanted) {
			return m, nil
		}
		// Attestations stand in an index as images of an unknown platform.
		if m.Platform == nil || m.Platform.OS != "unknown" {
			images = append(images, m)
		}
		if m.Platform != nil {
			platforms = append(platforms, m.Platform.String())
		}
	}
	if s.reader.platform == nil && len(images) == 1 {
		return images[0], nil
	}
	slices.Sort(platforms)
	return v1.Descriptor{}, fmt.Errorf("%w: nothing for platform %s, only for [%s]: choose one of these", ErrNotFound, wanted, strings.Join(platforms, ", "))
}

// layer gives read the verified bytes of a layer, and returns nil only if read did and the digest was right. A bad copy
// in the cache is removed and fetched again, so read may be called twice.
func (s *source) layer(ctx context.Context, d release.Digest, size int64, report func(int64, bool), read func(io.Reader) error) error {
	if s.reader.cache == nil {
		return s.remoteLayer(ctx, d, size, report, read)
	}
	done, err := s.cachedLayer(ctx, d, size, report, read)
	if done || err != nil {
		return err
	}
	err = s.remoteLayer(ctx, d, size, report, func(r io.Reader) error { return s.reader.cache.store(d, r) })
	if err != nil {
		return err
	}
	if done, err = s.cachedLayer(ctx, d, size, func(int64, bool) {}, read); !done && err == nil {
		return fmt.Errorf("reading image cache %s: %s does not stay as it was written: check the disk", s.reader.cache.dir, d)
	}
	return err
}

// cachedLayer reports done if the cache had a good copy.
func (s *source) cachedLayer(ctx context.Context, d release.Digest, size int64, report func(int64, bool), read func(io.Reader) error) (done bool, err error) {
	f, ok, err := s.reader.cache.open(d)
	if err != nil || !ok {
		return false, err
	}
	defer f.Close()
	v := newVerifier(ctx, f, d, size, func(n int64) { report(n, true) })
	readErr := read(v)
	if errors.Is(readErr, ErrLimit) || ctx.Err() != nil {
		return true, readErr
	}
	if err := v.finish(); err != nil {
		if errors.Is(err, ErrIntegrity) {
			return false, s.reader.cache.remove(d)
		}
		return true, err
	}
	return true, readErr
}

func (s *source) remoteLayer(ctx context.Context, d release.Digest, size int64, report func(int64, bool), read func(io.Reader) error) error {
	ref := s.ref(d)
	puller, err := s.pull()
	if err != nil {
		return err
	}
	// The descriptor's own "urls" are not followed: they would let an image name any host.
	layer, err := puller.Layer(ctx, ref)
	if err != nil {
		return registry.Explain("fetching layer", ref, err)
	}
	body, err := layer.Compressed()
	if err != nil {
		return registry.Explain("fetching layer", ref, err)
	}
	defer body.Close()
	v := newVerifier(ctx, body, d, size, func(n int64) { report(n, false) })
	readErr := read(v)
	if errors.Is(readErr, ErrLimit) || ctx.Err() != nil {
		return readErr
	}
	// Content that is not what it should be explains everything that went wrong in reading it.
	if err := v.finish(); err != nil {
		return fmt.Errorf("fetching layer from %s: %w", ref.Context(), err)
	}
	return readErr
}
