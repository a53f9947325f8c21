package interop

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// newRelease creates the example platform with our command. It returns the pullspec with the digest, and an OCI layout with the same
// release.
func newRelease(t *testing.T, registry *fixture.Registry) (pullspec, layout string) {
	t.Helper()
	layout = filepath.Join(t.TempDir(), "layout")
	repository := registry.Host() + "/platform/release"
	out, err := cvo(t, "release", "new", "--from-dir", "../../examples/platform/1.0.0", "--name", "1.0.0", "--no-operator",
		"--created", "2026-03-01T12:00:00Z", "--to-image", repository+":1.0.0", "--to-oci", layout)
	require.NoError(t, err)
	digest, _, _ := strings.Cut(out, " ")
	return repository + "@" + digest, layout
}

// extracted returns the files that our command reads from a release, by path.
func extracted(t *testing.T, ref string) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "extracted")
	_, err := cvo(t, "release", "extract", ref, "--to", dir)
	require.NoError(t, err)
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[filepath.Base(path)] = string(data)
		return err
	}))
	require.NotEmpty(t, files)
	return files
}

func TestOtherToolsReadOurImages(t *testing.T) {
	registry, dir := fixture.StartRegistry(t), t.TempDir()
	pullspec, layout := newRelease(t, registry)
	ours := extracted(t, pullspec)
	digest := string(release.Pullspec(pullspec).Digest())

	t.Run("crane validates and reads an image", func(t *testing.T) {
		assert.Equal(t, digest, strings.TrimSpace(run(t, dir, "crane", "digest", registry.Host()+"/platform/release:1.0.0")))
		// crane checks every digest, size and media type of the manifest, the configuration and the layers.
		run(t, dir, "crane", "validate", "--remote", pullspec)
		exported := untar(t, run(t, dir, "crane", "export", pullspec, "-"))
		for name, content := range ours {
			assert.Equal(t, content, exported[name], name)
		}
	})
	t.Run("skopeo copies an image", func(t *testing.T) {
		var image struct {
			Digest, Architecture string
			Labels               map[string]string
		}
		require.NoError(t, json.Unmarshal([]byte(run(t, dir, "skopeo", "inspect", "--tls-verify=false", "docker://"+pullspec)), &image))
		assert.Equal(t, digest, image.Digest)
		assert.Equal(t, "1.0.0", image.Labels["io.openshift.release"])
		copied := filepath.Join(dir, "copied")
		run(t, dir, "skopeo", "--insecure-policy", "copy", "--preserve-digests", "--src-tls-verify=false", "docker://"+pullspec, "dir:"+copied)
		assert.FileExists(t, filepath.Join(copied, "manifest.json"))
	})
	t.Run("skopeo reads a layout", func(t *testing.T) {
		out := run(t, dir, "skopeo", "--insecure-policy", "copy", "--preserve-digests", "--dest-tls-verify=false",
			"oci:"+layout+":1.0.0", "docker://"+registry.Host()+"/copied/release:1.0.0")
		t.Log(out)
		assert.Equal(t, digest, strings.TrimSpace(run(t, dir, "crane", "digest", registry.Host()+"/copied/release:1.0.0")))
	})
}

func TestImagesOfOtherToolsCanBeRead(t *testing.T) {
	registry, dir := fixture.StartRegistry(t), t.TempDir()
	pullspec, _ := newRelease(t, registry)
	ours := extracted(t, pullspec)

	t.Run("reads a layout from skopeo", func(t *testing.T) {
		layout := filepath.Join(dir, "oci")
		run(t, dir, "skopeo", "--insecure-policy", "copy", "--src-tls-verify=false", "docker://"+pullspec, "oci:"+layout+":other")
		assert.Equal(t, ours, extracted(t, layout+":other"))
	})
	t.Run("reads layers that skopeo compressed with zstd", func(t *testing.T) {
		plain, target := filepath.Join(dir, "plain"), registry.Host()+"/zstd/release:1.0.0"
		copied := func(args ...string) {
			run(t, dir, "skopeo", append([]string{"--insecure-policy", "copy", "--src-tls-verify=false", "--dest-tls-verify=false"}, args...)...)
		}
		copied("--dest-decompress", "docker://"+pullspec, "dir:"+plain)
		copied("--dest-compress-format=zstd", "--format=oci", "dir:"+plain, "docker://"+target)
		require.Contains(t, run(t, dir, "crane", "manifest", target), "tar+zstd")
		assert.Equal(t, ours, extracted(t, target))
	})
	t.Run("reads a layer that crane added", func(t *testing.T) {
		layer := filepath.Join(dir, "layer.tar")
		require.NoError(t, os.WriteFile(layer, tarOf(t, "release-manifests/0000_90_more_00.yaml", "more: true\n"), 0o600))
		target := registry.Host() + "/appended/release:1.0.0"
		run(t, dir, "crane", "append", "--base", pullspec, "--new_layer", layer, "--new_tag", target)
		got := extracted(t, target)
		assert.Equal(t, "more: true\n", got["0000_90_more_00.yaml"])
		assert.Len(t, got, len(ours)+1)
	})
	t.Run("reads an index from crane", func(t *testing.T) {
		target := registry.Host() + "/index/release:1.0.0"
		run(t, dir, "crane", "index", "append", "--manifest", pullspec, "--tag", target)
		digest := strings.TrimSpace(run(t, dir, "crane", "digest", target))
		assert.Equal(t, ours, extracted(t, registry.Host()+"/index/release@"+digest))
	})
	t.Run("reads an image that crane flattened", func(t *testing.T) {
		flat := strings.TrimSpace(run(t, dir, "crane", "flatten", pullspec))
		assert.Equal(t, ours, extracted(t, flat))
	})
}

// untar returns the regular files of an archive by their base names.
func untar(t *testing.T, archive string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for r := tar.NewReader(strings.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		files[filepath.Base(header.Name)] = string(data)
	}
}

func tarOf(t *testing.T, name, content string) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}))
	_, err := w.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return archive.Bytes()
}
