package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/release"
)

// Media and artifact types of signatures.
const (
	// bundlePrefix begins the type of sigstore bundles of every version (sigstore bundle specification).
	bundlePrefix = "application/vnd.dev.sigstore.bundle"
	// cosignArtifact is the artifact type under which cosign attaches its older signatures as referrers.
	cosignArtifact = "application/vnd.dev.cosign.artifact.sig.v1+json"
	// simpleSigning is the media type of the document that such a signature signs.
	simpleSigning = "application/vnd.dev.cosign.simplesigning.v1+json"
	// emptyArtifact stands where an artifact has no configuration, and so may no type (OCI image specification).
	emptyArtifact = "application/vnd.oci.empty.v1+json"
)

// attachedSuffixes end the tags by which cosign attaches signatures, attestations and bills of materials.
var attachedSuffixes = []string{".sig", ".att", ".sbom"}

// Attached is something that lies beside an image: a signature, an attestation, a bill of materials, anything.
type Attached struct {
	// Descriptor names its document. ArtifactType may be empty.
	v1.Descriptor
	// Tag is by which it is attached; empty for what refers to the image.
	Tag string
}

// attachedTag is the tag of a digest, with a suffix.
func attachedTag(d release.Digest, suffix string) string { return "sha256-" + d.Hex() + suffix }

// attachedName reports whether a name in a layout is such a tag.
func attachedName(name string) bool {
	name = name[strings.LastIndex(name, ":")+1:]
	return strings.HasPrefix(name, "sha256-") &&
		slices.ContainsFunc(attachedSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// Attached lists what lies beside a digest, under the tags sha256-<hex>.sig, .att and .sbom and as referrers, whatever its type. The
// first place that has anything of a kind counts for the kind. None is no error; what was found is returned together
// with the errors of the rest.
func (s *Repository) Attached(ctx context.Context, d release.Digest) ([]Attached, error) {
	found, errs := make([][]Attached, len(attachedSuffixes)+1), make([]error, len(attachedSuffixes)+1)
	var group errgroup.Group
	for i, suffix := range attachedSuffixes {
		group.Go(func() error {
			tag := attachedTag(d, suffix)
			doc, _, err := s.tagged(ctx, tag, true)
			if errs[i] = err; doc != nil {
				found[i] = []Attached{{Descriptor: doc.Descriptor(), Tag: tag}}
			}
			return nil
		})
	}
	last := len(attachedSuffixes)
	group.Go(func() error {
		referrers, err := s.referrers(ctx, d, func(v1.Descriptor) bool { return true })
		errs[last] = err
		for _, r := range referrers {
			found[last] = append(found[last], Attached{Descriptor: r.Descriptor})
		}
		return nil
	})
	_ = group.Wait() // no error is one of the whole
	return slices.Concat(found...), errors.Join(errs...)
}

// tagged returns the document of a tag and the place that it is from, nil if there is none. many says that this is one
// of many such questions, so that it is worth while to have the tags of the repository listed first.
func (s *Repository) tagged(ctx context.Context, tag string, many bool) (doc *Document, from string, err error) {
	var raw []byte
	err = s.try(ctx, wish{doing: "fetching", identifier: tag}, func(p place) (err error) {
		if many && p.lacks(ctx, tag) {
			return ErrNotFound
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
	if doc, err = parseDocument(raw); err != nil {
		return nil, "", fmt.Errorf("reading %s:%s: %w", from, tag, err)
	}
	return doc, from, nil
}

// referrer is one that a place lists.
type referrer struct {
	v1.Descriptor
	from string
}

// referrers lists what refers to a digest: of the first place that has something wanted, or else of all.
func (s *Repository) referrers(ctx context.Context, d release.Digest, wanted func(v1.Descriptor) bool) ([]referrer, error) {
	var found []referrer
	err := s.try(ctx, wish{doing: "listing referrers of", identifier: string(d)}, func(p place) error {
		listed, err := p.referrers(ctx, d)
		if err != nil {
			return err
		}
		for _, desc := range listed {
			if !slices.ContainsFunc(found, func(f referrer) bool { return f.Digest == desc.Digest }) {
				found = append(found, referrer{desc, p.String()})
			}
		}
		if !slices.ContainsFunc(listed, wanted) {
			return ErrNotFound
		}
		return nil
	})
	if isNotFound(err) {
		err = nil
	}
	return found, err
}

// Attachments returns the signatures that lie beside an image: the layers of the tag sha256-<hex>.sig, and referrers
// that are signatures. None is no error. What could be read is returned together with the errors of the rest, so that
// one broken signature does not hide a good one. Nothing here says that a signature is worth anything.
func (r *Reader) Attachments(ctx context.Context, img release.Image) ([]release.Attachment, error) {
	s, err := r.Repository(img)
	if err != nil {
		return nil, err
	}
	s.once = true // whoever verifies waits for the answer
	c := &collector{repository: s, limits: r.opts.Limits, subject: img.Digest}
	err = c.tagged(ctx)
	if !s.allOver() {
		err = errors.Join(err, c.referrers(ctx))
	}
	if err := errors.Join(err, errors.Join(c.errs...)); err != nil {
		return c.found, fmt.Errorf("reading signatures of %s: %w", img.ByDigest(), err)
	}
	return c.found, nil
}

// collector gathers the signatures of one image.
type collector struct {
	repository *Repository
	limits     Limits
	subject    release.Digest
	found      []release.Attachment
	errs       []error
}

// tagged reads the signatures under cosign's tag.
func (c *collector) tagged(ctx context.Context) error {
	tag := attachedTag(c.subject, ".sig")
	doc, from, err := c.repository.tagged(ctx, tag, false)
	if err != nil || doc == nil {
		return err
	}
	store := fmt.Sprintf("%s:%s", from, tag)
	if doc.IsIndex() {
		return fmt.Errorf("reading %s: %w: it is an index, signatures are an image", store, ErrIntegrity)
	}
	c.layers(ctx, store, doc.Layers, "")
	return nil
}

// referrers reads the signatures that refer to the image.
func (c *collector) referrers(ctx context.Context) error {
	candidate := func(d v1.Descriptor) bool { return signature(d.ArtifactType) || untold(d.ArtifactType) }
	listed, err := c.repository.referrers(ctx, c.subject, candidate)
	listed = slices.DeleteFunc(listed, func(r referrer) bool { return !candidate(r.Descriptor) })
	// Those that say what they are come first, so that the others do not use up the limit.
	slices.SortStableFunc(listed, func(a, b referrer) int {
		return strings.Compare(fmt.Sprint(untold(a.ArtifactType)), fmt.Sprint(untold(b.ArtifactType)))
	})
	if len(listed) > c.limits.Attachments {
		c.errs = append(c.errs, fmt.Errorf("%w: %d referrers, only %d were read", ErrLimit, len(listed), c.limits.Attachments))
		listed = listed[:c.limits.Attachments]
	}
	for _, r := range listed {
		if err := c.referrer(ctx, r); err != nil {
			c.errs = append(c.errs, err)
		}
	}
	return err
}

func (c *collector) referrer(ctx context.Context, listed referrer) error {
	digest, err := content(listed.Descriptor, c.limits.ManifestBytes)
	if err != nil {
		return fmt.Errorf("referrer: %w", err)
	}
	doc, err := c.repository.Document(ctx, digest)
	if err != nil {
		return err
	}
	store := fmt.Sprintf("%s@%s", listed.from, digest)
	if doc.Subject == nil || doc.Subject.Digest.String() != string(c.subject) || doc.IsIndex() {
		return fmt.Errorf("reading %s: %w: it is listed as a signature of %s but does not refer to it", store, ErrIntegrity, c.subject)
	}
	// Registries that predate artifact types know only the type of the configuration.
	artifact := doc.ArtifactType
	if artifact == "" && doc.Config != nil {
		artifact = string(doc.Config.MediaType)
	}
	switch {
	case signature(artifact):
		c.layers(ctx, store, doc.Layers, artifact)
	case untold(artifact):
		// What an artifact does not say of itself, its layers may.
		signed := slices.DeleteFunc(doc.Layers, func(d v1.Descriptor) bool { return !signatureLayer(d.MediaType) })
		c.layers(ctx, store, signed, "")
	}
	return nil
}

func signature(artifactType string) bool {
	return artifactType == cosignArtifact || strings.HasPrefix(artifactType, bundlePrefix)
}

func signatureLayer(t types.MediaType) bool {
	return t == simpleSigning || strings.HasPrefix(string(t), bundlePrefix)
}

// untold reports whether an artifact type says nothing.
func untold(artifactType string) bool {
	switch artifactType {
	case "", emptyArtifact, string(types.OCIConfigJSON), string(types.DockerConfigJSON):
		return true
	}
	return false
}

// layers adds each layer of a signature image. The artifact type speaks for layers that bring no type of their own.
func (c *collector) layers(ctx context.Context, store string, layers []v1.Descriptor, artifact string) {
	for i, desc := range layers {
		if len(c.found) >= c.limits.Attachments {
			c.errs = append(c.errs, fmt.Errorf("%w: more than %d signatures, the rest was not read", ErrLimit, c.limits.Attachments))
			return
		}
		payload, err := c.repository.small(ctx, desc, c.limits.AttachmentBytes)
		if err != nil {
			c.errs = append(c.errs, fmt.Errorf("reading %s: layer %d: %w", store, i+1, err))
			continue
		}
		mediaType := string(desc.MediaType)
		if strings.HasPrefix(artifact, bundlePrefix) && !signatureLayer(desc.MediaType) {
			mediaType = artifact
		}
		c.found = append(c.found, release.Attachment{
			Store: store, MediaType: mediaType, Payload: payload, Annotations: desc.Annotations,
		})
	}
}
