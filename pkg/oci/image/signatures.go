package image

import (
	"context"
	"fmt"
	"iter"
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

// Attachments yields the signatures attached to an image: in each of its places, the layers of the image at tag sha256-<hex>.sig, and then
// the signatures among the referrers. It sends requests only as the caller continues. An image without signatures yields nothing. An error
// concerns one signature or one place; others may follow. The limits apply to each place. Attachments does not verify signatures, so it
// stores nothing in the cache. A restart changes nothing: the tag and the list of referrers come from a registry each time.
func (r *Reader) Attachments(ctx context.Context, img release.Image) iter.Seq2[release.Attachment, error] {
	return func(yield func(release.Attachment, error) bool) {
		uncached := r.sources
		uncached.Cache = nil
		s, err := repository.Open(uncached, img)
		if err != nil {
			yield(release.Attachment{}, err)
			return
		}
		s.LeaveUnreachable() // verification waits for the result
		c := &collector{repository: s, limits: r.opts.Limits, subject: img.Digest, yield: yield, seen: map[string]bool{}}
		for found, err := range s.InEachPlace(ctx, img.Digest, repository.AttachedTag(img.Digest, ".sig")) {
			if found.From != c.from {
				c.from, c.read, c.bytes, c.full = found.From, 0, 0, false
			}
			if err != nil {
				c.fail(err)
			}
			if found.Tagged != nil {
				c.tagged(ctx, found.Tagged)
			}
			c.referrers(ctx, found.Referrers)
			if c.stopped {
				return
			}
		}
	}
}

// collector reads the signatures of one image.
type collector struct {
	repository *repository.Repository
	limits     Limits
	subject    release.Digest
	yield      func(release.Attachment, error) bool
	// stopped is set when the caller needs no more.
	stopped bool
	// seen are the digests of the documents read so far, because places often have the same ones.
	seen map[string]bool
	// from is the current place. read is the number of its signatures read so far, and bytes the size of their documents and payloads.
	from  string
	read  int
	bytes int64
	// full is set when read or bytes has reached its limit and the place has more signatures.
	full bool
}

func (c *collector) emit(a release.Attachment, err error) {
	c.stopped = c.stopped || !c.yield(a, err)
}

// wantsMore reports whether the next signature of the place is read.
func (c *collector) wantsMore() bool {
	if !c.full && (c.read >= c.limits.Attachments || c.bytes >= c.limits.AllAttachmentBytes) {
		c.full = true
		c.fail(fmt.Errorf("%w: %s has more than %d signatures, or more than %d bytes of them; ignoring the rest",
			failure.ErrLimit, c.from, c.limits.Attachments, c.limits.AllAttachmentBytes))
	}
	return !c.full && !c.stopped
}

func (c *collector) fail(err error) { c.emit(release.Attachment{}, err) }

// isNew reports whether a document with the digest has not been read yet.
func (c *collector) isNew(digest string) bool {
	isNew := !c.seen[digest]
	c.seen[digest] = true
	return isNew
}

// tagged reads the signatures with cosign's tag for the image.
func (c *collector) tagged(ctx context.Context, doc *document.Document) {
	store := fmt.Sprintf("%s:%s", c.from, repository.AttachedTag(c.subject, ".sig"))
	switch {
	case doc.IsIndex():
		c.fail(fmt.Errorf("reading %s: %w: it is an index instead of an image", store, failure.ErrIntegrity))
	case c.isNew(string(doc.Digest)):
		c.bytes += int64(len(doc.Raw))
		c.layers(ctx, store, doc.Layers, "")
	}
}

// referrers reads the signatures that refer to the image.
func (c *collector) referrers(ctx context.Context, listed []v1.Descriptor) {
	listed = slices.DeleteFunc(listed, func(d v1.Descriptor) bool {
		return c.seen[d.Digest.String()] || !signature(d.ArtifactType) && !isGeneric(d.ArtifactType)
	})
	// Referrers with a type come first, so that referrers without a type do not use up the limit.
	sorted.By(listed, func(a, b v1.Descriptor) int {
		return strings.Compare(fmt.Sprint(isGeneric(a.ArtifactType)), fmt.Sprint(isGeneric(b.ArtifactType)))
	})
	if len(listed) > c.limits.Attachments {
		c.fail(fmt.Errorf("%w: the image has %d referrers in %s; reading only %d", failure.ErrLimit, len(listed), c.from, c.limits.Attachments))
		listed = listed[:c.limits.Attachments]
	}
	for _, desc := range listed {
		if !c.wantsMore() {
			return
		}
		if err := c.referrer(ctx, desc); err != nil {
			c.fail(err)
		}
	}
}

func (c *collector) referrer(ctx context.Context, listed v1.Descriptor) error {
	digest, err := document.Content(listed, c.limits.ManifestBytes)
	if err != nil {
		return fmt.Errorf("referrer: %w", err)
	}
	if !c.isNew(string(digest)) {
		return nil
	}
	doc, err := c.repository.Document(ctx, digest)
	if err != nil {
		return err
	}
	c.bytes += int64(len(doc.Raw))
	store := fmt.Sprintf("%s@%s", c.from, digest)
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

// layers reads each layer of a signature image. Layers without their own signature type get the artifact type of a bundle.
func (c *collector) layers(ctx context.Context, store string, layers []v1.Descriptor, artifact string) {
	for i, desc := range layers {
		if !c.wantsMore() {
			return
		}
		c.read++ // broken signatures count
		payload, err := c.payload(ctx, desc)
		if err != nil {
			c.fail(fmt.Errorf("reading %s: layer %d: %w", store, i+1, err))
			continue
		}
		mediaType := string(desc.MediaType)
		if strings.HasPrefix(artifact, bundlePrefix) && !signatureLayer(desc.MediaType) {
			mediaType = artifact
		}
		c.emit(release.Attachment{Store: store, MediaType: mediaType, Payload: payload, Annotations: desc.Annotations}, nil)
	}
}

func (c *collector) payload(ctx context.Context, desc v1.Descriptor) ([]byte, error) {
	size := desc.Size
	for name, value := range desc.Annotations {
		size += int64(len(name) + len(value))
	}
	if size > c.limits.AttachmentBytes {
		return nil, fmt.Errorf("%w: the signature with its annotations has %d bytes, the limit is %d", failure.ErrLimit, size, c.limits.AttachmentBytes)
	}
	payload, err := c.repository.Small(ctx, desc, c.limits.AttachmentBytes)
	c.bytes += int64(len(payload))
	return payload, err
}
