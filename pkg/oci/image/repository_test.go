package image_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/image/layer"
	"github.com/cluster-version/cvo/pkg/oci/image/repository"
	ocilayout "github.com/cluster-version/cvo/pkg/oci/layout"
	reach "github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/oci/registry/mirrorset"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// mirrored returns access with mirrors for a host, by digest and by tag.
func mirrored(t testing.TB, policy configv1.MirrorSourcePolicy, source string, mirrors ...string) *reach.Access {
	t.Helper()
	return mirroredBy(t, nil, policy, source, mirrors...)
}

// mirroredBy is like mirrored, with a transport; nil selects the default transport.
func mirroredBy(t testing.TB, transport http.RoundTripper, policy configv1.MirrorSourcePolicy, source string, mirrors ...string) *reach.Access {
	t.Helper()
	var places []configv1.ImageMirror
	for _, m := range mirrors {
		places = append(places, configv1.ImageMirror(m+"/mirrored"))
	}
	set, err := mirrorset.New(&configv1.ImageDigestMirrorSet{
		ObjectMeta: metav1.ObjectMeta{Name: "m"},
		Spec:       configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: []configv1.ImageDigestMirrors{{Source: source + "/platform", Mirrors: places, MirrorSourcePolicy: policy}}},
	}, &configv1.ImageTagMirrorSet{
		ObjectMeta: metav1.ObjectMeta{Name: "m"},
		Spec:       configv1.ImageTagMirrorSetSpec{ImageTagMirrors: []configv1.ImageTagMirrors{{Source: source + "/platform", Mirrors: places, MirrorSourcePolicy: policy}}},
	})
	require.NoError(t, err)
	return reach.New(reach.Options{Mirrors: set, Transport: transport, Backoff: time.Millisecond})
}

func flip(data []byte) []byte {
	out := bytes.Clone(data)
	out[len(out)/2] ^= 1
	return out
}

// sixLayers returns an image with six layers, and its files. The files are hard to compress.
func sixLayers(t testing.TB) (v1.Image, map[string]string) {
	t.Helper()
	var layers [][]entry
	want := map[string]string{}
	for i := range 6 {
		noise, err := random.Layer(2000, types.OCILayer)
		require.NoError(t, err)
		digest, err := noise.Digest()
		require.NoError(t, err)
		name := fmt.Sprintf("manifests/%d.yaml", i)
		want[name] = strings.Repeat(digest.Hex+"\n", 20)
		layers = append(layers, []entry{{name, want[name], 0}})
	}
	return build(t, layers...), want
}

//threat:mirror-serves-other the mirror has another manifest
//threat:mirror-serves-other the mirror has other layers
//threat:mirror-serves-other the mirror has endless layers
//threat:mirror-source-tried does not contact a forbidden source
func TestNextMirrorIsUsedAfterAFailure(t *testing.T) {
	serveTLS := func(t *testing.T) string {
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		return strings.TrimPrefix(server.URL, "https://")
	}
	for _, tt := range []struct {
		name  string
		fault fixture.Fault
		empty bool
		host  func(*testing.T) string
		// asked is the maximum number of blob requests to the mirror: the requests in flight when the mirror fails.
		asked int
	}{
		{name: "the mirror lacks the image", empty: true},
		{name: "the mirror rejects the credentials", fault: fixture.Fault{Status: http.StatusUnauthorized}},
		{name: "the mirror forbids access", fault: fixture.Fault{Match: fixture.MatchPath("/(manifests|blobs)/"), Status: http.StatusForbidden}},
		{name: "the mirror has an untrusted certificate", host: serveTLS},
		{name: "the mirror is unreachable", host: func(*testing.T) string { return "127.0.0.1:1" }},
		{name: "the mirror has another manifest", fault: fixture.Fault{Match: fixture.MatchPath("/manifests/"), Rewrite: flip}},
		{name: "the mirror lacks the layers", fault: fixture.Fault{Match: fixture.MatchPath(blobs), Status: http.StatusNotFound}, asked: 4},
		{name: "the mirror has other layers", fault: fixture.Fault{Match: fixture.MatchPath(blobs), Rewrite: flip}, asked: 4},
		{name: "the mirror has endless layers", fault: fixture.Fault{Match: fixture.MatchPath(blobs), Rewrite: func(d []byte) []byte { return append(bytes.Clone(d), make([]byte, 1<<20)...) }}, asked: 4},
	} {
		// Each run has its own registries. A request is counted when its response ends, and an endless response may still be in flight
		// after the reader has moved to another place.
		t.Run(tt.name, func(t *testing.T) {
			for _, dir := range []string{"", t.TempDir()} {
				built, want := sixLayers(t)
				source, mirror := fixture.StartRegistry(t), fixture.StartRegistry(t)
				img := push(t, source, built)
				if !tt.empty {
					_, err := fixture.Push(t.Context(), mirror, built, "mirrored/release:1")
					require.NoError(t, err)
				}
				host := mirror.Host()
				if tt.host != nil {
					host = tt.host(t)
				}
				mirror.AddFault(tt.fault)
				access := mirrored(t, "", source.Host(), host)
				var from []string
				r := open(t, image.Options{Access: access, CacheDir: dir, Progress: func(p image.Progress) {
					if p.Bytes == p.Total && (len(from) == 0 || from[len(from)-1] != p.From) {
						from = append(from, p.From)
					}
				}})
				mirror.Reset()
				fsys, err := r.Manifests(t.Context(), img)
				require.NoError(t, err)
				assert.Equal(t, want, contents(t, fsys))
				assert.Contains(t, from, source.Host()+"/platform/release")
				assert.LessOrEqual(t, mirror.Count(http.MethodGet, blobs), tt.asked, "a failed mirror is not contacted for each layer")

				source.AddFault(fixture.Fault{Match: fixture.MatchPath("/(manifests|blobs)/"), Status: http.StatusForbidden})
				_, err = open(t, image.Options{Access: access}).Manifests(t.Context(), img)
				require.ErrorIs(t, err, failure.ErrUnauthorized)
				require.ErrorContains(t, err, host+"/mirrored/release: ")
				require.ErrorContains(t, err, source.Host()+"/platform/release: ")
			}
		})
	}

	t.Run("does not contact the source if a mirror is complete", func(t *testing.T) {
		built, want := sixLayers(t)
		source, lacking, mirror := fixture.StartRegistry(t), fixture.StartRegistry(t), fixture.StartRegistry(t)
		img := push(t, source, built)
		_, err := fixture.Push(t.Context(), mirror, built, "mirrored/release:1")
		require.NoError(t, err)
		r := open(t, image.Options{Access: mirrored(t, "", source.Host(), lacking.Host(), mirror.Host())})
		resolved, err := r.Resolve(t.Context(), img.Pullspec)
		require.NoError(t, err)
		assert.Equal(t, img, resolved)
		fsys, err := r.Manifests(t.Context(), resolved)
		require.NoError(t, err)
		assert.Equal(t, want, contents(t, fsys))
		assert.Zero(t, source.Count(http.MethodGet, "/platform/"))
		assert.Zero(t, lacking.Count(http.MethodGet, blobs))
	})

	t.Run("does not contact a forbidden source", func(t *testing.T) {
		built, _ := sixLayers(t)
		source, mirror := fixture.StartRegistry(t), fixture.StartRegistry(t)
		img := push(t, source, built)
		r := open(t, image.Options{Access: mirrored(t, configv1.NeverContactSource, source.Host(), mirror.Host())})
		_, err := r.Manifests(t.Context(), img)
		require.ErrorIs(t, err, failure.ErrNotFound)
		require.ErrorContains(t, err, mirror.Host())
		assert.Empty(t, source.Requests())
	})
}

func TestBlobResumesAndChecksItsContent(t *testing.T) {
	built, _ := sixLayers(t)
	layers, err := built.Layers()
	require.NoError(t, err)
	desc := func(i int) v1.Descriptor {
		manifest, err := built.Manifest()
		require.NoError(t, err)
		return manifest.Layers[i]
	}
	want := func(i int) []byte {
		stream, err := layers[i].Compressed()
		require.NoError(t, err)
		data, err := io.ReadAll(stream)
		require.NoError(t, err)
		require.NoError(t, stream.Close())
		return data
	}
	start := func(t *testing.T, faults ...fixture.Fault) (*repository.Repository, *fixture.Registry, *fixture.Registry) {
		source, mirror := fixture.StartRegistry(t), fixture.StartRegistry(t)
		img := push(t, source, built)
		_, err := fixture.Push(t.Context(), mirror, built, "mirrored/release:1")
		require.NoError(t, err)
		mirror.Reset()
		for _, fault := range faults {
			mirror.AddFault(fault)
		}
		repository, err := open(t, image.Options{Access: mirrored(t, "", source.Host(), mirror.Host())}).Repository(img)
		require.NoError(t, err)
		return repository, source, mirror
	}
	read := func(t *testing.T, repository *repository.Repository, desc v1.Descriptor) ([]byte, error) {
		blob, err := repository.Blob(t.Context(), desc)
		require.NoError(t, err)
		defer blob.Close()
		return io.ReadAll(blob)
	}

	t.Run("resumes from another place after a broken connection", func(t *testing.T) {
		repository, source, mirror := start(t,
			fixture.Fault{Match: fixture.MatchPath(blobs), Times: 1, Truncate: 100}, fixture.Fault{Match: fixture.MatchPath(blobs), Status: http.StatusGone})
		data, err := read(t, repository, desc(0))
		require.NoError(t, err)
		assert.Equal(t, want(0), data)
		assert.Equal(t, 1, source.Count(http.MethodGet, blobs))
		assert.Equal(t, []string{source.Host() + "/platform/release"}, repository.Served())
		mirror.Reset()
		data, err = read(t, repository, desc(1))
		require.NoError(t, err)
		assert.Equal(t, want(1), data)
		assert.Empty(t, mirror.Requests(), "a failed place is skipped")
		source.AddFault(fixture.Fault{Match: fixture.MatchPath(blobs), Status: http.StatusForbidden})
		_, err = repository.Blob(t.Context(), desc(2))
		require.ErrorContains(t, err, "all 2 sources failed", "with the earlier failure")
	})
	t.Run("reports changed content and uses another place next time", func(t *testing.T) {
		repository, _, mirror := start(t, fixture.Fault{Match: fixture.MatchPath(blobs), Rewrite: flip})
		_, err := read(t, repository, desc(0))
		require.ErrorIs(t, err, failure.ErrIntegrity)
		mirror.Reset()
		data, err := read(t, repository, desc(0))
		require.NoError(t, err)
		assert.Equal(t, want(0), data)
		assert.Empty(t, mirror.Requests())
	})
	t.Run("can be closed early", func(t *testing.T) {
		repository, _, _ := start(t)
		blob, err := repository.Blob(t.Context(), desc(1))
		require.NoError(t, err)
		_, err = io.ReadFull(blob, make([]byte, 10))
		require.NoError(t, err)
		require.NoError(t, blob.Close())
	})
	t.Run("stops when the context ends", func(t *testing.T) {
		repository, _, _ := start(t)
		ctx, cancel := context.WithCancel(t.Context())
		blob, err := repository.Blob(ctx, desc(2))
		require.NoError(t, err)
		defer blob.Close()
		cancel()
		_, err = io.ReadAll(blob)
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("enforces the size limit", func(t *testing.T) {
		repository, _, _ := start(t)
		huge := desc(0)
		huge.Size = 3 << 30
		_, err := repository.Blob(t.Context(), huge)
		require.ErrorIs(t, err, failure.ErrLimit)
	})
}

// layoutOf writes named images into an OCI layout.
func layoutOf(t testing.TB, images map[string]mutate.Appendable) string {
	t.Helper()
	dir := t.TempDir()
	path, err := layout.Write(dir, empty.Index)
	require.NoError(t, err)
	for name, img := range images {
		named := layout.WithAnnotations(map[string]string{ocilayout.NameAnnotation: name})
		switch img := img.(type) {
		case v1.Image:
			require.NoError(t, path.AppendImage(img, named))
		case v1.ImageIndex:
			require.NoError(t, path.AppendIndex(img, named))
		}
	}
	return dir
}

//threat:content-poisoned rejects changed content
func TestLayoutIsReadAndChecked(t *testing.T) {
	files := func(arch string) []entry {
		return []entry{{"release-manifests/image-references", arch, 0}}
	}
	one, two := build(t, files("one")), build(t, files("two"), []entry{{"usr/bin/x", "x", 0}})
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: build(t, files("arm64")), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: build(t, files("s390x")), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
	)
	dir := layoutOf(t, map[string]mutate.Appendable{"1.0.0": one, "2.0.0": two, "multi": index})
	single := layoutOf(t, map[string]mutate.Appendable{"1.0.0": one})
	digestOf := func(img interface{ Digest() (v1.Hash, error) }) string {
		hash, err := img.Digest()
		require.NoError(t, err)
		return hash.String()
	}
	for _, tt := range []struct {
		ref, digest, want string
	}{
		{single, digestOf(one), "one"},
		{dir + ":1.0.0", digestOf(one), "one"},
		{dir + ":2.0.0", digestOf(two), "two"},
		{dir + "@" + digestOf(two), digestOf(two), "two"},
		{dir + ":multi", digestOf(index), "arm64"},
		{dir + "@" + digestOf(index), digestOf(index), "arm64"},
	} {
		t.Run(strings.TrimPrefix(strings.TrimPrefix(tt.ref, dir), single), func(t *testing.T) {
			r := open(t, image.Options{Platform: "linux/arm64", CacheDir: t.TempDir()})
			require.True(t, ocilayout.IsReference(tt.ref))
			img, err := r.Resolve(t.Context(), tt.ref)
			require.NoError(t, err)
			assert.Equal(t, release.Image{Pullspec: tt.ref, Digest: release.Digest(tt.digest)}, img)
			fsys, err := r.Manifests(t.Context(), img)
			require.NoError(t, err)
			assert.Equal(t, map[string]string{"release-manifests/image-references": tt.want}, contents(t, fsys))
			read, err := r.ReadFiles(t.Context(), img, "release-manifests/image-references")
			require.NoError(t, err)
			assert.Equal(t, map[string][]byte{"release-manifests/image-references": []byte(tt.want)}, read)
			found, err := attachments(t.Context(), r, img)
			require.NoError(t, err)
			assert.Empty(t, found)
			opened, err := r.Open(t.Context(), img)
			require.NoError(t, err)
			layers, err := opened.Layers()
			require.NoError(t, err)
			for _, l := range layers {
				stream, err := l.Uncompressed()
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, stream)
				require.NoError(t, err)
				require.NoError(t, stream.Close())
			}
			repository, err := r.Repository(img)
			require.NoError(t, err)
			doc, err := repository.Document(t.Context(), img.Digest)
			require.NoError(t, err)
			assert.Equal(t, tt.digest, doc.Descriptor().Digest.String())
			absent := release.Image{Pullspec: img.Pullspec, Digest: release.Digest("sha256:" + strings.Repeat("0", 64))}
			exist := r.Exist(t.Context(), []release.Image{img, absent})
			require.NoError(t, exist[0])
			require.ErrorIs(t, exist[1], failure.ErrNotFound)
			assert.Equal(t, strings.HasSuffix(tt.ref, "multi") || strings.Contains(tt.ref, digestOf(index)), doc.IsIndex())
		})
	}
	r := open(t, image.Options{})
	_, err := r.Resolve(t.Context(), dir)
	require.ErrorContains(t, err, "select an image with ")
	_, err = r.Resolve(t.Context(), dir+":3.0.0")
	require.ErrorIs(t, err, failure.ErrNotFound)
	require.ErrorContains(t, err, "available: ")

	t.Run("rejects changed content", func(t *testing.T) {
		stored, err := filepath.Glob(filepath.Join(single, "blobs", "sha256", "*"))
		require.NoError(t, err)
		img, err := r.Resolve(t.Context(), single)
		require.NoError(t, err)
		for _, path := range stored {
			whole, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, damage := range []func() error{
				func() error { return os.WriteFile(path, flip(whole), 0o600) },
				func() error { return os.WriteFile(path, append(bytes.Clone(whole), 'x'), 0o600) },
				func() error { return os.Truncate(path, 5) },
				func() error { return os.Remove(path) },
				func() error { return os.Mkdir(path, 0o700) },
			} {
				require.NoError(t, damage())
				_, err := r.Manifests(t.Context(), img)
				if err == nil { // this does not read the configuration
					opened, err := r.Open(t.Context(), img)
					require.NoError(t, err)
					_, err = opened.ConfigFile()
					require.Error(t, err)
				}
			}
			require.NoError(t, os.RemoveAll(path))
			require.NoError(t, os.WriteFile(path, whole, 0o600))
		}
		_, err = r.Manifests(t.Context(), img)
		require.NoError(t, err)
	})
}

func TestReadFilesReadsOnlyNeededLayers(t *testing.T) {
	registry := fixture.StartRegistry(t)
	img := push(t, registry, build(t,
		[]entry{{"usr/bin/x", "x", 0}, {"release-manifests/old", "old", 0}, {"release-manifests/image-references", "older", 0}},
		[]entry{{"manifests/a.yaml", "a", 0}},
		[]entry{{"release-manifests/image-references", "refs", 0}, {"release-manifests/release-metadata", "meta", 0}, {"release-manifests/b.yaml", "b", 0}}))
	r := open(t, image.Options{})
	got, err := r.ReadFiles(t.Context(), img, "release-manifests/image-references", "release-manifests/release-metadata")
	require.NoError(t, err)
	assert.Equal(t, map[string][]byte{"release-manifests/image-references": []byte("refs"), "release-manifests/release-metadata": []byte("meta")}, got)
	assert.Equal(t, 1, registry.Count(http.MethodGet, blobs), "the topmost layer has all files")

	got, err = r.ReadFiles(t.Context(), img, "release-manifests/old", "release-manifests/image-references", "release-manifests/none")
	require.NoError(t, err)
	assert.Equal(t, map[string][]byte{"release-manifests/old": []byte("old"), "release-manifests/image-references": []byte("refs")}, got)

	registry.AddFault(fixture.Fault{Match: fixture.MatchPath(blobs), Rewrite: flip})
	_, err = r.ReadFiles(t.Context(), img, "release-manifests/image-references")
	require.ErrorIs(t, err, failure.ErrIntegrity, "layers are verified completely")
}

func TestAttachedListsSignaturesOfAnImage(t *testing.T) {
	built := build(t, []entry{{"manifests/a.yaml", "a", 0}})
	registry := fixture.StartRegistry(t)
	img := push(t, registry, built)
	repository := func() *repository.Repository {
		r, err := open(t, image.Options{}).Repository(img)
		require.NoError(t, err)
		return r
	}
	found, err := repository().Attached(t.Context(), img.Digest)
	require.NoError(t, err)
	assert.Empty(t, found)

	artifact := func(mediaType types.MediaType, text string) v1.Image {
		a, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer([]byte(text), mediaType))
		require.NoError(t, err)
		return a
	}
	for _, suffix := range []string{".sig", ".att", ".sbom"} {
		_, err := fixture.Push(t.Context(), registry, artifact("text/plain", suffix), "platform/release:sha256-"+img.Digest.Hex()+suffix)
		require.NoError(t, err)
	}
	size, err := built.Size()
	require.NoError(t, err)
	subject := v1.Descriptor{MediaType: types.DockerManifestSchema2, Size: size, Digest: v1.Hash{Algorithm: "sha256", Hex: img.Digest.Hex()}}
	attach := func(configType types.MediaType, a v1.Image) v1.Hash {
		attached := mutate.Subject(mutate.ConfigMediaType(a, configType), subject).(v1.Image)
		digest, err := attached.Digest()
		require.NoError(t, err)
		ref, err := name.NewDigest(img.Repository() + "@" + digest.String())
		require.NoError(t, err)
		require.NoError(t, remote.Write(ref, attached, remote.WithContext(t.Context())))
		return digest
	}
	bill := attach("application/spdx+json", artifact("application/spdx+json", "bill of materials"))
	signature := attach("application/vnd.oci.empty.v1+json", artifact(bundle, "bundle"))
	other := attach("application/vnd.oci.empty.v1+json", artifact("text/plain", "nothing of interest"))

	found, err = repository().Attached(t.Context(), img.Digest)
	require.NoError(t, err)
	tags, referrers := map[string]bool{}, map[v1.Hash]bool{}
	for _, a := range found {
		if a.Tag != "" {
			tags[strings.TrimPrefix(a.Tag, "sha256-"+img.Digest.Hex())] = true
		} else {
			referrers[a.Digest] = true
		}
		doc, err := repository().Document(t.Context(), release.Digest(a.Digest.String()))
		require.NoError(t, err)
		assert.Equal(t, a.Size, int64(len(doc.Raw)))
	}
	assert.Equal(t, map[string]bool{".sig": true, ".att": true, ".sbom": true}, tags)
	assert.Equal(t, map[v1.Hash]bool{bill: true, signature: true, other: true}, referrers)

	t.Run("finds a bundle by its layer if the artifact has no type", func(t *testing.T) {
		found, err := attachments(t.Context(), open(t, image.Options{}), img)
		require.NoError(t, err)
		assert.Contains(t, found, release.Attachment{Store: img.Repository() + "@" + signature.String(), MediaType: bundle, Payload: []byte("bundle")})
		for _, f := range found {
			assert.NotEqual(t, []byte("nothing of interest"), f.Payload)
		}
	})
	t.Run("falls back to the source if a mirror lacks the signatures", func(t *testing.T) {
		mirror := fixture.StartRegistry(t)
		_, err := fixture.Push(t.Context(), mirror, built, "mirrored/release:1")
		require.NoError(t, err)
		r := open(t, image.Options{Access: mirrored(t, "", registry.Host(), mirror.Host())})
		got, err := attachments(t.Context(), r, img)
		require.NoError(t, err)
		assert.Len(t, got, 2)
		fsys, err := r.Manifests(t.Context(), img)
		require.NoError(t, err)
		assert.Len(t, contents(t, fsys), 1)
	})
	t.Run("reports the mirror that served a signature", func(t *testing.T) {
		mirror := fixture.StartRegistry(t)
		_, err := fixture.Push(t.Context(), mirror, built, "mirrored/release:1")
		require.NoError(t, err)
		_, err = fixture.Push(t.Context(), mirror, artifact("text/plain", "signature"), "mirrored/release:sha256-"+img.Digest.Hex()+".sig")
		require.NoError(t, err)
		got, err := attachments(t.Context(), open(t, image.Options{Access: mirrored(t, "", registry.Host(), mirror.Host())}), img)
		require.NoError(t, err)
		require.Len(t, got, 3)
		assert.Equal(t, mirror.Host()+"/mirrored/release:sha256-"+img.Digest.Hex()+".sig", got[0].Store)
		assert.Equal(t, img.Repository()+":sha256-"+img.Digest.Hex()+".sig", got[1].Store)
		assert.Equal(t, img.Repository()+"@"+signature.String(), got[2].Store, "the mirror has no referrers")
	})
	t.Run("reads a document once that several places have", func(t *testing.T) {
		mirror := fixture.StartRegistry(t)
		_, err := fixture.Push(t.Context(), mirror, artifact("text/plain", ".sig"), "mirrored/release:sha256-"+img.Digest.Hex()+".sig")
		require.NoError(t, err)
		got, err := attachments(t.Context(), open(t, image.Options{Access: mirrored(t, "", registry.Host(), mirror.Host())}), img)
		require.NoError(t, err)
		require.Len(t, got, 2)
		assert.Contains(t, got[0].Store, mirror.Host())
	})
	t.Run("reads attachments from a layout", func(t *testing.T) {
		dir := layoutOf(t, map[string]mutate.Appendable{
			"1.0.0":                               built,
			"sha256-" + img.Digest.Hex() + ".sig": artifact("text/plain", "signature"),
		})
		path, err := layout.FromPath(dir)
		require.NoError(t, err)
		require.NoError(t, path.AppendImage(mutate.Subject(mutate.ConfigMediaType(artifact(bundle, "bundle"), "application/vnd.oci.empty.v1+json"), subject).(v1.Image)))
		r := open(t, image.Options{})
		got, err := attachments(t.Context(), r, release.Image{Pullspec: dir + ":1.0.0", Digest: img.Digest})
		require.NoError(t, err)
		require.Len(t, got, 2)
		assert.Equal(t, []byte("bundle"), got[1].Payload)
		only, err := r.Resolve(t.Context(), dir)
		require.NoError(t, err, "attachments are not the layout's only image")
		assert.Equal(t, img.Digest, only.Digest)
	})
}

// TestAttachedAsksForTagsOnce lists the tags once for many images. For a single image, listing would cost an additional request.
func TestAttachedAsksForTagsOnce(t *testing.T) {
	const n = 10
	for _, tt := range []struct {
		name           string
		fault          *fixture.Fault
		lists, lookups int
		endless        bool
	}{
		{name: "requests one list and the existing tags", lists: 1, lookups: 1},
		{name: "requests each tag if the list is refused", fault: &fixture.Fault{Match: fixture.MatchPath("/tags/list"), Status: http.StatusForbidden}, lists: 1, lookups: 3 * n},
		{name: "requests each tag if the registry does not support lists", fault: &fixture.Fault{Match: fixture.MatchPath("/tags/list"), Status: http.StatusNotFound}, lists: 1, lookups: 3 * n},
		{name: "requests each tag if the list is empty", fault: &fixture.Fault{
			Match: fixture.MatchPath("/tags/list"), Rewrite: func([]byte) []byte { return []byte(`{"name":"platform/release","tags":[]}`) },
		}, lists: 1, lookups: 3 * n},
		{name: "requests each tag if the list is endless", endless: true, lists: 5, lookups: 3 * n},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			registry := fixture.StartRegistry(t)
			var images []release.Image
			for i := range n {
				images = append(images, push(t, registry, build(t, []entry{{"manifests/a.yaml", fmt.Sprint(i), 0}})))
			}
			signed, err := mutate.AppendLayers(empty.Image, static.NewLayer([]byte("signature"), "text/plain"))
			require.NoError(t, err)
			_, err = fixture.Push(t.Context(), registry, signed, "platform/release:sha256-"+images[3].Digest.Hex()+".sig")
			require.NoError(t, err)
			registry.Reset()
			if tt.fault != nil {
				registry.AddFault(*tt.fault)
			}
			transport := roundTripper(func(req *http.Request) (*http.Response, error) {
				resp, err := http.DefaultTransport.RoundTrip(req)
				if tt.endless && err == nil && strings.HasSuffix(req.URL.Path, "/tags/list") {
					resp.Header.Set("Link", `</v2/platform/release/tags/list?last=x>; rel="next"`)
				}
				return resp, err
			})
			repository, err := open(t, image.Options{Access: reach.New(reach.Options{Transport: transport})}).Repository(images[0])
			require.NoError(t, err)
			for i, img := range images {
				found, err := repository.Attached(t.Context(), img.Digest)
				require.NoError(t, err)
				if i == 3 {
					require.Len(t, found, 1)
				} else {
					assert.Empty(t, found)
				}
			}
			assert.Equal(t, tt.lists, registry.Count(http.MethodGet, "/tags/list"))
			assert.Equal(t, tt.lookups, registry.Count(http.MethodGet, `/manifests/sha256-.*\.(sig|att|sbom)$`))
			assert.Equal(t, n, registry.Count(http.MethodGet, "/referrers/"))

			registry.Reset()
			_, err = attachments(t.Context(), open(t, image.Options{}), images[0])
			require.NoError(t, err)
			assert.Len(t, registry.Requests(), 3, "a ping, one tag, the referrers")
		})
	}
}

func TestWalkImageYieldsTheFinalFiles(t *testing.T) {
	registry := fixture.StartRegistry(t)
	built, want := sixLayers(t)
	img := push(t, registry, built)
	walk := func(walked v1.Image) (map[string]string, error) {
		got := map[string]string{}
		return got, layer.WalkImage(walked, func(f layer.File) error {
			data, err := io.ReadAll(f.Content)
			got[f.Name] = string(data)
			return err
		})
	}
	opened, err := open(t, image.Options{}).Open(t.Context(), img)
	require.NoError(t, err)
	for _, walked := range []v1.Image{built, opened} {
		got, err := walk(walked)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}

	got, err := walk(build(t, []entry{{"manifests/a.yaml", "old", 0}, {"manifests/b.yaml", "b", 0}}, []entry{{"manifests/a.yaml", "new", 0}, {"manifests/.wh.b.yaml", "", 0}}))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"manifests/a.yaml": "new"}, got)

	_, err = walk(build(t, []entry{{"manifests/../../a.yaml", "a", 0}}))
	require.ErrorIs(t, err, failure.ErrIntegrity)

	registry.AddFault(fixture.Fault{Match: fixture.MatchPath(blobs), Rewrite: flip})
	opened, err = open(t, image.Options{}).Open(t.Context(), img)
	require.NoError(t, err)
	_, err = walk(opened)
	require.ErrorIs(t, err, failure.ErrIntegrity, "changed content is detected at the end of a layer")
}

func TestExistLooksUpABoundedNumberInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total, limit = 40, 16
		answers := make(chan struct{})
		var lookups atomic.Int32
		transport := roundTripper(func(req *http.Request) (*http.Response, error) {
			resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}
			if req.URL.Path != "/v2/" {
				assert.Equal(t, http.MethodHead, req.Method)
				lookups.Add(1)
				<-answers
				resp.Header.Set("Content-Type", string(types.OCIManifestSchema1))
				resp.Header.Set("Content-Length", "9")
				resp.Header.Set("Docker-Content-Digest", path.Base(req.URL.Path))
			}
			return resp, nil
		})
		list := make([]release.Image, total)
		for i := range list {
			digest := release.Digest(fmt.Sprintf("sha256:%064x", i))
			list[i] = release.Image{Pullspec: "registry.example.com/platform/dns@" + string(digest), Digest: digest}
		}
		var found []error
		images := open(t, image.Options{Access: reach.New(reach.Options{Transport: transport})})
		go func() { found = images.Exist(t.Context(), list) }()
		synctest.Wait()
		assert.EqualValues(t, limit, lookups.Load())
		close(answers)
		synctest.Wait()
		assert.EqualValues(t, total, lookups.Load())
		assert.Equal(t, make([]error, total), found)
	})
}

// dripping is a transport without a network. The host mirror.example sends a byte of some responses every 50 seconds.
type dripping struct {
	images http.Handler
	drips  string // the part of the paths
}

func (d dripping) RoundTrip(req *http.Request) (*http.Response, error) {
	recorder, received := httptest.NewRecorder(), req.Clone(req.Context())
	if received.Body == nil {
		received.Body = http.NoBody
	}
	d.images.ServeHTTP(recorder, received)
	resp := recorder.Result()
	resp.Request = req
	if req.Method == http.MethodGet && req.URL.Host == "mirror.example" && strings.Contains(req.URL.Path, d.drips) {
		resp.Body = io.NopCloser(drip{req.Context(), resp.Body})
	}
	return resp, nil
}

type drip struct {
	ctx context.Context
	io.Reader
}

func (d drip) Read(p []byte) (int, error) {
	select {
	case <-time.After(50 * time.Second):
		return d.Reader.Read(p[:1])
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

//threat:slow-silent-registries
func TestDrippingMirrorIsLeft(t *testing.T) {
	for _, drips := range []string{"/manifests/", "/blobs/"} {
		t.Run(drips, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				built, want := sixLayers(t)
				d := dripping{images: registry.New(registry.Logger(log.New(io.Discard, "", 0))), drips: drips}
				access := mirroredBy(t, d, "", "source.example", "mirror.example")
				var img release.Image
				for _, pullspec := range []string{"mirror.example/mirrored/release:1", "source.example/platform/release:1"} {
					ref, err := access.Reference(pullspec)
					require.NoError(t, err)
					require.NoError(t, remote.Write(ref, built, access.RemoteFor(t.Context())...))
					digest, err := built.Digest()
					require.NoError(t, err)
					img = release.Image{Pullspec: pullspec, Digest: release.Digest(digest.String())}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				fsys, err := open(t, image.Options{Access: access}).Manifests(ctx, img)
				require.NoError(t, err, "the source has the image")
				assert.Equal(t, want, contents(t, fsys))

				ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				_, err = open(t, image.Options{Access: access}).Manifests(ctx, img)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "no time was left for source.example/platform/release")
			})
		})
	}
}

// TestErrorNamesAPlaceThatRecoversMeanwhile has a mirror that refuses its first request. The next request is for the source only, and the
// mirror answers another request before the source refuses.
func TestErrorNamesAPlaceThatRecoversMeanwhile(t *testing.T) {
	source, mirror := fixture.StartRegistry(t), fixture.StartRegistry(t)
	built := build(t, []entry{{"manifests/a.yaml", "a", 0}})
	img := push(t, source, built)
	_, err := fixture.Push(t.Context(), mirror, built, "mirrored/release:1")
	require.NoError(t, err)
	mirror.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/.*[.]sig$"), Status: http.StatusForbidden})
	source.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/sha256:"), Status: http.StatusForbidden})

	var meanwhile func() (repository.Found, error, bool)
	transport := roundTripper(func(req *http.Request) (*http.Response, error) {
		if strings.HasSuffix(req.URL.Path, "/platform/release/manifests/"+string(img.Digest)) {
			_, _, more := meanwhile()
			assert.False(t, more)
		}
		return http.DefaultTransport.RoundTrip(req)
	})
	r := open(t, image.Options{Access: mirroredBy(t, transport, "", source.Host(), mirror.Host())})
	opened, err := r.Repository(img)
	require.NoError(t, err)
	next, stop := iter.Pull2(opened.InEachPlace(t.Context(), img.Digest, repository.AttachedTag(img.Digest, ".sig")))
	defer stop()
	_, err, _ = next()
	require.ErrorIs(t, err, failure.ErrUnauthorized)
	meanwhile = next
	_, err = opened.Document(t.Context(), img.Digest)
	require.ErrorContains(t, err, "all 2 sources failed")
	require.ErrorContains(t, err, mirror.Host()+"/mirrored/release: ")
}
