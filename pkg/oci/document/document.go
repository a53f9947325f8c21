// Package document parses the JSON documents that describe images: manifests and indexes. Its input comes from untrusted sources. It
// returns a Document. It rejects text that two readers could interpret differently, and text that needs much more memory than its own
// size. It fetches nothing; packages image and layout do.
package document

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/release"
)

// MaxIndexDepth bounds the nesting of indexes between an image's digest and its manifest.
const MaxIndexDepth = 3

// Document is an image manifest or an index.
type Document struct {
	// Digest is the digest of Raw, the stored bytes.
	Digest release.Digest `json:"-"`
	Raw    []byte         `json:"-"`
	// MediaType is the declared media type. Without a declaration, it is the OCI type that matches the content.
	MediaType types.MediaType `json:"mediaType"`
	// Config and Layers are set for an image.
	Config *v1.Descriptor  `json:"config"`
	Layers []v1.Descriptor `json:"layers"`
	// Manifests is set for an index.
	Manifests []v1.Descriptor `json:"manifests"`
	// Subject is the document to which this document is attached, and ArtifactType is the type of the attachment. Both may be empty.
	Subject      *v1.Descriptor `json:"subject"`
	ArtifactType string         `json:"artifactType"`
}

// IsIndex reports whether the document lists other documents instead of layers.
func (d *Document) IsIndex() bool { return d.Manifests != nil }

// IsAttestation reports whether an entry of an index is the attestation of a build instead of an image. BuildKit lists it as an image for an
// unknown platform (https://docs.docker.com/build/metadata/attestations/attestation-storage/). No cluster pulls it.
func IsAttestation(desc v1.Descriptor) bool {
	return desc.Platform != nil && desc.Platform.OS == "unknown" && desc.Annotations["vnd.docker.reference.type"] == "attestation-manifest"
}

// Descriptor returns the descriptor that lists the document in an index or a layout.
func (d *Document) Descriptor() v1.Descriptor {
	return v1.Descriptor{MediaType: d.MediaType, Size: int64(len(d.Raw)), Digest: HashOf(d.Digest), ArtifactType: d.ArtifactType}
}

// Parse parses a manifest or an index.
func Parse(raw []byte) (*Document, error) {
	if err := CheckJSON(raw, Names()); err != nil {
		return nil, err
	}
	d := &Document{Digest: DigestOf(raw), Raw: raw}
	if err := json.Unmarshal(raw, d); err != nil {
		return nil, fmt.Errorf("%w: the manifest is malformed: %w", failure.ErrIntegrity, err)
	}
	switch {
	// All readers must agree on a document's type (OCI image specification, CVE-2021-41190).
	case d.Manifests != nil && (d.Layers != nil || d.Config != nil):
		return nil, fmt.Errorf("%w: the manifest is both an image and an index", failure.ErrIntegrity)
	case d.Manifests == nil && d.Layers == nil:
		return nil, fmt.Errorf("%w: the manifest lists neither layers nor manifests (media type %q): rebuild the image as OCI or Docker schema 2", failure.ErrIntegrity, d.MediaType)
	case d.MediaType == "" && d.IsIndex():
		d.MediaType = types.OCIImageIndex
	case d.MediaType == "":
		d.MediaType = types.OCIManifestSchema1
	}
	return d, nil
}

// Limits for JSON that describes images. A few bytes of JSON can need a few hundred bytes of memory.
const (
	maxJSONValues = 50_000
	maxJSONDepth  = 64
)

// Names returns the JSON names that determine a document's meaning. Go's decoder ignores their case, but other decoders do not.
func Names() []string {
	return slices.Clone(names)
}

var names = []string{
	"schemaVersion", "mediaType", "artifactType", "config", "layers", "manifests", "subject", "annotations", "digest", "size", "urls", "data",
	"platform", "architecture", "os", "variant", "features", "os.version", "os.features",
}

// CheckJSON rejects text that JSON decoders interpret differently: a duplicate name in one object, or one of the given names in another
// case. It also rejects text that needs much more memory than its own size. Annotations may use any name.
func CheckJSON(raw []byte, names []string) error {
	c := &jsonChecker{decoder: json.NewDecoder(bytes.NewReader(raw)), names: names}
	if err := c.value(0, false); err != nil {
		if errors.Is(err, failure.ErrIntegrity) || errors.Is(err, failure.ErrLimit) {
			return err
		}
		return fmt.Errorf("%w: the text is not JSON: %w", failure.ErrIntegrity, err)
	}
	if _, err := c.decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the JSON object is followed by more text", failure.ErrIntegrity)
	}
	return nil
}

type jsonChecker struct {
	decoder *json.Decoder
	names   []string
	values  int
}

func (c *jsonChecker) value(depth int, free bool) error {
	token, err := c.decoder.Token()
	if err != nil {
		return err
	}
	if c.values++; c.values > maxJSONValues || depth > maxJSONDepth {
		return fmt.Errorf("%w: the JSON text has more than %d values or more than %d levels", failure.ErrLimit, maxJSONValues, maxJSONDepth)
	}
	open, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for c.decoder.More() {
		within := free
		if open == '{' {
			token, err := c.decoder.Token()
			if err != nil {
				return err
			}
			name, _ := token.(string)
			if err := c.name(name, seen, free); err != nil {
				return err
			}
			within = free || name == "annotations"
		}
		if err := c.value(depth+1, within); err != nil {
			return err
		}
	}
	_, err = c.decoder.Token() // the closing brace
	return err
}

func (c *jsonChecker) name(name string, seen map[string]bool, free bool) error {
	if seen[name] {
		return fmt.Errorf("%w: %q occurs twice in one JSON object: rebuild the image", failure.ErrIntegrity, name)
	}
	seen[name] = true
	if !free && !slices.Contains(c.names, name) && slices.ContainsFunc(c.names, func(known string) bool { return strings.EqualFold(known, name) }) {
		return fmt.Errorf("%w: %q has the wrong case: rebuild the image", failure.ErrIntegrity, name)
	}
	return nil
}

// DigestOf returns the digest of stored bytes.
func DigestOf(data []byte) release.Digest {
	sum := sha256.Sum256(data)
	return release.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// HashOf returns a digest as the registry library's type.
func HashOf(d release.Digest) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: d.Hex()} }

// Content returns the digest of a descriptor, or an error if the digest is invalid or the size exceeds the limit.
func Content(desc v1.Descriptor, limit int64) (release.Digest, error) {
	digest, err := release.ParseDigest(desc.Digest.String())
	if err != nil {
		return "", fmt.Errorf("%w: %w", failure.ErrIntegrity, err)
	}
	if desc.Size < 0 || desc.Size > limit {
		return "", fmt.Errorf("%w: %s has %d bytes, the limit is %d", failure.ErrLimit, digest, desc.Size, limit)
	}
	return digest, nil
}
