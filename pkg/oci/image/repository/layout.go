package repository

import (
	"context"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/release"
)

// layoutPlace is a local OCI layout.
type layoutPlace struct{ *layout.Reader }

func newLayoutPlace(dir string, manifestBytes int64) layoutPlace {
	return layoutPlace{layout.NewReader(dir, manifestBytes)}
}

// resolve implements place.
func (p layoutPlace) resolve(_ context.Context, identifier string) (release.Digest, error) {
	raw, err := p.Document(identifier)
	if err != nil {
		return "", err
	}
	return document.DigestOf(raw), nil
}

// document implements place.
func (p layoutPlace) document(_ context.Context, identifier string) ([]byte, error) {
	return p.Document(identifier)
}

// blob implements place.
func (p layoutPlace) blob(_ context.Context, d release.Digest) (io.ReadCloser, error) {
	f, err := p.Blob(d)
	if err != nil {
		return nil, err // a nil *os.File would be a non-nil reader
	}
	return f, nil
}

// referrers implements place.
func (p layoutPlace) referrers(_ context.Context, d release.Digest) ([]v1.Descriptor, error) {
	return p.Referrers(d)
}

// lacks implements place. It returns false, because lookups in a layout are cheap.
func (p layoutPlace) lacks(context.Context, string) bool { return false }
