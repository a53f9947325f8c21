package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/image/layer"
	"github.com/cluster-version/cvo/pkg/release"
)

func received() release.Image {
	return release.Image{Pullspec: "registry.example/release:1", Digest: release.Digest("sha256:" + strings.Repeat("a", 64))}
}

// stream returns a compressed tar archive. A tar.Header among the entries is written without content.
func stream(t testing.TB, entries ...any) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	for _, e := range entries {
		switch e := e.(type) {
		case string:
			require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e, Size: int64(len(e)), Mode: 0o644}))
			_, err := w.Write([]byte(e))
			require.NoError(t, err)
		case tar.Header:
			require.NoError(t, w.WriteHeader(&e))
		}
	}
	require.NoError(t, w.Close())
	require.NoError(t, compressed.Close())
	return out.Bytes()
}

func receiver(t testing.TB, options image.Options) *image.Reader {
	t.Helper()
	r, err := image.New(options)
	require.NoError(t, err)
	return r
}

func TestReceiveStoresTheFilesOfARelease(t *testing.T) {
	good := stream(t, tar.Header{Typeflag: tar.TypeDir, Name: "manifests/", Mode: 0o755}, "manifests/a.yaml", "release-manifests/b.yaml", "etc/passwd")
	dir := t.TempDir()
	files, err := receiver(t, image.Options{CacheDir: dir}).Receive(t.Context(), received(), bytes.NewReader(good))
	require.NoError(t, err)
	names, err := fs.Glob(files, "*/*")
	require.NoError(t, err)
	assert.Equal(t, []string{"manifests/a.yaml", "release-manifests/b.yaml"}, names, "files outside the manifest folders are dropped")

	later := receiver(t, image.Options{CacheDir: dir})
	files, err = later.Received(t.Context(), received())
	require.NoError(t, err)
	content, err := fs.ReadFile(files, "manifests/a.yaml")
	require.NoError(t, err)
	assert.Equal(t, "manifests/a.yaml", string(content))

	other := received()
	other.Digest = release.Digest("sha256:" + strings.Repeat("b", 64))
	files, err = later.Received(t.Context(), other)
	require.NoError(t, err)
	assert.Nil(t, files, "files were received for another image only")

	before, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	require.NoError(t, err)
	_, err = later.Receive(t.Context(), received(), bytes.NewReader(good))
	require.NoError(t, err)
	after, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	require.NoError(t, err)
	assert.Equal(t, before, after, "the same files are stored once")
}

func TestReceivedFilesAreCheckedAndPruned(t *testing.T) {
	dir := t.TempDir()
	r := receiver(t, image.Options{CacheDir: dir, CacheLimitBytes: 1})
	fill := func() {
		_, err := receiver(t, image.Options{CacheDir: dir}).Receive(t.Context(), received(), bytes.NewReader(stream(t, "manifests/a.yaml")))
		require.NoError(t, err)
	}
	fill()
	_, err := r.Prune(t.Context(), received().Digest)
	require.NoError(t, err)
	files, err := r.Received(t.Context(), received())
	require.NoError(t, err)
	assert.NotNil(t, files, "the files are kept with their image")

	blobs, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	require.NoError(t, err)
	require.Len(t, blobs, 3)
	for _, blob := range blobs {
		content, err := os.ReadFile(blob)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(blob, append(bytes.Clone(content[:len(content)-1]), content[len(content)-1]+1), 0o600))
	}
	files, err = r.Received(t.Context(), received())
	require.NoError(t, err)
	assert.Nil(t, files, "files changed on disk are ignored")
	fill()
	files, err = r.Received(t.Context(), received())
	require.NoError(t, err)
	assert.NotNil(t, files)
}

// forever is an endless stream.
type forever struct{ chunk []byte }

func (e forever) Read(p []byte) (int, error) { return copy(p, e.chunk), nil }

//threat:retrieval-job-sends
func TestReceiveRejectsHostileStreams(t *testing.T) {
	good := stream(t, "manifests/a.yaml")
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	tw := tar.NewWriter(w)
	require.NoError(t, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: 1 << 30}))
	_, err := io.CopyN(tw, forever{make([]byte, 1<<16)}, 40<<20)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	limits := image.Limits{Limits: layer.Limits{LayerBytes: 1 << 20, UnpackedBytes: 32 << 20, Entries: 100, Files: 10, FileBytes: 1 << 7, TotalBytes: 4 << 10}}
	many := make([]any, 11)
	for i := range many {
		many[i] = "manifests/" + strings.Repeat("x", i+1)
	}
	big := "manifests/" + strings.Repeat("x", 200)
	link := func(flag byte) tar.Header {
		return tar.Header{Typeflag: flag, Name: "manifests/a.yaml", Linkname: "/etc/passwd"}
	}
	for name, c := range map[string]struct {
		sent io.Reader
		want error
	}{
		"an empty stream":              {strings.NewReader(""), failure.ErrIntegrity},
		"a text file":                  {strings.NewReader("no tar"), failure.ErrIntegrity},
		"a truncated checksum":         {bytes.NewReader(good[:len(good)-9]), failure.ErrIntegrity},
		"a truncated stream":           {bytes.NewReader(good[:len(good)/2]), failure.ErrIntegrity},
		"a wrong checksum":             {bytes.NewReader(append(bytes.Clone(good[:len(good)-8]), 1, 2, 3, 4, 5, 6, 7, 8)), failure.ErrIntegrity},
		"endless zeros":                {forever{make([]byte, 1<<16)}, failure.ErrLimit},
		"endless data after the end":   {io.MultiReader(bytes.NewReader(good), forever{good}), failure.ErrLimit},
		"a bomb":                       {&bomb, failure.ErrLimit},
		"a stream without manifests":   {bytes.NewReader(stream(t, "etc/passwd")), failure.ErrIntegrity},
		"a path that leaves the image": {bytes.NewReader(stream(t, "manifests/../../etc/passwd")), failure.ErrIntegrity},
		"an absolute path":             {bytes.NewReader(stream(t, "/manifests/a.yaml")), failure.ErrIntegrity},
		"a symbolic link":              {bytes.NewReader(stream(t, link(tar.TypeSymlink))), failure.ErrIntegrity},
		"a hard link":                  {bytes.NewReader(stream(t, link(tar.TypeLink))), failure.ErrIntegrity},
		"a device":                     {bytes.NewReader(stream(t, link(tar.TypeChar))), failure.ErrIntegrity},
		"a duplicate file":             {bytes.NewReader(stream(t, "manifests/a", "manifests/a")), failure.ErrIntegrity},
		"too many files":               {bytes.NewReader(stream(t, many...)), failure.ErrLimit},
		"a large file":                 {bytes.NewReader(stream(t, big)), failure.ErrLimit},
	} {
		t.Run("it refuses "+name, func(t *testing.T) {
			dir := t.TempDir()
			r := receiver(t, image.Options{CacheDir: dir, Limits: limits})
			files, err := r.Receive(t.Context(), received(), c.sent)
			require.ErrorIs(t, err, c.want)
			assert.Nil(t, files)
			files, err = r.Received(t.Context(), received())
			require.NoError(t, err)
			assert.Nil(t, files, "no file is kept")
		})
	}
}

// FuzzReceive receives arbitrary streams. Accepted files must be readable from the cache.
//
//threat:files-release-job
func FuzzReceive(f *testing.F) {
	f.Add(stream(f, "manifests/a.yaml", "release-manifests/b.yaml"))
	f.Add(stream(f, tar.Header{Typeflag: tar.TypeSymlink, Name: "manifests/a", Linkname: "/"}))
	f.Add([]byte("\x28\xb5\x2f\xfd"))
	f.Add(make([]byte, 1024))
	dir := f.TempDir()
	limits := image.Limits{Limits: layer.Limits{LayerBytes: 1 << 20, UnpackedBytes: 8 << 20, FileBytes: 1 << 16, TotalBytes: 1 << 20}}
	f.Fuzz(func(t *testing.T, sent []byte) {
		r := receiver(t, image.Options{CacheDir: dir, Limits: limits})
		files, err := r.Receive(t.Context(), received(), bytes.NewReader(sent))
		if err != nil {
			return
		}
		want, err := fs.Glob(files, "*/*")
		require.NoError(t, err)
		again, err := r.Received(t.Context(), received())
		require.NoError(t, err)
		require.NotNil(t, again)
		got, err := fs.Glob(again, "*/*")
		require.NoError(t, err)
		assert.Equal(t, want, got)
	})
}
