// Package repository provides the content of one image repository by digest. It takes a pullspec and chooses the sources: the cache, the
// mirrors and the registry, or an OCI layout. It returns documents, blobs and attachments, and verifies their digests. Callers interpret
// the content.
package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image/cache"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// Options configure repositories. Fields without a default are required.
type Options struct {
	// Access connects to the registries.
	Access *registry.Access
	// Cache caches fetched content; nil for no cache.
	Cache *cache.Folder
	// Platform selects an image from an index. The default is linux on this machine's architecture, or the only image of the index.
	Platform *v1.Platform
	// ManifestBytes bounds the size of each image manifest and index, BlobBytes the size of each blob, and Manifests the number of images
	// in an index.
	ManifestBytes, BlobBytes int64
	Manifests                int
}

// Repository provides the content of one image by digest. Its sources are either the cache, the mirrors and the image's own repository, or
// an OCI layout. If a place lacks, refuses or alters content, Repository uses the next place. It verifies the digests of all content. A
// Repository is for a single operation: it does not use a failed place again while other places work. It is safe for concurrent use.
type Repository struct {
	opts   Options
	source name.Repository // the pullspec's repository, which may not be contacted
	// once prevents a second contact with an unreachable registry, even if no other place remains.
	once   bool
	mu     sync.Mutex
	places []*candidate
}

// candidate is a place with its results in this operation.
type candidate struct {
	place
	// failed is the reason to skip the place. lacking is set if the place lacked some content; it is then used last.
	failed  error
	lacking bool
	served  bool
	// gone is the reason not to contact the place again, even if no other place remains.
	gone error
}

// Open returns the sources of an image's content. It sends no request.
func Open(opts Options, img release.Image) (*Repository, error) {
	if _, err := release.ParseDigest(string(img.Digest)); err != nil {
		return nil, fmt.Errorf("image %q: %w", img.Pullspec, err)
	}
	if dir, _, ok := layout.SplitReference(img.Pullspec); ok {
		return openLayout(opts, dir), nil
	}
	ref, err := opts.Access.Reference(img.ByDigest())
	if err != nil {
		return nil, err
	}
	return openRemotes(opts, ref)
}

func openLayout(opts Options, dir string) *Repository {
	return &Repository{opts: opts, places: []*candidate{{place: newLayoutPlace(dir, opts.ManifestBytes)}}}
}

func openRemotes(opts Options, ref name.Reference) (*Repository, error) {
	puller, err := newPuller(opts.Access)
	if err != nil {
		return nil, err
	}
	candidates := opts.Access.Candidates(ref)
	if len(candidates) == 0 {
		return nil, failure.ExplainAttempts("reading", ref, nil)
	}
	s := &Repository{opts: opts, source: ref.Context()}
	for _, c := range candidates {
		s.places = append(s.places, &candidate{place: &remotePlace{repo: c.Context(), puller: puller, access: opts.Access}})
	}
	return s, nil
}

// String returns the repository of the image's pullspec, or the folder of the layout.
func (s *Repository) String() string {
	if dir, ok := s.places[0].place.(layoutPlace); ok {
		return dir.String()
	}
	return s.source.String()
}

// Served lists the places that have served content so far, in order of use. It omits the cache.
func (s *Repository) Served() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, c := range s.places {
		if c.served {
			names = append(names, c.String())
		}
	}
	return names
}

// LeaveUnreachable prevents a second contact with an unreachable registry, even if no other place remains. Use it while an administrator
// is waiting.
func (s *Repository) LeaveUnreachable() { s.once = true }

// Document returns the manifest or index of a digest.
func (s *Repository) Document(ctx context.Context, d release.Digest) (*document.Document, error) {
	raw, err := s.cachedDocument(d)
	if err != nil {
		return nil, err
	}
	if raw == nil {
		if raw, err = s.fetchDocument(ctx, d); err != nil {
			return nil, err
		}
		if s.cache() != nil {
			if err := s.cache().Store(d, raw); err != nil {
				return nil, err
			}
		}
	}
	doc, err := document.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("reading %s@%s: %w", s, d, err)
	}
	if len(doc.Manifests) > s.opts.Manifests {
		return nil, fmt.Errorf("reading %s@%s: %w: the index lists %d images, the limit is %d", s, d, failure.ErrLimit, len(doc.Manifests), s.opts.Manifests)
	}
	return doc, nil
}

// Exists returns nil if some place has the manifest or index of a digest. The error matches failure.ErrNotFound if every place lacks it.
func (s *Repository) Exists(ctx context.Context, d release.Digest) error {
	return s.try(ctx, request{"finding", string(d), true}, func(p place) error {
		_, err := p.resolve(ctx, string(d))
		return err
	})
}

func (s *Repository) fetchDocument(ctx context.Context, d release.Digest) (raw []byte, err error) {
	return raw, s.try(ctx, request{"fetching", string(d), true}, func(p place) (err error) {
		if raw, err = p.document(ctx, string(d)); err != nil {
			return err
		}
		if got := document.DigestOf(raw); got != d {
			return fmt.Errorf("%w: the received manifest has the digest %s", failure.ErrIntegrity, got)
		}
		return nil
	})
}

// cachedDocument returns a document from the cache, or nil if the cache has no valid copy. It removes an invalid copy.
func (s *Repository) cachedDocument(d release.Digest) ([]byte, error) {
	if s.cache() == nil {
		return nil, nil
	}
	return s.cache().Document(d, s.opts.ManifestBytes)
}

// Image returns the image manifest with a digest. For an index, it returns the image manifest for the platform.
func (s *Repository) Image(ctx context.Context, d release.Digest) (*document.Document, error) {
	for range document.MaxIndexDepth {
		doc, err := s.Document(ctx, d)
		if err != nil {
			return nil, err
		}
		if !doc.IsIndex() {
			return doc, nil
		}
		desc, err := choose(s.opts.Platform, doc.Manifests)
		if err != nil {
			return nil, fmt.Errorf("reading index %s@%s: %w", s, d, err)
		}
		if d, err = document.Content(desc, s.opts.ManifestBytes); err != nil {
			return nil, fmt.Errorf("reading index %s@%s: %w", s, doc.Digest, err)
		}
	}
	return nil, fmt.Errorf("reading %s@%s: %w: more than %d nested indexes", s, d, failure.ErrLimit, document.MaxIndexDepth)
}

// choose returns the image for the platform. All platforms of a release have the same manifests, so it accepts the only image if no
// platform is configured.
func choose(platform *v1.Platform, manifests []v1.Descriptor) (v1.Descriptor, error) {
	wanted := platform
	if wanted == nil {
		wanted = &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	}
	var platforms []string
	var images []v1.Descriptor
	for _, m := range manifests {
		if m.Platform != nil && m.Platform.Satisfies(*wanted) {
			return m, nil
		}
		if !document.IsAttestation(m) {
			images = append(images, m)
		}
		if m.Platform != nil {
			platforms = append(platforms, m.Platform.String())
		}
	}
	if platform == nil && len(images) == 1 {
		return images[0], nil
	}
	slices.Sort(platforms)
	return v1.Descriptor{}, fmt.Errorf("%w: no image for platform %s, only for [%s]: choose one of these", failure.ErrNotFound, wanted, strings.Join(platforms, ", "))
}

// Config returns the stored bytes of an image's configuration.
func (s *Repository) Config(ctx context.Context, doc *document.Document) (config []byte, err error) {
	if doc.Config == nil {
		err = fmt.Errorf("%w: the image has no configuration", failure.ErrIntegrity)
	} else if config, err = s.Small(ctx, *doc.Config, s.opts.ManifestBytes); err == nil {
		err = document.CheckJSON(config, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of %s@%s: %w", s, doc.Digest, err)
	}
	return config, nil
}

// Small reads a blob of up to limit bytes into memory.
func (s *Repository) Small(ctx context.Context, desc v1.Descriptor, limit int64) ([]byte, error) {
	if _, err := document.Content(desc, limit); err != nil {
		return nil, err
	}
	blob, err := s.file(ctx, desc, nil, limit)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	return io.ReadAll(blob)
}

// request is a request to places.
type request struct {
	// doing and identifier describe the request in errors, such as "fetching" and a digest or tag.
	doing, identifier string
	// content is set for content that every copy of the image has, so a place that lacks it may lack more. Signatures may be missing
	// legitimately.
	content bool
}

// try asks the places in order until one succeeds.
func (s *Repository) try(ctx context.Context, w request, ask func(place) error) error {
	places, results := s.order()
	for _, c := range places {
		if gone := s.over(c); gone != nil {
			results[c] = gone
			continue
		}
		err := ask(c.place)
		s.learn(ctx, c, err, w.content)
		var local localError
		switch {
		case err == nil:
			return nil
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			results[c] = overdue(err)
			return s.refusal(w, results)
		case ctx.Err() != nil || errors.As(err, &local):
			return fmt.Errorf("%s %s of %s: %w", w.doing, w.identifier, c, err)
		}
		results[c] = err
	}
	return s.refusal(w, results)
}

// overdue marks an error after the caller's deadline, which may have a cause of its own.
func overdue(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
}

// ask asks one place, unless it must not be contacted again. It returns nil if the place lacks the content, or must not be
// contacted again.
func (s *Repository) ask(ctx context.Context, c *candidate, w request, get func(place) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.over(c) != nil {
		return nil //nolint:nilerr // the request that has found this error returns it
	}
	err := get(c.place)
	s.learn(ctx, c, err, w.content)
	if err == nil || isNotFound(err) {
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = overdue(err)
	}
	if remote, ok := c.place.(*remotePlace); ok {
		return failure.Explain(w.doing, remote.ref(w.identifier), err)
	}
	return fmt.Errorf("%s %s of %s: %w", w.doing, w.identifier, c, err)
}

// refusal returns an error with the results of all places. A place without a result was not asked in time.
func (s *Repository) refusal(w request, results map[*candidate]error) error {
	var attempts []failure.Attempt
	for _, c := range s.places {
		err := results[c]
		remote, ok := c.place.(*remotePlace)
		if !ok {
			return fmt.Errorf("%s %s of %s: %w", w.doing, w.identifier, c, err)
		}
		attempts = append(attempts, failure.Attempt{Ref: remote.ref(w.identifier), Err: err})
	}
	return failure.ExplainAttempts(w.doing, reference(s.source, w.identifier), attempts)
}

// order lists the places to ask: working places first, then places that lacked content. If all places have failed, it returns all of them.
// failures are the errors of the failed places. Later, the places may no longer have them.
func (s *Repository) order() (places []*candidate, failures map[*candidate]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var good, lacking []*candidate
	failures = map[*candidate]error{}
	for _, c := range s.places {
		switch {
		case c.failed != nil:
			failures[c] = c.failed
		case c.lacking:
			lacking = append(lacking, c)
		default:
			good = append(good, c)
		}
	}
	if good = append(good, lacking...); len(good) == 0 {
		return s.places, failures
	}
	return good, failures
}

// over returns the reason not to contact a place again, or nil.
func (s *Repository) over(c *candidate) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.gone
}

// learn records a place's result. It ignores errors of the local disk and a canceled context.
func (s *Repository) learn(ctx context.Context, c *candidate, err error, content bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var local localError
	switch {
	case err == nil:
		c.served, c.failed = true, nil
	case ctx.Err() != nil || errors.As(err, &local):
	case isNotFound(err):
		c.lacking = c.lacking || content
	default:
		c.failed = err
		if s.once && failure.NoConnection(err) {
			s.leave(c, err)
		}
	}
}

// leave marks all places on an unreachable registry as gone.
func (s *Repository) leave(c *candidate, err error) {
	here, ok := c.place.(*remotePlace)
	for _, other := range s.places {
		there, remote := other.place.(*remotePlace)
		if other == c || ok && remote && here.repo.RegistryStr() == there.repo.RegistryStr() {
			other.failed = cmp.Or(other.failed, err)
			other.gone = other.failed
		}
	}
}

// ListInCache adds an image to the cache's index under its pullspec, for other tools. Without a cache, it does nothing.
func (s *Repository) ListInCache(ctx context.Context, img release.Image) error {
	if s.cache() == nil {
		return nil
	}
	top, err := s.Document(ctx, img.Digest)
	if err != nil {
		return err
	}
	return s.cache().List(img.Pullspec, top.Descriptor())
}

func isNotFound(err error) bool {
	return errors.Is(err, failure.ErrNotFound) || failure.IsNotFound(err)
}

func (s *Repository) cache() *cache.Folder {
	if _, ok := s.places[0].place.(layoutPlace); ok {
		return nil
	}
	return s.opts.Cache
}

// localError is a failure of the local disk. Another place cannot help.
type localError struct{ error }

// Unwrap returns the wrapped error.
func (e localError) Unwrap() error { return e.error }

// localWriter marks a writer's errors as local.
type localWriter struct{ io.Writer }

// Write implements io.Writer.
func (w localWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		err = localError{err}
	}
	return n, err
}
