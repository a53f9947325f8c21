package target

import (
	"context"
	"io"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/release"
)

// Layout is an OCI image layout as a target. Create it with NewLayout.
type Layout struct{ *layout.Writer }

// NewLayout returns a Layout in a folder, which is created on first use.
func NewLayout(dir string) *Layout { return &Layout{layout.NewWriter(dir)} }

// Holds implements Target.
func (l *Layout) Holds(ctx context.Context, doc *document.Document, blobs []v1.Descriptor, tags []string) (Held, error) {
	if err := l.Begin(); err != nil {
		return Held{}, err
	}
	held := Held{There: true}
	for _, tag := range tags {
		if l.Lists(doc.Descriptor().Digest, tag) {
			continue
		}
		held.Missing = append(held.Missing, tag)
		if attached(tag) {
			present, err := l.tagged(ctx, tag)
			if err != nil {
				return Held{}, err
			}
			if present != nil && hasExtraSignatures(present, doc) {
				return Held{Kept: tag}, nil
			}
		}
	}
	for _, desc := range append([]v1.Descriptor{doc.Descriptor()}, blobs...) {
		held.There = held.There && l.Has(desc)
	}
	// Readers find an untagged document through its parent. They find a referrer only through the layout's list.
	if len(tags) == 0 && doc.Subject != nil && !l.Lists(doc.Descriptor().Digest, "") {
		held.There = false
	}
	return held, nil
}

// tagged reads the document with a tag; nil if there is none.
func (l *Layout) tagged(ctx context.Context, tag string) (*document.Document, error) {
	desc, ok := l.Listed(tag)
	if !ok {
		return nil, nil
	}
	digest, err := DigestOf(desc)
	if err != nil || !l.Has(desc) {
		return nil, err
	}
	images, err := image.New(image.Options{})
	if err != nil {
		return nil, err
	}
	repository, err := images.Repository(release.Image{Pullspec: l.String(), Digest: digest})
	if err != nil {
		return nil, err
	}
	return repository.Document(ctx, digest)
}

// Upload implements Target.
func (l *Layout) Upload(_ context.Context, desc v1.Descriptor, _ name.Repository, open func() (io.ReadCloser, error)) (sent bool, err error) {
	if _, err := DigestOf(desc); err != nil {
		return false, err
	}
	if l.Has(desc) {
		return false, nil
	}
	body, err := open()
	if err != nil {
		return false, err
	}
	defer body.Close()
	return true, l.Write(desc, body)
}

// Put implements Target.
func (l *Layout) Put(_ context.Context, doc *document.Document, tags []string) error {
	desc := doc.Descriptor()
	if !l.Has(desc) {
		if err := l.Write(desc, strings.NewReader(string(doc.Raw))); err != nil {
			return err
		}
	}
	if len(tags) == 0 && doc.Subject != nil {
		tags = []string{""}
	}
	for _, tag := range tags {
		l.List(desc, tag)
	}
	return nil
}
