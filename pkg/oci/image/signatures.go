package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image/repository"
	"github.com/cluster-version/cvo/pkg/release"
)

// Media and artifact types of signatures.
const (
	// bundlePrefix is the prefix of the media types of all sigstore bundle versions (sigstore bundle specification).
	bundlePrefix = "application/vnd.dev.sigstore.bundle"
	// cosignArtifact is the artifact type of cosign's older signatures attached as referrers.
	cosignArtifact = "application/vnd.dev.cosign.artifact.sig.v1+json"
	// simpleSigning is the media type of the document that an older cosign signature signs.
	simpleSigning = "application/vnd.dev.cosign.simplesigning.v1+json"
	// emptyArtifact is the placeholder type of an artifact without a configuration (OCI image specification).
	emptyArtifact = "application/vnd.oci.empty.v1+json"
)

// Attachments returns the signatures attached to an image: the layers of the image at tag sha256-<hex>.sig, and signatures among the
// referrers. An empty result is not an error. Attachments returns readable signatures even if it also returns an error, so that one broken
// signature does not hide a good one. It does not verify signatures.
func (r *Reader) Attachments(ctx context.Context, img release.Image) ([]release.Attachment, error) {
	s, err := r.Repository(img)
	if err != nil {
		return nil, err
	}
	s.LeaveUnreachable() // verification waits for the result
	c := &collector{repository: s, limits: r.opts.Limits, subject: img.Digest}
	err = c.tagged(ctx)
	if !s.Exhausted() {
		err = errors.Join(err, c.referrers(ctx))
	}
	if err := errors.Join(err, errors.Join(c.errs...)); err != nil {
		return c.found, fmt.Errorf("reading signatures of %s: %w", img.ByDigest(), err)
	}
	return c.found, nil
}

// collector collects the signatures of one image.
type collector struct {
	repository *repository.Repository
	limits     Limits
	subject    release.Digest
	found      []release.Attachment
	errs       []error
}

// tagged adds the signatures with cosign's tag for the image.
func (c *collector) tagged(ctx context.Context) error {
	tag := repository.AttachedTag(c.subject, ".sig")
	doc, from, err := c.repository.Tagged(ctx, tag, false)
	if err != nil || doc == nil {
		return err
	}
	store := fmt.Sprintf("%s:%s", from, tag)
	if doc.IsIndex() {
		return fmt.Errorf("reading %s: %w: it is an index instead of an image", store, failure.ErrIntegrity)
	}
	c.layers(ctx, store, doc.Layers, "")
	return nil
}

// referrers reads the signatures that refer to the image.
func (c *collector) referrers(ctx context.Context) error {
	candidate := func(d v1.Descriptor) bool { return signature(d.ArtifactType) || isGeneric(d.ArtifactType) }
	listed, err := c.repository.Referrers(ctx, c.subject, candidate)
	listed = slices.DeleteFunc(listed, func(r repository.Referrer) bool { return !candidate(r.Descriptor) })
	// Referrers with a type come first, so that referrers without a type do not use up the limit.
	sorted.By(listed, func(a, b repository.Referrer) int {
		return strings.Compare(fmt.Sprint(isGeneric(a.ArtifactType)), fmt.Sprint(isGeneric(b.ArtifactType)))
	})
	if len(listed) > c.limits.Attachments {
		c.errs = append(c.errs, fmt.Errorf("%w: the image has %d referrers; reading only %d", failure.ErrLimit, len(listed), c.limits.Attachments))
		listed = listed[:c.limits.Attachments]
	}
	for _, r := range listed {
		if err := c.referrer(ctx, r); err != nil {
			c.errs = append(c.errs, err)
		}
	}
	return err
}

func (c *collector) referrer(ctx context.Context, listed repository.Referrer) error {
	digest, err := document.Content(listed.Descriptor, c.limits.ManifestBytes)
	if err != nil {
		return fmt.Errorf("referrer: %w", err)
	}
	doc, err := c.repository.Document(ctx, digest)
	if err != nil {
		return err
	}
	store := fmt.Sprintf("%s@%s", listed.From, digest)
	if doc.Subject == nil || doc.Subject.Digest.String() != string(c.subject) || doc.IsIndex() {
		return fmt.Errorf("reading %s: %w: it is listed as a signature of %s but does not refer to it", store, failure.ErrIntegrity, c.subject)
	}
	// Registries without support for artifact types report only the type of the configuration.
	artifact := doc.ArtifactType
	if artifact == "" && doc.Config != nil {
		artifact = string(doc.Config.MediaType)
	}
	switch {
	case signature(artifact):
		c.layers(ctx, store, doc.Layers, artifact)
	case isGeneric(artifact):
		// Without an artifact type, the media types of the layers determine whether it is a signature.
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

// isGeneric reports whether an artifact type does not identify the artifact.
func isGeneric(artifactType string) bool {
	switch artifactType {
	case "", emptyArtifact, string(types.OCIConfigJSON), string(types.DockerConfigJSON):
		return true
	}
	return false
}

// layers adds each layer of a signature image. Layers without their own signature type get the artifact type of a bundle.
func (c *collector) layers(ctx context.Context, store string, layers []v1.Descriptor, artifact string) {
	for i, desc := range layers {
		if len(c.found) >= c.limits.Attachments {
			c.errs = append(c.errs, fmt.Errorf("%w: more than %d signatures; ignoring the rest", failure.ErrLimit, c.limits.Attachments))
			return
		}
		payload, err := c.repository.Small(ctx, desc, c.limits.AttachmentBytes)
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
