package inspect_test

import (
	"archive/tar"
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// fixtureTar returns a tar archive of the given files.
func fixtureTar(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o444, Size: int64(len(files[path]))}))
		_, err := w.Write([]byte(files[path]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func pushIndex(t *testing.T, r *fixture.Registry, index v1.ImageIndex, repositoryTag string) release.Image {
	t.Helper()
	tag, err := name.NewTag(r.Host() + "/" + repositoryTag)
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(tag, index))
	digest, err := index.Digest()
	require.NoError(t, err)
	return release.Image{Pullspec: tag.String(), Digest: release.Digest(digest.String())}
}
