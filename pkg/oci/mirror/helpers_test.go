package mirror_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/mirror"
	"github.com/cluster-version/cvo/pkg/oci/mirror/target"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

const (
	componentRepository = "upstream/components"
	releaseRepository   = "upstream/release"
	mirrorRepository    = "mirror/platform"
)

// published is a release in a vendor's registry. Its components are in one repository, its release image in another.
type published struct {
	registry   *fixture.Registry
	image      release.Image
	components map[string]release.Image
}

// content returns deterministic, incompressible bytes.
func content(seed uint64, size int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	out := make([]byte, size)
	_, _ = rand.NewChaCha8(key).Read(out) // never fails
	return out
}

func layer(seed uint64, size int) v1.Layer {
	return static.NewLayer(content(seed, size), types.DockerLayer)
}

// componentImage returns an image with three layers. One layer is in all images, one is in half of them, and one is unique.
func componentImage(t testing.TB, i int, architecture string) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layer(1, 40_000), layer(uint64(2+i%2), 30_000), layer(uint64(100+i), 20_000+i))
	require.NoError(t, err)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{OS: "linux", Architecture: architecture, RootFS: v1.RootFS{Type: "layers", DiffIDs: diffIDs(t, img)}})
	require.NoError(t, err)
	return img
}

func diffIDs(t testing.TB, img v1.Image) []v1.Hash {
	t.Helper()
	config, err := img.ConfigFile()
	require.NoError(t, err)
	return config.RootFS.DiffIDs
}

// publish pushes a release with n components.
func publish(t testing.TB, r *fixture.Registry, version string, components int) published {
	t.Helper()
	p := published{registry: r, components: map[string]release.Image{}}
	var tags []string
	for i := range components {
		name := fmt.Sprintf("component-%03d", i)
		img, err := fixture.Push(t.Context(), r, componentImage(t, i, "amd64"), componentRepository+":"+name+"-"+version)
		require.NoError(t, err)
		p.components[name] = img
		tags = append(tags, fmt.Sprintf(`{"name": %q, "from": {"kind": "DockerImage", "name": %q}}`, name, img.ByDigest()))
	}
	var err error
	p.image, err = fixture.PushRelease(t.Context(), r, releaseTree(version, tags), releaseRepository+":"+version+"-x86_64")
	require.NoError(t, err)
	r.Reset()
	return p
}

func releaseTree(version string, tags []string) fstest.MapFS {
	return fstest.MapFS{
		"manifests/0000_00_a.yaml":           {Data: []byte("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n")},
		"release-manifests/release-metadata": {Data: fmt.Appendf(nil, `{"kind": "cincinnati-metadata-v0", "version": %q, "previous": []}`, version)},
		"release-manifests/image-references": {Data: fmt.Appendf(nil,
			`{"apiVersion": "image.openshift.io/v1", "kind": "ImageStream", "metadata": {"name": %q}, "spec": {"tags": [%s]}}`, version, strings.Join(tags, ","))},
	}
}

func access() *registry.Access { return registry.New(registry.Options{}) }

func reader(t testing.TB) *image.Reader {
	t.Helper()
	images, err := image.New(image.Options{Access: access(), CacheDir: t.TempDir()})
	require.NoError(t, err)
	return images
}

// uncached returns a reader without a cache, for the content to copy.
func uncached(t testing.TB) *image.Reader {
	t.Helper()
	images, err := image.New(image.Options{Access: access()})
	require.NoError(t, err)
	return images
}

func targetAt(t testing.TB, r *fixture.Registry) mirror.Target {
	t.Helper()
	destination, err := target.OpenRepository(access(), r.Host()+"/"+mirrorRepository)
	require.NoError(t, err)
	return destination
}

// planOf reads a release and returns a plan to mirror it.
func planOf(t testing.TB, pullspec string, to mirror.Target, whole bool, opts mirror.Options) (*mirror.Plan, *mirror.Release, error) {
	t.Helper()
	images := reader(t)
	img, err := images.Resolve(t.Context(), pullspec)
	require.NoError(t, err)
	r, err := mirror.Read(t.Context(), images, img, whole)
	require.NoError(t, err)
	list, err := r.Images(t.Context(), access(), images, uncached(t), mirror.Destination{To: to})
	require.NoError(t, err)
	plan, err := mirror.New(t.Context(), list, opts)
	return plan, r, err
}

// copied mirrors a release and returns the result.
func copied(t testing.TB, pullspec string, to mirror.Target, opts mirror.Options) mirror.Result {
	t.Helper()
	plan, _, err := planOf(t, pullspec, to, false, opts)
	require.NoError(t, err)
	result, err := plan.Copy(t.Context())
	require.NoError(t, err)
	require.NoError(t, to.Close())
	return result
}

// requireComplete reads all images of a release completely from a mirror.
func requireComplete(t testing.TB, p published, mirrored func(release.Digest) string) {
	t.Helper()
	images := reader(t)
	for name, img := range p.components {
		requireReadable(t, images, name, mirrored(img.Digest), img.Digest)
	}
	requireReadable(t, images, "release", mirrored(p.image.Digest), p.image.Digest)
}

func requireReadable(t testing.TB, images *image.Reader, name, pullspec string, digest release.Digest) {
	t.Helper()
	found, err := images.Resolve(t.Context(), pullspec)
	require.NoError(t, err, name)
	require.Equal(t, digest, found.Digest, name)
	repository, err := images.Repository(found)
	require.NoError(t, err, name)
	doc, err := repository.Document(t.Context(), digest)
	require.NoError(t, err, name)
	for _, desc := range append([]v1.Descriptor{*doc.Config}, doc.Layers...) {
		blob, err := repository.Blob(t.Context(), desc)
		require.NoError(t, err, name)
		n, err := io.Copy(io.Discard, blob)
		require.NoError(t, err, "%s: reading blob %s", name, desc.Digest)
		require.Equal(t, desc.Size, n)
		require.NoError(t, blob.Close())
	}
}

func inRegistry(r *fixture.Registry) func(release.Digest) string {
	return func(d release.Digest) string { return r.Host() + "/" + mirrorRepository + "@" + string(d) }
}

func inFolder(dir string) func(release.Digest) string {
	return func(d release.Digest) string { return dir + "@" + string(d) }
}

// downloads and uploads count the requests that transfer content.
func downloads(r *fixture.Registry) int { return r.Count("GET", `/blobs/sha256:`) }

func uploads(r *fixture.Registry) int {
	return r.Count("POST", `/blobs/`) + r.Count("PATCH", `.`) + r.Count("PUT", `.`)
}

// attachReferrer attaches a document with the given type to an image.
func attachReferrer(t testing.TB, img release.Image, artifact string, payload []byte) release.Digest {
	t.Helper()
	ref, err := access().Reference(img.ByDigest())
	require.NoError(t, err)
	desc, err := remote.Head(ref)
	require.NoError(t, err)
	attached, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(payload, types.MediaType(artifact)))
	require.NoError(t, err)
	attached = mutate.ConfigMediaType(attached, types.MediaType(artifact))
	withSubject, ok := mutate.Subject(attached, *desc).(v1.Image)
	require.True(t, ok)
	digest, err := withSubject.Digest()
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref.Context().Digest(digest.String()), withSubject))
	return release.Digest(digest.String())
}

func remoteImage(ref name.Reference) (v1.Image, error) { return remote.Image(ref) }

func pushIndex(t testing.TB, index v1.ImageIndex, pullspec string) release.Image {
	t.Helper()
	ref, err := access().Reference(pullspec)
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(ref, index))
	digest, err := index.Digest()
	require.NoError(t, err)
	return release.Image{Pullspec: pullspec, Digest: release.Digest(digest.String())}
}
