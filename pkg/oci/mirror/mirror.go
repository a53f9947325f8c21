// Package mirror copies releases from a registry or an OCI layout to another registry or OCI layout. First, it creates a plan that lists
// each manifest once: the release image, its components and their attachments (signatures, attestations and other referrers). Then it
// copies missing content in parallel, each blob once and under its original digest. An interrupted copy resumes where it stopped.
// Repeating a finished copy costs one request for each manifest.
//
// Other packages verify the release's signatures. This package only selects the OpenPGP messages to copy.
package mirror

import (
	"context"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/image/repository"
	"github.com/cluster-version/cvo/pkg/oci/mirror/target"
	"github.com/cluster-version/cvo/pkg/release"
)

// Source provides the verified content of one repository by digest, like repository.Repository.
type Source interface {
	fmt.Stringer
	// Document returns a manifest or an index.
	Document(ctx context.Context, d release.Digest) (*document.Document, error)
	// Blob streams a layer or a configuration. The reader returns io.EOF only after content with the right digest.
	Blob(ctx context.Context, desc v1.Descriptor) (io.ReadCloser, error)
	// Attached lists the attachments of a digest. On errors, it returns the attachments found together with the errors.
	Attached(ctx context.Context, d release.Digest) ([]repository.Attached, error)
}

// Target receives content. Everything that a document lists is written before the document.
type Target interface {
	fmt.Stringer
	// Holds checks which parts of a document the target has: the document itself, its blobs and its tags.
	Holds(ctx context.Context, doc *document.Document, blobs []v1.Descriptor, tags []string) (target.Held, error)
	// Upload writes a blob unless the target has it. It calls open only if necessary. sent reports whether it sent the content.
	Upload(ctx context.Context, desc v1.Descriptor, origin name.Repository, open func() (io.ReadCloser, error)) (sent bool, err error)
	// Put writes a document under its digest and tags.
	Put(ctx context.Context, doc *document.Document, tags []string) error
	// Close publishes the written content.
	Close() error
}

// Image is an image to copy to a target.
type Image struct {
	// Name is the name of the component; ReleaseName for the release image.
	Name string
	// From is the source of the content. Origin is the source's repository; zero for an OCI layout.
	From   Source
	Origin name.Repository
	Digest release.Digest
	To     Target
	// Tag is the image's tag at the target; empty for none.
	Tag string
	// Last is set for the release image, which is written last, so that an available release is complete.
	Last bool
}

// Event is the progress in bytes of an image with its attachments.
type Event struct {
	Name        string
	Done, Total int64
	// Ended is set when the image is complete. There is set if the image was already complete before.
	Ended, There bool
}

// Options configure planning and copying. The zero value uses the defaults.
type Options struct {
	// Width is the maximum number of parallel requests; default 16. It is reduced temporarily while a registry is overloaded.
	Width int
	// Attempts is the maximum number of attempts for an operation; default 5.
	Attempts int
	// Without contains blobs to omit, because the recipient of the copy already has them.
	Without map[release.Digest]bool
	// Progress receives events from several goroutines at once; may be nil.
	Progress func(Event)
	// Warn receives warnings for the user; may be nil.
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

// Result contains statistics of a copy.
type Result struct {
	// Images counts the requested images, Documents all manifests and indexes, Attached those that are attachments.
	Images    int `json:"images"`
	Documents int `json:"manifests"`
	Attached  int `json:"attached"`
	// There counts the documents that the target already had.
	There int `json:"manifestsAlreadyThere"`
	// Blobs and Bytes count the sent content. Spared counts the blobs that existed or were mounted from another repository.
	Blobs  int   `json:"blobsSent"`
	Bytes  int64 `json:"bytesSent"`
	Spared int   `json:"blobsAlreadyThere"`
	// Retries counts retried operations.
	Retries int `json:"retries"`
}
