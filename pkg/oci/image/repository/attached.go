package repository

import (
	"context"
	"errors"
	"fmt"
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
			doc, _, err := s.Tagged(ctx, tag, true)
			if errs[i] = err; doc != nil {
				found[i] = []Attached{{Descriptor: doc.Descriptor(), Tag: tag}}
			}
			return nil
		})
	}
	last := len(attachedSuffixes)
	group.Go(func() error {
		referrers, err := s.Referrers(ctx, d, func(v1.Descriptor) bool { return true })
		errs[last] = err
		for _, r := range referrers {
			found[last] = append(found[last], Attached{Descriptor: r.Descriptor})
		}
		return nil
	})
	_ = group.Wait() // the goroutines record their errors in errs
	return slices.Concat(found...), errors.Join(errs...)
}

// Tagged returns the document at a tag and the place that served it; nil if the tag does not exist. Set
// many before many lookups: Tagged then lists all tags once, which saves requests.
func (s *Repository) Tagged(ctx context.Context, tag string, many bool) (doc *document.Document, from string, err error) {
	var raw []byte
	err = s.try(ctx, request{doing: "fetching", identifier: tag}, func(p place) (err error) {
		if many && p.lacks(ctx, tag) {
			return failure.ErrNotFound
		}
		from = p.String()
		raw, err = p.document(ctx, tag)
		return err
	})
	if isNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	if doc, err = document.Parse(raw); err != nil {
		return nil, "", fmt.Errorf("reading %s:%s: %w", from, tag, err)
	}
	return doc, from, nil
}

// Referrer is a document that declares another one as its subject.
type Referrer struct {
	v1.Descriptor
	// From is the place that lists the referrer.
	From string
}

// Referrers lists the referrers of a digest. It stops at the first place that lists a wanted referrer. Otherwise, it returns the referrers
// of all places.
func (s *Repository) Referrers(ctx context.Context, d release.Digest, wanted func(v1.Descriptor) bool) ([]Referrer, error) {
	var found []Referrer
	err := s.try(ctx, request{doing: "listing referrers of", identifier: string(d)}, func(p place) error {
		listed, err := p.referrers(ctx, d)
		if err != nil {
			return err
		}
		for _, desc := range listed {
			if !slices.ContainsFunc(found, func(f Referrer) bool { return f.Digest == desc.Digest }) {
				found = append(found, Referrer{desc, p.String()})
			}
		}
		if !slices.ContainsFunc(listed, wanted) {
			return failure.ErrNotFound
		}
		return nil
	})
	if isNotFound(err) {
		err = nil
	}
	return found, err
}
