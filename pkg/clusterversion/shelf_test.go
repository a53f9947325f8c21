package clusterversion

import (
	"context"
	"io/fs"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

// shelf is an in-memory registry with a signature for every image.
type shelf struct {
	images map[release.Digest]fs.FS
	pulled []release.Digest
	err    error // the result of every pull, if set
}

func newShelf(versions ...string) *shelf {
	s := &shelf{images: map[release.Digest]fs.FS{}}
	for _, v := range versions {
		s.images[digestOf(v)] = cluster.Files(v)
	}
	return s
}

func (s *shelf) Resolve(_ context.Context, pullspec string) (release.Image, error) {
	return release.Image{Pullspec: pullspec, Digest: release.Pullspec(pullspec).Digest()}, nil
}

func (s *shelf) Manifests(_ context.Context, img release.Image) (fs.FS, error) {
	s.pulled = append(s.pulled, img.Digest)
	if s.images[img.Digest] == nil {
		return nil, failure.ErrNotFound
	}
	return s.images[img.Digest], s.err
}

func (s *shelf) Verifier(context.Context, release.Image, *payload.Payload) (accept.Verifier, error) {
	return s, nil
}

func (s *shelf) Verify(context.Context, release.Image) ([]release.Evidence, error) {
	return []release.Evidence{{Method: "openpgp", KeyID: "0123", Identity: "Jo", Store: "shelf"}}, nil
}

func (s *shelf) stages() accept.Stages {
	return accept.Stages{
		Outside:  func(context.Context, *configv1.ClusterVersion) (accept.Outside, error) { return s, nil },
		Settings: func() accept.Settings { return accept.Settings{} },
	}
}
