package image_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/image/layer"
	reach "github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

const blobs = "/blobs/sha256:"

// entry is a tar entry. The zero flag means a regular file.
type entry struct {
	name, body string
	flag       byte
}

func pack(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Typeflag: e.flag, Mode: 0o644, Size: int64(len(e.body)), Linkname: "x", Format: tar.FormatPAX}
		if e.flag == 0 {
			header.Typeflag = tar.TypeReg
		}
		if header.Typeflag != tar.TypeReg {
			header.Size = 0
		}
		require.NoError(t, w.WriteHeader(header))
		if header.Size > 0 {
			_, err := w.Write([]byte(e.body))
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

// build returns an image. Each layer is a list of entries.
func build(t testing.TB, layers ...[]entry) v1.Image {
	t.Helper()
	img := empty.Image
	for _, entries := range layers {
		var err error
		img, err = fixture.Append(img, pack(t, entries...))
		require.NoError(t, err)
	}
	return img
}

func push(t testing.TB, r *fixture.Registry, img v1.Image) release.Image {
	t.Helper()
	pushed, err := fixture.Push(t.Context(), r, img, "platform/release:1")
	require.NoError(t, err)
	r.Reset()
	return pushed
}

func open(t testing.TB, opts image.Options) *image.Reader {
	t.Helper()
	if opts.Access == nil {
		opts.Access = reach.New(reach.Options{Backoff: time.Millisecond})
	}
	r, err := image.New(opts)
	require.NoError(t, err)
	return r
}

// attachments returns all signatures attached to an image, and the joined errors.
func attachments(ctx context.Context, r *image.Reader, img release.Image) (found []release.Attachment, err error) {
	for a, failed := range r.Attachments(ctx, img) {
		if failed == nil {
			found = append(found, a)
		}
		err = errors.Join(err, failed)
	}
	return found, err
}

// contents returns all files in a file system.
func contents(t testing.TB, fsys fs.FS) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, path)
		out[path] = string(data)
		return err
	}))
	return out
}

func TestManifestsMergesLayers(t *testing.T) {
	base := []entry{
		{"manifests", "", tar.TypeDir},
		{"manifests/a.yaml", "a", 0},
		{"manifests/b.yaml", "b", 0},
		{"release-manifests/r.yaml", "r", 0},
		{"release-manifests/image-references", "refs", 0},
	}
	all := map[string]string{"manifests/a.yaml": "a", "manifests/b.yaml": "b", "release-manifests/r.yaml": "r", "release-manifests/image-references": "refs"}
	with := func(change map[string]string, drop ...string) map[string]string {
		out := maps.Clone(all)
		maps.Copy(out, change)
		for _, name := range drop {
			delete(out, name)
		}
		return out
	}
	for _, tt := range []struct {
		name   string
		layers [][]entry
		want   map[string]string
	}{
		{"reads both folders", [][]entry{base}, all},
		{"reads names that begin with a dot", [][]entry{{{"./manifests/a.yaml", "a", 0}}}, map[string]string{"manifests/a.yaml": "a"}},
		{"skips other folders", [][]entry{base, {{"usr/bin/x", "x", 0}, {"/etc/passwd", "x", 0}, {"x/manifests/y", "y", 0}, {"manifestsx", "x", 0}, {"usr/link", "", tar.TypeSymlink}, {"dev/null", "", tar.TypeChar}}}, all},
		{"skips subfolders", [][]entry{base, {{"manifests/sub", "", tar.TypeDir}, {"manifests/sub/x.yaml", "x", 0}}}, all},
		{"prefers files of upper layers", [][]entry{base, {{"manifests/a.yaml", "new", 0}}}, with(map[string]string{"manifests/a.yaml": "new"})},
		{"removes files with a whiteout", [][]entry{base, {{"manifests/.wh.a.yaml", "", 0}}}, with(nil, "manifests/a.yaml")},
		{"applies a whiteout to lower layers only", [][]entry{base, {{"manifests/a.yaml", "new", 0}, {"manifests/.wh.a.yaml", "", 0}}}, with(map[string]string{"manifests/a.yaml": "new"})},
		{"empties a folder with an opaque whiteout", [][]entry{base, {{"manifests/c.yaml", "c", 0}, {"manifests/.wh..wh..opq", "", 0}}}, with(map[string]string{"manifests/c.yaml": "c"}, "manifests/a.yaml", "manifests/b.yaml")},
		{"removes a folder with a whiteout", [][]entry{base, {{".wh.manifests", "", 0}}}, with(nil, "manifests/a.yaml", "manifests/b.yaml")},
		{"removes all files with an opaque whiteout at the root", [][]entry{base, {{".wh..wh..opq", "", 0}, {"manifests/z.yaml", "z", 0}}}, map[string]string{"manifests/z.yaml": "z"}},
		{"replaces a file with a folder", [][]entry{base, {{"manifests/a.yaml", "", tar.TypeDir}}}, with(nil, "manifests/a.yaml")},
		{"replaces a file with a folder that has no entry", [][]entry{base, {{"manifests/a.yaml/x", "x", 0}}}, with(nil, "manifests/a.yaml")},
		{"returns no files if there are no layers", nil, map[string]string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			registry := fixture.StartRegistry(t)
			img := push(t, registry, build(t, tt.layers...))
			for _, opts := range []image.Options{{}, {CacheDir: t.TempDir()}} {
				fsys, err := open(t, opts).Manifests(t.Context(), img)
				require.NoError(t, err)
				assert.Equal(t, tt.want, contents(t, fsys))
				require.NoError(t, fstest.TestFS(fsys, slices.Collect(maps.Keys(tt.want))...))
			}
		})
	}
}

//threat:paths-absolute-paths a disguised absolute path
//threat:text-utf-8 a name that is not UTF-8
//threat:file-release-leads
func TestManifestsRejectsHostileLayers(t *testing.T) {
	many := make([]entry, 2000)
	for i := range many {
		many[i] = entry{"usr/" + strings.Repeat("x", i%50+1), "", 0}
	}
	zeros := strings.Repeat("\x00", 70<<20)
	for _, tt := range []struct {
		name   string
		layer  []entry
		limits layer.Limits
		kind   error
		want   string
	}{
		{"a path that leaves its folder", []entry{{"manifests/../etc/x", "", 0}}, layer.Limits{}, failure.ErrIntegrity, `"manifests/../etc/x" leads out of its folder`},
		{"a path from another folder into a manifest folder", []entry{{"usr/../manifests/x.yaml", "", 0}}, layer.Limits{}, failure.ErrIntegrity, "leads out of its folder"},
		{"a path that leaves the image", []entry{{"../../manifests/x.yaml", "", 0}}, layer.Limits{}, failure.ErrIntegrity, "leads out of its folder"},
		{"an absolute path", []entry{{"/manifests/x.yaml", "", 0}}, layer.Limits{}, failure.ErrIntegrity, "absolute path"},
		{"a disguised absolute path", []entry{{"//./manifests//x.yaml", "", 0}}, layer.Limits{}, failure.ErrIntegrity, "absolute path"},
		{"a symbolic link", []entry{{"manifests/x.yaml", "", tar.TypeSymlink}}, layer.Limits{}, failure.ErrIntegrity, `"manifests/x.yaml" is a symbolic link`},
		{"a hard link", []entry{{"release-manifests/x.yaml", "", tar.TypeLink}}, layer.Limits{}, failure.ErrIntegrity, "is a hard link"},
		{"a device", []entry{{"manifests/x.yaml", "", tar.TypeBlock}}, layer.Limits{}, failure.ErrIntegrity, "is a device"},
		{"a pipe", []entry{{"manifests/x.yaml", "", tar.TypeFifo}}, layer.Limits{}, failure.ErrIntegrity, "is a pipe"},
		{"a link in place of a folder", []entry{{"manifests", "", tar.TypeSymlink}}, layer.Limits{}, failure.ErrIntegrity, "but must be a folder"},
		{"a file in place of a folder", []entry{{"release-manifests", "x", 0}}, layer.Limits{}, failure.ErrIntegrity, "but must be a folder"},
		{"a name that is not UTF-8", []entry{{"manifests/\xff.yaml", "", 0}}, layer.Limits{}, failure.ErrIntegrity, "not UTF-8"},
		{"a large file", []entry{{"manifests/x.yaml", "12345", 0}}, layer.Limits{FileBytes: 4}, failure.ErrLimit, "has 5 bytes, the limit is 4"},
		{"files with a large total size", []entry{{"manifests/x.yaml", "123", 0}, {"manifests/y.yaml", "123", 0}}, layer.Limits{TotalBytes: 4}, failure.ErrLimit, "more than 4 bytes"},
		{"many manifests", []entry{{"manifests/x.yaml", "", 0}, {"manifests/y.yaml", "", 0}}, layer.Limits{Files: 1}, failure.ErrLimit, "more than 1 files"},
		{"many entries", many, layer.Limits{Entries: 1000}, failure.ErrLimit, "more than 1000 files"},
		{"a bomb with a large size", []entry{{"usr/x", zeros, 0}}, layer.Limits{UnpackedBytes: 1 << 20}, failure.ErrLimit, "unpacks to more than 1048576 bytes"},
		{"a bomb with a high compression ratio", []entry{{"usr/x", zeros, 0}}, layer.Limits{}, failure.ErrLimit, "unpacks to more than 200 times as much"},
		{"a large layer", []entry{{"usr/x", "x", 0}}, layer.Limits{LayerBytes: 10}, failure.ErrLimit, "the limit is 10"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			registry := fixture.StartRegistry(t)
			img := push(t, registry, build(t, tt.layer))
			for _, dir := range []string{"", t.TempDir()} {
				fsys, err := open(t, image.Options{Limits: image.Limits{Limits: tt.limits}, CacheDir: dir}).Manifests(t.Context(), img)
				require.ErrorIs(t, err, tt.kind)
				require.ErrorContains(t, err, tt.want)
				require.ErrorContains(t, err, img.ByDigest())
				assert.Nil(t, fsys)
			}
		})
	}
	t.Run("many layers", func(t *testing.T) {
		registry := fixture.StartRegistry(t)
		img := push(t, registry, build(t, []entry{{"a", "", 0}}, []entry{{"b", "", 0}}))
		_, err := open(t, image.Options{Limits: image.Limits{Limits: layer.Limits{Layers: 1}}}).Manifests(t.Context(), img)
		require.ErrorIs(t, err, failure.ErrLimit)
	})
	t.Run("many manifests in several layers", func(t *testing.T) {
		registry := fixture.StartRegistry(t)
		img := push(t, registry, build(t, []entry{{"manifests/a", "123", 0}}, []entry{{"manifests/b", "123", 0}}))
		_, err := open(t, image.Options{Limits: image.Limits{Limits: layer.Limits{Files: 1}}}).Manifests(t.Context(), img)
		require.ErrorIs(t, err, failure.ErrLimit)
		_, err = open(t, image.Options{Limits: image.Limits{Limits: layer.Limits{TotalBytes: 5}}}).Manifests(t.Context(), img)
		require.ErrorIs(t, err, failure.ErrLimit)
	})
}

func TestManifestsReadsEveryCompression(t *testing.T) {
	plain := pack(t, entry{"manifests/a.yaml", "a", 0})
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	for _, tt := range []struct {
		name      string
		mediaType types.MediaType
		data      []byte
	}{
		{"no compression", types.OCIUncompressedLayer, plain},
		{"zstd", types.OCILayerZStd, encoder.EncodeAll(plain, nil)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			registry := fixture.StartRegistry(t)
			built, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(tt.data, tt.mediaType))
			require.NoError(t, err)
			fsys, err := open(t, image.Options{}).Manifests(t.Context(), push(t, registry, built))
			require.NoError(t, err)
			assert.Equal(t, map[string]string{"manifests/a.yaml": "a"}, contents(t, fsys))
		})
	}
	t.Run("rejects encrypted layers", func(t *testing.T) {
		registry := fixture.StartRegistry(t)
		built, err := mutate.AppendLayers(empty.Image, static.NewLayer(plain, "application/vnd.oci.image.layer.v1.tar+encrypted"))
		require.NoError(t, err)
		_, err = open(t, image.Options{}).Manifests(t.Context(), push(t, registry, built))
		require.ErrorIs(t, err, failure.ErrIntegrity)
	})
	t.Run("rejects broken compression", func(t *testing.T) {
		for _, data := range []string{"\x1f\x8b\x08broken", "\x28\xb5\x2f\xfdbroken", strings.Repeat("broken", 200)} {
			registry := fixture.StartRegistry(t)
			built, err := mutate.AppendLayers(empty.Image, static.NewLayer([]byte(data), types.DockerLayer))
			require.NoError(t, err)
			_, err = open(t, image.Options{}).Manifests(t.Context(), push(t, registry, built))
			require.ErrorIs(t, err, failure.ErrIntegrity)
		}
	})
}

//threat:layer-manifest-tampered
func TestManifestsRejectsTampering(t *testing.T) {
	flip := func(data []byte) []byte {
		out := bytes.Clone(data)
		out[len(out)/2] ^= 1
		return out
	}
	for _, tt := range []struct {
		name  string
		fault fixture.Fault
		want  string
	}{
		{"a changed layer", fixture.Fault{Match: fixture.MatchPath(blobs), Rewrite: flip}, "was changed in transit or in the registry"},
		{"a longer layer", fixture.Fault{Match: fixture.MatchPath(blobs), Rewrite: func(d []byte) []byte { return append(bytes.Clone(d), 'x') }}, "has more than"},
		{"a shorter layer", fixture.Fault{Match: fixture.MatchPath(blobs), Rewrite: func(d []byte) []byte { return d[:len(d)-1] }}, "layer"},
		{"an empty layer", fixture.Fault{Match: fixture.MatchPath(blobs), Rewrite: func([]byte) []byte { return nil }}, "layer"},
		{"a truncated layer", fixture.Fault{Match: fixture.MatchPath(blobs), Truncate: 20}, "connection closed after"},
		{"a changed manifest", fixture.Fault{Match: fixture.MatchPath("/manifests/"), Rewrite: flip}, "digest"},
		{"an endless manifest", fixture.Fault{Match: fixture.MatchPath("/manifests/"), Rewrite: func([]byte) []byte { return bytes.Repeat([]byte(" "), 5<<20) }}, "has more than 4194304 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			registry := fixture.StartRegistry(t)
			img := push(t, registry, build(t, []entry{{"manifests/a.yaml", strings.Repeat("abc", 1000), 0}}))
			dir := t.TempDir()
			remove := registry.AddFault(tt.fault)
			for _, cacheDir := range []string{"", dir} {
				_, err := open(t, image.Options{CacheDir: cacheDir}).Manifests(t.Context(), img)
				require.ErrorContains(t, err, tt.want)
			}
			remove()
			_, err := open(t, image.Options{CacheDir: dir}).Manifests(t.Context(), img)
			require.NoError(t, err, "wrong content is not cached")
		})
	}
}

func TestManifestsExplainsRejections(t *testing.T) {
	registry := fixture.StartRegistry(t)
	img := push(t, registry, build(t, []entry{{"manifests/a.yaml", "a", 0}}))
	for status, want := range map[int]error{
		http.StatusUnauthorized: failure.ErrUnauthorized, http.StatusForbidden: failure.ErrUnauthorized, http.StatusNotFound: failure.ErrNotFound,
	} {
		remove := registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/"), Status: status})
		_, err := open(t, image.Options{}).Manifests(t.Context(), img)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "registry "+registry.Host())
		_, err = open(t, image.Options{}).Resolve(t.Context(), img.Pullspec)
		require.ErrorIs(t, err, want)
		remove()
	}
	_, err := open(t, image.Options{}).Manifests(t.Context(), release.Image{Pullspec: img.Pullspec, Digest: "sha256:" + release.Digest(strings.Repeat("0", 64))})
	require.ErrorIs(t, err, failure.ErrNotFound)
	remove := registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/"), Status: http.StatusUnauthorized})
	defer remove()
	_, err = open(t, image.Options{}).Resolve(t.Context(), img.Pullspec)
	require.ErrorContains(t, err, "to the pull secret")
}

func TestManifestsRetriesTransientFailures(t *testing.T) {
	registry := fixture.StartRegistry(t)
	img := push(t, registry, build(t, []entry{{"manifests/a.yaml", "a", 0}}))
	registry.AddFault(fixture.Fault{Match: fixture.MatchPath(blobs), Times: 1, Status: http.StatusServiceUnavailable})
	_, err := open(t, image.Options{}).Manifests(t.Context(), img)
	require.NoError(t, err)
}

func TestManifestsStopsWithItsContext(t *testing.T) {
	registry := fixture.StartRegistry(t)
	img := push(t, registry, build(t, []entry{{"manifests/a.yaml", "a", 0}}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := open(t, image.Options{}).Manifests(ctx, img)
	require.ErrorIs(t, err, context.Canceled)
}

func TestResolveReturnsTheDigest(t *testing.T) {
	registry := fixture.StartRegistry(t)
	img := push(t, registry, build(t, []entry{{"manifests/a.yaml", "a", 0}}))
	r := open(t, image.Options{})
	got, err := r.Resolve(t.Context(), img.Pullspec)
	require.NoError(t, err)
	assert.Equal(t, img, got)

	registry.Reset()
	got, err = r.Resolve(t.Context(), img.ByDigest())
	require.NoError(t, err)
	assert.Equal(t, img.Digest, got.Digest)
	assert.Empty(t, registry.Requests(), "a pullspec with a digest needs no request")

	remove := registry.AddFault(fixture.Fault{Match: func(req *http.Request) bool { return req.Method == http.MethodHead }, Status: http.StatusMethodNotAllowed})
	got, err = r.Resolve(t.Context(), img.Pullspec)
	require.NoError(t, err, "a failed HEAD falls back to GET")
	assert.Equal(t, img.Digest, got.Digest)
	remove()

	for _, tt := range []struct{ pullspec, want string }{
		{"UPPER/case", `pullspec "UPPER/case"`},
		{"", `pullspec ""`},
		{registry.Host() + "/a@sha512:" + strings.Repeat("0", 128), "sha256"},
	} {
		_, err := r.Resolve(t.Context(), tt.pullspec)
		require.ErrorContains(t, err, tt.want)
	}
}

// roundTripper is a function that implements http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestInsecureRegistriesNeedPermission(t *testing.T) {
	for _, allowed := range []string{"192.168.1.1:5000", "192.168.1.1"} {
		asked := false
		transport := roundTripper(func(req *http.Request) (*http.Response, error) {
			asked = true
			assert.Equal(t, "192.168.1.1:5000", req.URL.Host)
			return nil, errors.New("no network here")
		})
		_, err := open(t, image.Options{Access: reach.New(reach.Options{Insecure: []string{allowed}, Transport: transport})}).Resolve(t.Context(), "192.168.1.1:5000/a:b")
		require.ErrorContains(t, err, "no network here")
		assert.True(t, asked)
	}
}

func TestCredentialsAreSentToTheirRegistry(t *testing.T) {
	registry := fixture.StartRegistry(t)
	img := push(t, registry, build(t, []entry{{"manifests/a.yaml", "a", 0}}))
	transport := roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Scheme == "https" {
			return nil, errors.New("no TLS here")
		}
		if user, password, _ := req.BasicAuth(); user != "me" || password != "secret" {
			return &http.Response{
				StatusCode: http.StatusUnauthorized, Request: req, Body: http.NoBody,
				Header: http.Header{"Www-Authenticate": {`Basic realm="x"`}},
			}, nil
		}
		return http.DefaultTransport.RoundTrip(req)
	})
	keychain := authn.NewMultiKeychain(keys{registry.Host(): {Username: "me", Password: "secret"}})
	_, err := open(t, image.Options{Access: reach.New(reach.Options{Transport: transport, Keychain: keychain})}).Manifests(t.Context(), img)
	require.NoError(t, err)
	_, err = open(t, image.Options{Access: reach.New(reach.Options{Transport: transport, Keychain: keys{}})}).Manifests(t.Context(), img)
	require.ErrorIs(t, err, failure.ErrUnauthorized)
}

// keys is a keychain that maps registry hosts to credentials.
type keys map[string]authn.AuthConfig

func (k keys) Resolve(target authn.Resource) (authn.Authenticator, error) {
	if config, ok := k[target.RegistryStr()]; ok {
		return authn.FromConfig(config), nil
	}
	return authn.Anonymous, nil
}

func TestManifestsChoosesThePlatformOfAnIndex(t *testing.T) {
	registry := fixture.StartRegistry(t)
	platform := func(arch string) mutate.IndexAddendum {
		return mutate.IndexAddendum{Add: build(t, []entry{{"manifests/a.yaml", arch, 0}}), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}}
	}
	attestation := mutate.IndexAddendum{Add: build(t, []entry{{"x", "x", 0}}), Descriptor: v1.Descriptor{
		Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}, Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest"},
	}}
	pushIndex := func(tag string, index v1.ImageIndex) release.Image {
		ref, err := name.NewTag(registry.Host() + "/platform/release:" + tag)
		require.NoError(t, err)
		require.NoError(t, remote.WriteIndex(ref, index, remote.WithContext(t.Context())))
		digest, err := index.Digest()
		require.NoError(t, err)
		return release.Image{Pullspec: ref.String(), Digest: release.Digest(digest.String())}
	}
	two := pushIndex("two", mutate.AppendManifests(empty.Index, attestation, platform("s390x"), platform("arm64")))
	one := pushIndex("one", mutate.AppendManifests(empty.Index, attestation, platform("s390x")))

	resolved, err := open(t, image.Options{}).Resolve(t.Context(), two.Pullspec)
	require.NoError(t, err)
	assert.Equal(t, two.Digest, resolved.Digest, "an index resolves to its own digest, which is signed")

	fsys, err := open(t, image.Options{Platform: "linux/arm64"}).Manifests(t.Context(), two)
	require.NoError(t, err)
	assert.Equal(t, "arm64", contents(t, fsys)["manifests/a.yaml"])
	fsys, err = open(t, image.Options{}).Manifests(t.Context(), one)
	require.NoError(t, err, "without a configured platform, the only image is used")
	assert.Equal(t, "s390x", contents(t, fsys)["manifests/a.yaml"])
	_, err = open(t, image.Options{Platform: "linux/ppc64le"}).Manifests(t.Context(), one)
	require.ErrorIs(t, err, failure.ErrNotFound)
	require.ErrorContains(t, err, "no image for platform linux/ppc64le, only for [linux/s390x, unknown/unknown]")

	nested := mutate.IndexAddendum{Add: mutate.AppendManifests(empty.Index, platform("arm64"))}
	fsys, err = open(t, image.Options{}).Manifests(t.Context(), pushIndex("nested", mutate.AppendManifests(empty.Index, nested)))
	require.NoError(t, err)
	assert.Equal(t, "arm64", contents(t, fsys)["manifests/a.yaml"])
	for range 3 {
		nested = mutate.IndexAddendum{Add: mutate.AppendManifests(empty.Index, nested)}
	}
	_, err = open(t, image.Options{}).Manifests(t.Context(), pushIndex("deep", mutate.AppendManifests(empty.Index, nested)))
	require.ErrorIs(t, err, failure.ErrLimit)

	_, err = image.New(image.Options{Platform: "nonsense"})
	require.Error(t, err)
}

//threat:document-readers-understand
func TestManifestsRejectsAmbiguousDocuments(t *testing.T) {
	for text, want := range map[string]string{
		`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[],"layers":[]}`: "both an image and an index",
		`{"schemaVersion":1,"mediaType":"application/vnd.docker.distribution.manifest.v1+json"}`:               "neither layers nor manifests",
	} {
		registry := fixture.StartRegistry(t)
		img := pushRaw(t, registry, text)
		_, err := open(t, image.Options{}).Manifests(t.Context(), img)
		require.ErrorIs(t, err, failure.ErrIntegrity)
		require.ErrorContains(t, err, want)
	}
}

// pushRaw pushes a manifest with arbitrary text.
func pushRaw(t *testing.T, registry *fixture.Registry, text string) release.Image {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, registry.URL()+"/v2/platform/release/manifests/raw", strings.NewReader(text))
	require.NoError(t, err)
	request.Header.Set("Content-Type", string(types.OCIManifestSchema1))
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusCreated, response.StatusCode)
	hash, _, err := v1.SHA256(strings.NewReader(text))
	require.NoError(t, err)
	return release.Image{Pullspec: registry.Host() + "/platform/release:raw", Digest: release.Digest(hash.String())}
}

//threat:content-poisoned
func TestCacheServesVerifiedContent(t *testing.T) {
	registry := fixture.StartRegistry(t)
	img := push(t, registry, build(t, []entry{{"usr/x", "x", 0}}, []entry{{"manifests/a.yaml", "a", 0}}))
	dir := t.TempDir()
	want := map[string]string{"manifests/a.yaml": "a"}
	read := func() {
		fsys, err := open(t, image.Options{CacheDir: dir}).Manifests(t.Context(), img)
		require.NoError(t, err)
		assert.Equal(t, want, contents(t, fsys))
	}
	read()
	assert.Equal(t, 2, registry.Count(http.MethodGet, blobs))
	registry.Reset()
	read()
	assert.Empty(t, registry.Requests(), "cached content needs no requests")

	path, err := layout.FromPath(dir)
	require.NoError(t, err, "other tools can read the folder")
	index, err := path.ImageIndex()
	require.NoError(t, err)
	listed, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, listed.Manifests, 1)
	assert.Equal(t, string(img.Digest), listed.Manifests[0].Digest.String())

	stored, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	require.NoError(t, err)
	require.Len(t, stored, 3)
	for _, damage := range []func(string) error{
		func(p string) error { return os.WriteFile(p, []byte("damaged"), 0o600) },
		func(p string) error { return os.Truncate(p, 1) },
		os.Remove,
	} {
		for _, p := range stored {
			require.NoError(t, damage(p))
		}
		registry.Reset()
		read()
		assert.Equal(t, 2, registry.Count(http.MethodGet, blobs), "damaged content is fetched again")
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "index.json"), []byte("{"), 0o600))
	read()
	leftovers, err := os.ReadDir(filepath.Join(dir, "tmp"))
	require.NoError(t, err)
	assert.Empty(t, leftovers)
	_, err = image.New(image.Options{CacheDir: filepath.Join(dir, "index.json")})
	require.ErrorContains(t, err, "preparing image cache")
}

func TestProgressReportsEveryByte(t *testing.T) {
	registry := fixture.StartRegistry(t)
	img := push(t, registry, build(t, []entry{{"usr/x", "x", 0}}, []entry{{"manifests/a.yaml", "a", 0}}))
	dir := t.TempDir()
	for _, cached := range []bool{false, true} {
		last := map[int]image.Progress{}
		_, err := open(t, image.Options{CacheDir: dir, Progress: func(p image.Progress) { last[p.Index] = p }}).Manifests(t.Context(), img)
		require.NoError(t, err)
		require.Len(t, last, 2)
		for _, p := range last {
			assert.Equal(t, p.Total, p.Bytes)
			assert.Equal(t, 2, p.Layers)
			assert.Equal(t, cached, p.From == "")
		}
	}
}

func TestAttachmentsAreFound(t *testing.T) {
	const simple = "application/vnd.dev.cosign.simplesigning.v1+json"
	registry := fixture.StartRegistry(t)
	built := build(t, []entry{{"manifests/a.yaml", "a", 0}})
	img := push(t, registry, built)
	r := open(t, image.Options{Limits: image.Limits{AttachmentBytes: 100}})
	found, err := attachments(t.Context(), r, img)
	require.NoError(t, err)
	assert.Empty(t, found, "an unsigned image is not an error")

	tag := "platform/release:sha256-" + img.Digest.Hex() + ".sig"
	signed, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{
		Layer: static.NewLayer([]byte("document"), simple), Annotations: map[string]string{"dev.cosignproject.cosign/signature": "c2ln"},
	})
	require.NoError(t, err)
	_, err = fixture.Push(t.Context(), registry, signed, tag)
	require.NoError(t, err)

	attach := func(artifactType, mediaType types.MediaType, payload string) release.Digest {
		attached, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), artifactType), static.NewLayer([]byte(payload), mediaType))
		require.NoError(t, err)
		size, err := built.Size()
		require.NoError(t, err)
		subject := v1.Descriptor{MediaType: types.DockerManifestSchema2, Size: size, Digest: v1.Hash{Algorithm: "sha256", Hex: img.Digest.Hex()}}
		attached = mutate.Subject(attached, subject).(v1.Image)
		digest, err := attached.Digest()
		require.NoError(t, err)
		ref, err := name.NewDigest(img.Repository() + "@" + digest.String())
		require.NoError(t, err)
		require.NoError(t, remote.Write(ref, attached, remote.WithContext(t.Context())))
		return release.Digest(digest.String())
	}
	bundled := attach(bundle, bundle, "bundle")
	attach("application/spdx+json", "application/spdx+json", "bill of materials")

	found, err = attachments(t.Context(), r, img)
	require.NoError(t, err)
	assert.Equal(t, []release.Attachment{
		{Store: registry.Host() + "/" + tag, MediaType: simple, Payload: []byte("document"), Annotations: map[string]string{"dev.cosignproject.cosign/signature": "c2ln"}},
		{Store: img.Repository() + "@" + string(bundled), MediaType: bundle, Payload: []byte("bundle")},
	}, found)

	t.Run("finds referrers by the fallback tag", func(t *testing.T) {
		remove := registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/referrers/"), Status: http.StatusNotFound})
		defer remove()
		fallback(t, registry, img, bundled)
		found, err := attachments(t.Context(), r, img)
		require.NoError(t, err)
		require.Len(t, found, 2)
		assert.Equal(t, []byte("bundle"), found[1].Payload)
	})
	t.Run("finds referrers in a registry that refuses the tag", func(t *testing.T) {
		remove := registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/.*[.]sig$"), Status: http.StatusForbidden})
		defer remove()
		emptyMirror := mirrored(t, "", registry.Host(), fixture.StartRegistry(t).Host())
		for _, r := range []*image.Reader{r, open(t, image.Options{Access: emptyMirror})} {
			found, err := attachments(t.Context(), r, img)
			require.ErrorIs(t, err, failure.ErrUnauthorized)
			require.Len(t, found, 1)
			assert.Equal(t, []byte("bundle"), found[0].Payload)
		}
	})
	t.Run("returns good signatures despite broken ones", func(t *testing.T) {
		attach(bundle, bundle, strings.Repeat("large", 100))
		found, err := attachments(t.Context(), r, img)
		require.ErrorIs(t, err, failure.ErrLimit)
		assert.Len(t, found, 2)
	})
	t.Run("limits the number of signatures", func(t *testing.T) {
		found, err := attachments(t.Context(), open(t, image.Options{Limits: image.Limits{Attachments: 1}}), img)
		require.ErrorIs(t, err, failure.ErrLimit)
		assert.Len(t, found, 1)
	})
	t.Run("reports a refusal by the registry", func(t *testing.T) {
		remove := registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/(manifests|referrers)/"), Status: http.StatusForbidden})
		defer remove()
		_, err := attachments(t.Context(), r, img)
		require.ErrorIs(t, err, failure.ErrUnauthorized)
	})
}

// TestUnreachableRegistryIsContactedOnce checks that an unreachable registry is contacted only once, because verification waits for the
// result. The client must not contact it again for each location that may have a signature.
func TestUnreachableRegistryIsContactedOnce(t *testing.T) {
	source, mirror := fixture.StartRegistry(t), fixture.StartRegistry(t)
	built := build(t, []entry{{"manifests/a.yaml", "a", 0}})
	img := push(t, source, built)
	_, err := fixture.Push(t.Context(), mirror, built, "mirrored/release:1")
	require.NoError(t, err)
	signed, err := mutate.AppendLayers(empty.Image, static.NewLayer([]byte("document"), "application/vnd.dev.cosign.simplesigning.v1+json"))
	require.NoError(t, err)
	_, err = fixture.Push(t.Context(), mirror, signed, "mirrored/release:sha256-"+img.Digest.Hex()+".sig")
	require.NoError(t, err)

	const nowhere = "down.example:5000"
	lost := release.Image{Pullspec: nowhere + "/platform/release@" + string(img.Digest), Digest: img.Digest}
	for _, tt := range []struct {
		name    string
		mirrors []string
		// fails is the result of every connection attempt. hellos is the expected number of attempts, the same as for a single request.
		fails  error
		hellos int
		found  int
		says   []string
	}{
		{name: "ends the search in a registry that refuses the connection", fails: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, hellos: 5, says: []string{nowhere + " cannot be reached"}},
		{name: "ends the search in a registry after a connection timeout", fails: &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}, hellos: 2, says: []string{nowhere + " cannot be reached"}},
		{
			name: "does not contact another repository in the unreachable registry", mirrors: []string{nowhere},
			fails: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, hellos: 5,
			says: []string{nowhere + "/mirrored/release:sha256-"},
		},
		{
			name: "contacts a mirror on another registry", mirrors: []string{nowhere, mirror.Host()},
			fails: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, hellos: 5, found: 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mirror.Reset()
			var tried atomic.Int64
			transport := roundTripper(func(req *http.Request) (*http.Response, error) {
				if req.URL.Host == nowhere {
					tried.Add(1)
					return nil, tt.fails
				}
				return http.DefaultTransport.RoundTrip(req)
			})
			found, err := attachments(t.Context(), open(t, image.Options{Access: mirroredBy(t, transport, "", nowhere, tt.mirrors...)}), lost)
			assert.EqualValues(t, tt.hellos, tried.Load())
			assert.Len(t, found, tt.found)
			for _, text := range tt.says {
				require.ErrorContains(t, err, text)
				assert.Equal(t, 1, strings.Count(err.Error(), text), "an error is repeated: %v", err)
			}
			assert.Equal(t, tt.found, mirror.Count(http.MethodGet, "/referrers/"), "the search continues in other registries")
		})
	}
	t.Run("sends all requests to a registry that responds with errors", func(t *testing.T) {
		source.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/"), Status: http.StatusForbidden})
		source.Reset()
		_, err := attachments(t.Context(), open(t, image.Options{}), img)
		require.ErrorIs(t, err, failure.ErrUnauthorized)
		assert.Equal(t, 1, source.Count(http.MethodGet, "/referrers/"))
	})
}

// TestReferrersOnAllPagesAreFound has a list that does not fit into one response. The OCI distribution specification then requires a Link
// header.
//
//threat:endless-referrers
func TestReferrersOnAllPagesAreFound(t *testing.T) {
	for _, tt := range []struct {
		name string
		// link is the Link header of page n, before its parameters.
		link  func(s *hostile, n int) string
		pages int
		err   error
	}{
		{"follows relative links", func(_ *hostile, n int) string { return fmt.Sprintf("?page=%d", n+1) }, 3, nil},
		{"follows absolute links", func(s *hostile, n int) string { return fmt.Sprintf("%s/v2/platform/release/more?page=%d", s.URL, n+1) }, 3, nil},
		{"reads ten pages at most", func(_ *hostile, n int) string { return fmt.Sprintf("?page=%d", n+1) }, 11, failure.ErrLimit},
		{"stays on the host", func(*hostile, int) string { return "http://other.example/v2/platform/release/more?page=2" }, 3, failure.ErrIntegrity},
		{"rejects an invalid link", func(*hostile, int) string { return "http://[" }, 3, failure.ErrIntegrity},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			s := startHostile(t)
			img := s.image()
			mirrored := mirroredBy(t, nil, "", strings.TrimPrefix(s.URL, "http://"), fixture.StartRegistry(t).Host()) // by an empty registry
			var served int
			page := func(w http.ResponseWriter, r *http.Request) {
				n, _ := strconv.Atoi(cmp.Or(r.URL.Query().Get("page"), "1"))
				desc := s.bundle(img, s.add(bundle, fmt.Append(nil, n)))
				w.Header().Set("Content-Type", string(types.OCIImageIndex))
				if n < tt.pages {
					w.Header().Set("Link", "<"+tt.link(s, n)+`>; rel="next"`)
				}
				served = n
				assert.NoError(t, json.NewEncoder(w).Encode(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{desc}}))
			}
			s.answer("referrers/"+string(img.Digest), page)
			s.answer("more", page)
			for _, access := range []*reach.Access{nil, mirrored} {
				found, err := attachments(t.Context(), open(t, image.Options{Access: access}), img)
				require.ErrorIs(t, err, tt.err)
				require.Len(t, found, served)
			}
			assert.Equal(t, map[error]int{nil: 3, failure.ErrLimit: 10, failure.ErrIntegrity: 1}[tt.err], served)

			repository, err := open(t, image.Options{}).Repository(img)
			require.NoError(t, err)
			attached, err := repository.Attached(t.Context(), img.Digest)
			require.ErrorIs(t, err, tt.err, "a copy that lacks referrers is reported")
			assert.Len(t, attached, served)
		})
	}
}

// TestAttachmentsNeedLittleMemoryAndDisk has signatures at which the operator looks before anything of the image is verified.
//
//threat:large-attachments
func TestAttachmentsNeedLittleMemoryAndDisk(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		payload, annotations int
		// found is the number of signatures, and read the number of their manifests, which contain the annotations.
		found, read int
	}{
		{"limits all payloads", 300 << 10, 0, 28, 28},
		{"limits all annotations", 10, 300 << 10, 27, 28},
		{"limits each payload", 2 << 20, 0, 0, 64},
		{"limits each annotation", 10, 2 << 20, 0, 4},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			s := startHostile(t)
			img := s.image()
			index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
			read := 0
			for i := range 64 {
				layer := s.add(bundle, bytes.Repeat([]byte{byte(i)}, tt.payload))
				layer.Annotations = map[string]string{"a": strings.Repeat("x", tt.annotations)}
				desc := s.bundle(img, layer)
				text := s.content[desc.Digest.String()]
				s.answer("manifests/"+desc.Digest.String(), func(w http.ResponseWriter, _ *http.Request) {
					read++
					w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
					_, _ = w.Write(text)
				})
				index.Manifests = append(index.Manifests, desc)
			}
			s.answer("referrers/"+string(img.Digest), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", string(types.OCIImageIndex))
				assert.NoError(t, json.NewEncoder(w).Encode(index))
			})
			dir := t.TempDir()
			r := open(t, image.Options{CacheDir: dir})
			t.Setenv("TMPDIR", filepath.Join(dir, "missing"))
			found, err := attachments(t.Context(), r, img)
			require.ErrorIs(t, err, failure.ErrLimit)
			assert.Len(t, found, tt.found)
			assert.Equal(t, tt.read, read)
			cached, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
			require.NoError(t, err)
			assert.Empty(t, cached, "unverified signatures are not cached")
		})
	}
}

// fallback adds a referrer to the fallback tag, for registries without the referrers API.
func fallback(t *testing.T, registry *fixture.Registry, img release.Image, referrer release.Digest) {
	t.Helper()
	ref, err := name.NewDigest(img.Repository() + "@" + string(referrer))
	require.NoError(t, err)
	desc, err := remote.Get(ref, remote.WithContext(t.Context()))
	require.NoError(t, err)
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{
		{MediaType: types.OCIManifestSchema1, Digest: desc.Digest, Size: desc.Size},
	}})
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, registry.URL()+"/v2/platform/release/manifests/sha256-"+img.Digest.Hex(), bytes.NewReader(index))
	require.NoError(t, err)
	request.Header.Set("Content-Type", string(types.OCIImageIndex))
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusCreated, response.StatusCode)
}

// TestRealReleaseLoadsFromAnImage loads real releases from an image and from their folder, and compares the payloads.
func TestRealReleaseLoadsFromAnImage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, version := range []string{"4.22.9", "4.23.0"} {
		t.Run(version, func(t *testing.T) {
			folder := os.DirFS(filepath.Join(fixture.Testdata(t), "payloads", version))
			registry := fixture.StartRegistry(t)
			img, err := fixture.PushRelease(t.Context(), registry, folder, "platform/release:"+version)
			require.NoError(t, err)
			fsys, err := open(t, image.Options{CacheDir: t.TempDir()}).Manifests(t.Context(), img)
			require.NoError(t, err)
			opts := payload.Options{Filter: inclusion.Filter{Capabilities: inclusion.AllCapabilities(nil)}}
			fromImage, err := payload.Load(fsys, img.ByDigest(), opts)
			require.NoError(t, err)
			fromFolder, err := payload.Load(folder, img.ByDigest(), opts)
			require.NoError(t, err)
			assert.Equal(t, fromFolder.Hash, fromImage.Hash)
			assert.True(t, assert.ObjectsAreEqual(fromFolder, fromImage))
		})
	}
}
