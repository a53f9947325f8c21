// Package target receives the content of a mirror: a repository of a registry, or an OCI layout in a folder. It takes documents
// and blobs by digest, and reports which of them it already holds. It keeps signatures that another writer has attached. Package
// mirror decides what to copy, in which order, and how often to retry.
package target

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/release"
)

// Held is the part of a document that a target already has.
type Held struct {
	// There is set if the document and its blobs exist. Missing lists the tags that do not point to the document.
	There   bool
	Missing []string
	// Kept is a tag with other signatures, which moving the tag would lose. Then the tag stays, and the document, which is
	// for that tag only, is not written. Empty if there is no such tag.
	Kept string
}

// attached reports whether a tag is for signatures or other artifacts attached to an image.
func attached(tag string) bool { return strings.HasPrefix(tag, "sha256-") }

// hasExtraSignatures reports whether the present document of an attachment tag has signatures that doc lacks.
func hasExtraSignatures(present, doc *document.Document) bool {
	return slices.ContainsFunc(present.Layers, func(l v1.Descriptor) bool {
		return !slices.ContainsFunc(doc.Layers, func(d v1.Descriptor) bool {
			return d.Digest == l.Digest && maps.Equal(d.Annotations, l.Annotations)
		})
	})
}

// DigestOf returns the digest of a descriptor, or ErrIntegrity if it is invalid.
func DigestOf(desc v1.Descriptor) (release.Digest, error) {
	d, err := release.ParseDigest(desc.Digest.String())
	if err != nil {
		return "", fmt.Errorf("%w: %w", failure.ErrIntegrity, err)
	}
	return d, nil
}
