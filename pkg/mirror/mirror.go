// Package mirror copies releases: from registries or an OCI layout to a repository of a registry or an OCI layout. A plan
// is made first: every manifest of the release image, of its components and of what is attached to them (signatures,
// attestations, whatever else refers to them), each once. Copying a plan takes to the target what the target does not
// have, each blob once, by several at a time, and under its own digest; so a plan that was cut short is gone through
// again and goes on where it was, and one that was finished costs a question for each manifest.
//
// Whether somebody trusted has signed a release is decided before, by others; what this package says of signatures is
// which OpenPGP messages are worth carrying along.
package mirror

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/release"
)

// Source gives the content of one repository by digest, and checks it on the way: an image.Repository.
type Source interface {
	fmt.Stringer
	// Document returns a manifest or an index.
	Document(ctx context.Context, d release.Digest) (*image.Document, error)
	// Blob streams a layer or a configuration: its reader yields io.EOF only after content of the right digest.
	Blob(ctx context.Context, desc v1.Descriptor) (io.ReadCloser, error)
	// Attached lists what lies beside a digest. What was found is returned together with the errors of the rest.
	Attached(ctx context.Context, d release.Digest) ([]image.Attached, error)
}

// Target takes content in. Documents are put after everything that they list.
type Target interface {
	fmt.Stringer
	// Holds looks for a document, its blobs and its tags.
	Holds(ctx context.Context, doc *image.Document, blobs []v1.Descriptor, tags []string) (Held, error)
	// Upload takes a blob that is read from the source only if it is needed. It tells whether bytes were sent.
	Upload(ctx context.Context, desc v1.Descriptor, origin name.Repository, open func() (io.ReadCloser, error)) (sent bool, err error)
	// Put takes a document under its digest and tags.
	Put(ctx context.Context, doc *image.Document, tags []string) error
	// Close ends the writing and makes visible what was written.
	Close() error
}

// Held is what a target has of a document.
type Held struct {
	// There says that the document and its blobs are there, Missing which of its tags do not stand for it.
	There   bool
	Missing []string
	// Kept is a tag that stands for signatures of others, which would be lost if it were moved; so it stays, and the
	// document, which is for that tag only, is not written.
	Kept string
}

// attached reports whether a tag is one by which signatures and the like are attached.
func attached(tag string) bool { return strings.HasPrefix(tag, "sha256-") }

// keeps reports whether what such a tag stands for has signatures that a document lacks.
func keeps(present, doc *image.Document) bool {
	return slices.ContainsFunc(present.Layers, func(l v1.Descriptor) bool {
		return !slices.ContainsFunc(doc.Layers, func(d v1.Descriptor) bool {
			return d.Digest == l.Digest && maps.Equal(d.Annotations, l.Annotations)
		})
	})
}

// Image is one that is to be at a target.
type Image struct {
	// Name is the component's; that of the release image is "release".
	Name string
	// From is where its content comes from, Origin the repository in a registry that this is, if it is one.
	From   Source
	Origin name.Repository
	Digest release.Digest
	To     Target
	// Tag is what it is called at the target.
	Tag string
	// Last is set for the image that is put only when all others are there: who finds it finds all of the release.
	Last bool
}

// Event tells how far an image, with everything that is attached to it, has come.
type Event struct {
	Name        string
	Done, Total int64
	// Ended says that all of it is there; There, that all of it was there before.
	Ended, There bool
}

// Options say how to plan and to copy. The zero value is fit for use.
type Options struct {
	// Width bounds how many requests are under way; default 16. Registries that answer that this is too much are asked
	// by fewer at a time.
	Width int
	// Attempts is how often one thing is tried before it is given up; default 5.
	Attempts int
	// Without are blobs that are left out, because whoever gets the copy has them.
	Without map[release.Digest]bool
	// Progress is told of images, from several goroutines; may be nil.
	Progress func(Event)
	// Warn is told of what somebody should know; may be nil.
	Warn func(string)
}

func (o Options) withDefaults() Options {
	if o.Width <= 0 {
		o.Width = 16
	}
	if o.Attempts <= 0 {
		o.Attempts = 5
	}
	if o.Progress == nil {
		o.Progress = func(Event) {}
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	return o
}

// Result counts what copying did.
type Result struct {
	// Images are those asked for, Documents all manifests and indexes, Attached those of them that are attached to others.
	Images    int `json:"images"`
	Documents int `json:"manifests"`
	Attached  int `json:"attached"`
	// There are the documents that the target had already.
	There int `json:"manifestsAlreadyThere"`
	// Blobs and Bytes were sent; Spared blobs were there already, or were mounted from another repository.
	Blobs  int   `json:"blobsSent"`
	Bytes  int64 `json:"bytesSent"`
	Spared int   `json:"blobsAlreadyThere"`
	// Retries counts what had to be tried again.
	Retries int `json:"retries"`
}
