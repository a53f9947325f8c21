package image

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

	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// maxIndexDepth bounds how many indexes lie between an image's digest and its manifest.
const maxIndexDepth = 3

// Repository gives what belongs to one image, by digest: from the cache, from the mirrors of its repository and the
// repository itself in their order, or from an OCI layout. What one place lacks, refuses or has changed is taken from
// the next. Everything is checked against its digest. It serves one operation: a place that failed is not asked again
// while there are others. It is safe for concurrent use.
type Repository struct {
	reader *Reader
	source name.Repository // what the image's pullspec names, be it asked or not
	// once: a registry to which there is no connection is not asked again, even if there are no others.
	once   bool
	mu     sync.Mutex
	places []*candidate
}

// candidate is a place and what this operation has learned about it.
type candidate struct {
	place
	// failed is why it is passed over; lacking, that it did not have something and is asked after the others.
	failed  error
	lacking bool
	served  bool
	// gone: it is not asked any more at all.
	gone bool
}

// Repository returns where the content of an image lies. Nothing is asked yet.
func (r *Reader) Repository(img release.Image) (*Repository, error) {
	if _, err := release.ParseDigest(string(img.Digest)); err != nil {
		return nil, fmt.Errorf("image %q: %w", img.Pullspec, err)
	}
	if dir, _, ok := layoutReference(img.Pullspec); ok {
		return r.layout(dir), nil
	}
	ref, err := r.opts.Access.Reference(img.ByDigest())
	if err != nil {
		return nil, err
	}
	return r.remotes(ref)
}

func (r *Reader) layout(dir string) *Repository {
	return &Repository{reader: r, places: []*candidate{{place: newLayoutPlace(dir, r.opts.Limits)}}}
}

func (r *Reader) remotes(ref name.Reference) (*Repository, error) {
	puller, err := r.puller()
	if err != nil {
		return nil, err
	}
	candidates := r.opts.Access.Candidates(ref)
	if len(candidates) == 0 {
		return nil, registry.ExplainAttempts("reading", ref, nil)
	}
	s := &Repository{reader: r, source: ref.Context()}
	for _, c := range candidates {
		s.places = append(s.places, &candidate{place: &remotePlace{repo: c.Context(), puller: puller, access: r.opts.Access}})
	}
	return s, nil
}

// String names the repository as the image's pullspec does, or the folder.
func (s *Repository) String() string {
	if dir, ok := s.places[0].place.(*layoutPlace); ok {
		return dir.String()
	}
	return s.source.String()
}

// Served names the places that content came from so far, in the order in which places are asked; the cache is none.
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

// PassedOver says why places were passed over so far.
func (s *Repository) PassedOver() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, c := range s.places {
		if c.failed != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c, c.failed))
		}
	}
	return errs
}

// Document returns the manifest or index of a digest.
func (s *Repository) Document(ctx context.Context, d release.Digest) (*Document, error) {
	raw, err := s.cachedDocument(d)
	if err != nil {
		return nil, err
	}
	if raw == nil {
		if raw, err = s.fetchDocument(ctx, d); err != nil {
			return nil, err
		}
		if s.cache() != nil {
			if err := s.cache().store(d, raw); err != nil {
				return nil, err
			}
		}
	}
	doc, err := parseDocument(raw)
	if err != nil {
		return nil, fmt.Errorf("reading %s@%s: %w", s, d, err)
	}
	if len(doc.Manifests) > s.limits().Manifests {
		return nil, fmt.Errorf("reading %s@%s: %w: the index lists %d images, the limit is %d", s, d, ErrLimit, len(doc.Manifests), s.limits().Manifests)
	}
	return doc, nil
}

func (s *Repository) fetchDocument(ctx context.Context, d release.Digest) (raw []byte, err error) {
	return raw, s.try(ctx, wish{"fetching", string(d), true}, func(p place) (err error) {
		if raw, err = p.document(ctx, string(d)); err != nil {
			return err
		}
		if got := digestOf(raw); got != d {
			return fmt.Errorf("%w: the manifest has the digest %s", ErrIntegrity, got)
		}
		return nil
	})
}

// cachedDocument returns nil if the cache has no good copy; a bad one is removed.
func (s *Repository) cachedDocument(d release.Digest) ([]byte, error) {
	if s.cache() == nil {
		return nil, nil
	}
	return s.cache().document(d, s.limits())
}

// document returns nil if there is no good copy; a bad one is removed.
func (c *cache) document(d release.Digest, limits Limits) ([]byte, error) {
	f, ok, err := c.open(d)
	if err != nil || !ok {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, limits.ManifestBytes))
	if err != nil {
		return nil, fmt.Errorf("reading image cache: %w", err)
	}
	if digestOf(raw) != d {
		return nil, c.remove(d)
	}
	return raw, nil
}

// Image returns the image manifest of a digest: of an index, the one for the Reader's platform.
func (s *Repository) Image(ctx context.Context, d release.Digest) (*Document, error) {
	for range maxIndexDepth {
		doc, err := s.Document(ctx, d)
		if err != nil {
			return nil, err
		}
		if !doc.IsIndex() {
			return doc, nil
		}
		desc, err := s.reader.choose(doc.Manifests)
		if err != nil {
			return nil, fmt.Errorf("reading index %s@%s: %w", s, d, err)
		}
		if d, err = content(desc, s.limits().ManifestBytes); err != nil {
			return nil, fmt.Errorf("reading index %s@%s: %w", s, doc.Digest, err)
		}
	}
	return nil, fmt.Errorf("reading %s@%s: %w: more than %d indexes inside each other", s, d, ErrLimit, maxIndexDepth)
}

// choose picks a platform. The manifests of a release are the same on all, so without a wish the only one will do.
func (r *Reader) choose(manifests []v1.Descriptor) (v1.Descriptor, error) {
	wanted := r.platform
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
	if r.platform == nil && len(images) == 1 {
		return images[0], nil
	}
	slices.Sort(platforms)
	return v1.Descriptor{}, fmt.Errorf("%w: nothing for platform %s, only for [%s]: choose one of these", ErrNotFound, wanted, strings.Join(platforms, ", "))
}

// Config returns the configuration of an image as it is stored.
func (s *Repository) Config(ctx context.Context, doc *Document) (config []byte, err error) {
	if doc.Config == nil {
		err = fmt.Errorf("%w: the image has none", ErrIntegrity)
	} else if config, err = s.small(ctx, *doc.Config, s.limits().ManifestBytes); err == nil {
		err = checkJSON(config, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of %s@%s: %w", s, doc.Digest, err)
	}
	return config, nil
}

// small reads a blob into memory.
func (s *Repository) small(ctx context.Context, desc v1.Descriptor, limit int64) ([]byte, error) {
	if _, err := content(desc, limit); err != nil {
		return nil, err
	}
	blob, err := s.file(ctx, desc, nil)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	return io.ReadAll(blob)
}

// wish is what places are asked for.
type wish struct {
	// doing and identifier say it in errors, such as "fetching" a digest or a tag.
	doing, identifier string
	// content is set for what belongs to every copy of the image: a place that lacks it lacks more. Signatures do not.
	content bool
}

// try asks one place after the other.
func (s *Repository) try(ctx context.Context, w wish, ask func(place) error) error {
	answers := map[*candidate]error{}
	for _, c := range s.order() {
		if s.isOver(c) {
			continue // since this very question
		}
		err := ask(c.place)
		s.learn(ctx, c, err, w.content)
		var local localError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil || errors.As(err, &local):
			return fmt.Errorf("%s %s of %s: %w", w.doing, w.identifier, c, err)
		}
		answers[c] = err
	}
	return s.refusal(w, answers)
}

// refusal tells what every place answered, those included that failed earlier.
func (s *Repository) refusal(w wish, answers map[*candidate]error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var attempts []registry.Attempt
	for _, c := range s.places {
		err := cmp.Or(answers[c], c.failed)
		remote, ok := c.place.(*remotePlace)
		if !ok {
			return fmt.Errorf("%s %s of %s: %w", w.doing, w.identifier, c, err)
		}
		if err != nil {
			attempts = append(attempts, registry.Attempt{Ref: remote.ref(w.identifier), Err: err})
		}
	}
	return registry.ExplainAttempts(w.doing, reference(s.source, w.identifier), attempts)
}

// order lists the places to ask now: those that lacked something come last, those that failed only if there are no others.
func (s *Repository) order() []*candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	var good, lacking []*candidate
	for _, c := range s.places {
		switch {
		case c.failed != nil:
		case c.lacking:
			lacking = append(lacking, c)
		default:
			good = append(good, c)
		}
	}
	if good = append(good, lacking...); len(good) == 0 {
		return s.places
	}
	return good
}

// isOver reports whether a place is not to be asked at all any more.
func (s *Repository) isOver(c *candidate) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.gone
}

// allOver reports whether no place is to be asked any more.
func (s *Repository) allOver() bool {
	return !slices.ContainsFunc(s.places, func(c *candidate) bool { return !s.isOver(c) })
}

// learn remembers how a place answered. What this machine's disk does wrong, or a caller that goes, says nothing of it.
func (s *Repository) learn(ctx context.Context, c *candidate, err error, content bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var local localError
	switch {
	case err == nil:
		c.served = true
	case ctx.Err() != nil || errors.As(err, &local):
	case isNotFound(err):
		c.lacking = c.lacking || content
	default:
		c.failed = err
		if s.once && registry.NoConnection(err) {
			s.leave(c, err)
		}
	}
}

// leave remembers that there is no connection to the registry of a place, where others may lie, too.
func (s *Repository) leave(c *candidate, err error) {
	here, ok := c.place.(*remotePlace)
	for _, other := range s.places {
		there, remote := other.place.(*remotePlace)
		if other == c || ok && remote && here.repo.RegistryStr() == there.repo.RegistryStr() {
			other.gone, other.failed = true, cmp.Or(other.failed, err)
		}
	}
}

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) || registry.IsNotFound(err) }

func (s *Repository) cache() *cache {
	if _, ok := s.places[0].place.(*layoutPlace); ok {
		return nil
	}
	return s.reader.cache
}

func (s *Repository) limits() Limits { return s.reader.opts.Limits }

// localError is a failure of this machine's disk, which no other place could mend.
type localError struct{ error }

// Unwrap lets errors.Is look inside.
func (e localError) Unwrap() error { return e.error }

// localWriter marks the errors of a writer as ours.
type localWriter struct{ io.Writer }

// Write implements io.Writer.
func (w localWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		err = localError{err}
	}
	return n, err
}
