package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/release"
)

// attachedSuffixes are the suffixes of the tags that cosign uses for signatures, attestations and bills of materials.
var attachedSuffixes = []string{".sig", ".att", ".sbom"}

// Attached is an artifact attached to an image, such as a signature, an attestation or a bill of materials.
type Attached struct {
	// Descriptor identifies the artifact's document. ArtifactType may be empty.
	v1.Descriptor
	// Tag is the tag of the artifact; empty for referrers.
	Tag string
}

// AttachedTag returns the tag for artifacts attached to a digest; suffix selects the kind.
func AttachedTag(d release.Digest, suffix string) string { return "sha256-" + d.Hex() + suffix }

// attachedName reports whether a name in a layout is an attachment tag.
func attachedName(name string) bool {
	name = name[strings.LastIndex(name, ":")+1:]
	return strings.HasPrefix(name, "sha256-") &&
		slices.ContainsFunc(attachedSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// Attached lists the artifacts that are attached to a digest: the tags sha256-<hex>.sig, .att and .sbom, and the referrers. For each of
// these, it uses the first place that has artifacts. An empty result is not an error. On errors, it returns the artifacts found together
// with the joined errors.
func (s *Repository) Attached(ctx context.Context, d release.Digest) ([]Attached, error) {
	found, errs := make([][]Attached, len(attachedSuffixes)+1), make([]error, len(attachedSuffixes)+1)
	var group errgroup.Group
	for i, suffix := range attachedSuffixes {
		group.Go(func() error {
			tag := AttachedTag(d, suffix)
			doc, err := s.tagged(ctx, tag)
			if errs[i] = err; doc != nil {
				found[i] = []Attached{{Descriptor: doc.Descriptor(), Tag: tag}}
			}
			return nil
		})
	}
	last := len(attachedSuffixes)
	group.Go(func() error {
		referrers, err := s.referrers(ctx, d)
		errs[last] = err
		for _, r := range referrers {
			found[last] = append(found[last], Attached{Descriptor: r})
		}
		return nil
	})
	_ = group.Wait() // the goroutines record their errors in errs
	return slices.Concat(found...), errors.Join(errs...)
}

// tagged returns the document at a tag; nil if the tag does not exist. It lists all tags once, which saves requests for many images.
func (s *Repository) tagged(ctx context.Context, tag string) (*document.Document, error) {
	var raw []byte
	var from string
	err := s.try(ctx, request{doing: "fetching", identifier: tag}, func(p place) (err error) {
		if p.lacks(ctx, tag) {
			return failure.ErrNotFound
		}
		from = p.String()
		raw, err = p.document(ctx, tag)
		return err
	})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseTagged(raw, from, tag)
}

func parseTagged(raw []byte, from, tag string) (*document.Document, error) {
	doc, err := document.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("reading %s:%s: %w", from, tag, err)
	}
	return doc, nil
}

// referrers lists the referrers of a digest in the first place that has some. If no place returns its whole list, it returns the longest
// list with an error.
func (s *Repository) referrers(ctx context.Context, d release.Digest) (found []v1.Descriptor, err error) {
	err = s.try(ctx, referrersRequest(d), func(p place) error {
		listed, err := p.referrers(ctx, d)
		if len(listed) > len(found) || err == nil && len(listed) > 0 {
			found = listed
		}
		if err == nil && len(listed) == 0 {
			err = failure.ErrNotFound
		}
		return err
	})
	if isNotFound(err) {
		err = nil
	}
	return found, err
}

func referrersRequest(d release.Digest) request {
	return request{doing: "listing referrers of", identifier: string(d)}
}

// Found is what one place has attached to a digest: the document at a tag, or referrers.
type Found struct {
	// From is the place.
	From string
	// Tagged is the document at the tag; nil for referrers.
	Tagged    *document.Document
	Referrers []v1.Descriptor
}

// InEachPlace yields what each place has attached to a digest: the document at a tag, and then the referrers. It sends a request only when
// the caller asks for more, so a silent place does not hide what the places before it have. If the request for the tag fails, the request
// for the referrers follows after all other places.
func (s *Repository) InEachPlace(ctx context.Context, d release.Digest, tag string) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		list := func(c *candidate) bool {
			found := Found{From: c.String()}
			var rest error
			err := s.ask(ctx, c, referrersRequest(d), func(p place) (err error) {
				if found.Referrers, err = p.referrers(ctx, d); len(found.Referrers) > 0 && err != nil {
					rest, err = fmt.Errorf("listing all referrers of %s in %s: %w", d, c, err), nil // the place has those that it lists
				}
				return err
			})
			return len(found.Referrers) == 0 && err == nil || yield(found, cmp.Or(err, rest))
		}
		var failed []*candidate
		places, _ := s.order()
		for _, c := range places {
			var raw []byte
			err := s.ask(ctx, c, request{doing: "fetching", identifier: tag}, func(p place) (err error) {
				raw, err = p.document(ctx, tag)
				return err
			})
			found, isFailed := Found{From: c.String()}, err != nil
			if raw != nil {
				found.Tagged, err = parseTagged(raw, found.From, tag)
			}
			if (raw != nil || err != nil) && !yield(found, err) {
				return
			}
			if isFailed {
				failed = append(failed, c)
			} else if !list(c) {
				return
			}
		}
		for _, c := range failed {
			if !list(c) {
				return
			}
		}
	}
}
