package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/cluster-version/cvo/pkg/registry"
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
)

// Attachments returns the signatures that the registry keeps beside an image: the layers of the tag sha256-<hex>.sig,
// and referrers that are signatures (found by the referrers API, or the fallback tag where a registry has none; OCI
// distribution specification). None is no error. What could be read is returned together with the errors of the rest,
// so that one broken signature does not hide a good one. Nothing here says that a signature is worth anything.
func (r *Reader) Attachments(ctx context.Context, img release.Image) ([]release.Attachment, error) {
	ref, err := r.digestRef(img)
	if err != nil {
		return nil, err
	}
	c := &collector{source: &source{reader: r, repo: ref.Context()}, limits: r.opts.Limits, subject: img.Digest}
	puller, err := c.source.pull()
	if err != nil {
		return nil, err
	}
	var errs []error
	if err := c.tagged(ctx, puller); err != nil {
		errs = append(errs, err)
	}
	if err := c.referrers(ctx, ref, puller); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, c.errs...)...); err != nil {
		return c.found, fmt.Errorf("reading signatures of %s: %w", ref, err)
	}
	return c.found, nil
}

// collector gathers the signatures of one image.
type collector struct {
	source  *source
	limits  Limits
	subject release.Digest
	found   []release.Attachment
	errs    []error
}

// tagged reads the signatures under cosign's tag.
func (c *collector) tagged(ctx context.Context, puller *remote.Puller) error {
	tag := c.source.repo.Tag("sha256-" + c.subject.Hex() + ".sig")
	desc, err := puller.Get(ctx, tag)
	if registry.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return registry.Explain("fetching", tag, err)
	}
	doc, err := parseDocument(desc.Manifest)
	if err != nil {
		return fmt.Errorf("reading %s: %w", tag, err)
	}
	if doc.index() {
		return fmt.Errorf("reading %s: %w: it is an index, signatures are an image", tag, ErrIntegrity)
	}
	c.layers(ctx, tag, doc, "")
	return nil
}

// referrers reads the signatures that refer to the image.
func (c *collector) referrers(ctx context.Context, ref name.Digest, puller *remote.Puller) error {
	// The puller is the one that has authenticated already; the context is given apart because reusing drops it.
	index, err := remote.Referrers(ref, append(c.source.reader.opts.Access.Remote(), remote.Reuse(puller), remote.WithContext(ctx))...)
	if err != nil {
		return registry.Explain("listing referrers of", ref, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("listing referrers of %s: %w", ref, err)
	}
	candidates := slices.DeleteFunc(manifest.Manifests, func(d v1.Descriptor) bool {
		return d.ArtifactType != "" && !signature(d.ArtifactType)
	})
	if len(candidates) > c.limits.Attachments {
		c.errs = append(c.errs, fmt.Errorf("%w: %d referrers, only %d were read", ErrLimit, len(candidates), c.limits.Attachments))
		candidates = candidates[:c.limits.Attachments]
	}
	for _, desc := range candidates {
		if err := c.referrer(ctx, desc); err != nil {
			c.errs = append(c.errs, err)
		}
	}
	return nil
}

func (c *collector) referrer(ctx context.Context, desc v1.Descriptor) error {
	digest, err := release.ParseDigest(desc.Digest.String())
	if err != nil {
		return fmt.Errorf("referrer: %w", err)
	}
	ref := c.source.ref(digest)
	doc, err := c.source.document(ctx, digest)
	if err != nil {
		return err
	}
	if doc.Subject == nil || doc.Subject.Digest.String() != string(c.subject) || doc.index() {
		return fmt.Errorf("reading %s: %w: it is listed as a signature of %s but does not refer to it", ref, ErrIntegrity, c.subject)
	}
	// Registries that predate artifact types know only the type of the configuration.
	artifact := doc.Artifact
	if artifact == "" && doc.Config != nil {
		artifact = string(doc.Config.MediaType)
	}
	if signature(artifact) {
		c.layers(ctx, ref, doc, artifact)
	}
	return nil
}

func signature(artifactType string) bool {
	return artifactType == cosignArtifact || strings.HasPrefix(artifactType, bundlePrefix)
}

// layers adds each layer of a signature image. The artifact type speaks for layers that bring no type of their own.
func (c *collector) layers(ctx context.Context, store name.Reference, doc *document, artifact string) {
	for i, desc := range doc.Layers {
		if len(c.found) >= c.limits.Attachments {
			c.errs = append(c.errs, fmt.Errorf("%w: more than %d signatures, the rest was not read", ErrLimit, c.limits.Attachments))
			return
		}
		payload, err := c.payload(ctx, desc)
		if err != nil {
			c.errs = append(c.errs, fmt.Errorf("reading %s: layer %d: %w", store, i+1, err))
			continue
		}
		mediaType := string(desc.MediaType)
		if strings.HasPrefix(artifact, bundlePrefix) && !strings.HasPrefix(mediaType, bundlePrefix) && mediaType != simpleSigning {
			mediaType = artifact
		}
		c.found = append(c.found, release.Attachment{
			Store: store.String(), MediaType: mediaType, Payload: payload, Annotations: desc.Annotations,
		})
	}
}

func (c *collector) payload(ctx context.Context, desc v1.Descriptor) ([]byte, error) {
	digest, err := release.ParseDigest(desc.Digest.String())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIntegrity, err)
	}
	if desc.Size < 0 || desc.Size > c.limits.AttachmentBytes {
		return nil, fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrLimit, digest, desc.Size, c.limits.AttachmentBytes)
	}
	var payload bytes.Buffer
	err = c.source.layer(ctx, digest, desc.Size, func(int64, bool) {}, func(r io.Reader) error {
		payload.Reset()
		_, err := io.Copy(&payload, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return payload.Bytes(), nil
}
