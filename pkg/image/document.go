package image

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

	"github.com/cluster-version/cvo/pkg/release"
)

// Document is an image manifest or an index.
type Document struct {
	// Digest is that of Raw, the bytes as they are stored.
	Digest release.Digest `json:"-"`
	Raw    []byte         `json:"-"`
	// MediaType is what the document says it is; if it says nothing, the OCI type that its content makes it.
	MediaType types.MediaType `json:"mediaType"`
	// Config and Layers are those of an image.
	Config *v1.Descriptor  `json:"config"`
	Layers []v1.Descriptor `json:"layers"`
	// Manifests are those of an index.
	Manifests []v1.Descriptor `json:"manifests"`
	// Subject is what the document is attached to, ArtifactType says as what.
	Subject      *v1.Descriptor `json:"subject"`
	ArtifactType string         `json:"artifactType"`
}

// IsIndex reports whether the document lists documents, not layers.
func (d *Document) IsIndex() bool { return d.Manifests != nil }

// Descriptor is what an index or a layout lists the document by.
func (d *Document) Descriptor() v1.Descriptor {
	return v1.Descriptor{MediaType: d.MediaType, Size: int64(len(d.Raw)), Digest: hashOf(d.Digest), ArtifactType: d.ArtifactType}
}

func parseDocument(raw []byte) (*Document, error) {
	if err := checkJSON(raw, documentNames); err != nil {
		return nil, err
	}
	d := &Document{Digest: digestOf(raw), Raw: raw}
	if err := json.Unmarshal(raw, d); err != nil {
		return nil, fmt.Errorf("%w: the manifest is not built as manifests are: %w", ErrIntegrity, err)
	}
	switch {
	// Readers must not disagree on what such a document is (OCI image specification, CVE-2021-41190).
	case d.Manifests != nil && (d.Layers != nil || d.Config != nil):
		return nil, fmt.Errorf("%w: the manifest is both an image and an index", ErrIntegrity)
	case d.Manifests == nil && d.Layers == nil:
		return nil, fmt.Errorf("%w: the manifest has neither layers nor manifests (media type %q): rebuild the image as OCI or Docker schema 2", ErrIntegrity, d.MediaType)
	case d.MediaType == "" && d.IsIndex():
		d.MediaType = types.OCIImageIndex
	case d.MediaType == "":
		d.MediaType = types.OCIManifestSchema1
	}
	return d, nil
}

// Bounds of JSON that describes images. A few bytes of it can become a few hundred in memory.
const (
	maxJSONValues = 50_000
	maxJSONDepth  = 64
)

// documentNames are the names that decide what a document says. The decoder takes them in any case, other readers do not.
var documentNames = []string{
	"schemaVersion", "mediaType", "artifactType", "config", "layers", "manifests", "subject", "annotations", "digest", "size", "urls", "data",
	"platform", "architecture", "os", "variant", "features", "os.version", "os.features",
}

// checkJSON refuses text that readers of JSON understand differently (a name twice in one object, one of the given names
// in another case) and text that would need much more memory than itself. Annotations are free.
func checkJSON(raw []byte, names []string) error {
	c := &jsonChecker{decoder: json.NewDecoder(bytes.NewReader(raw)), names: names}
	if err := c.value(0, false); err != nil {
		if errors.Is(err, ErrIntegrity) || errors.Is(err, ErrLimit) {
			return err
		}
		return fmt.Errorf("%w: it is no JSON: %w", ErrIntegrity, err)
	}
	if _, err := c.decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: more text follows the JSON object", ErrIntegrity)
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
		return fmt.Errorf("%w: the JSON text has more than %d values, or is nested deeper than %d", ErrLimit, maxJSONValues, maxJSONDepth)
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
		return fmt.Errorf("%w: %q stands twice in one JSON object: rebuild the image", ErrIntegrity, name)
	}
	seen[name] = true
	if !free && !slices.Contains(c.names, name) && slices.ContainsFunc(c.names, func(known string) bool { return strings.EqualFold(known, name) }) {
		return fmt.Errorf("%w: %q is not spelled as it must be: rebuild the image", ErrIntegrity, name)
	}
	return nil
}

func digestOf(data []byte) release.Digest {
	sum := sha256.Sum256(data)
	return release.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

func hashOf(d release.Digest) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: d.Hex()} }

// content is the digest of what a descriptor describes. Its size must be within a limit.
func content(desc v1.Descriptor, limit int64) (release.Digest, error) {
	digest, err := release.ParseDigest(desc.Digest.String())
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrIntegrity, err)
	}
	if desc.Size < 0 || desc.Size > limit {
		return "", fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrLimit, digest, desc.Size, limit)
	}
	return digest, nil
}
