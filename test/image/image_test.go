// Package image_test builds the images of the operator and of the node stage as `make image` does without a container engine. It checks that the
// operator's image is reproducible, and that both contain the expected files and run.
package image_test

import (
	"archive/tar"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
)

const (
	root = "../.."
	// most and nodeMost are the maximum compressed sizes of the operator's image and of the node stage's in bytes.
	most     = 60_000_000
	nodeMost = 20_000_000
)

// build runs hack/image.sh in a source tree.
func build(t *testing.T, tree string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join("hack", "image.sh"))
	cmd.Dir = tree
	cmd.Env = append(append(os.Environ(), "ENGINE=none", "VERSION=v1.2.3", "REVISION=0123abc", "SOURCE_DATE_EPOCH=1700000000"), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(string(out))
}

// clone copies the source, without history, to a folder with another name.
func clone(t *testing.T) (tree string) {
	t.Helper()
	tree = t.TempDir()
	script := `git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' f; do if [ -f "$f" ]; then printf '%s\0' "$f"; fi; done |
		tar --create --null --files-from=- | tar -x -C "$0"`
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script, tree)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return tree
}

func TestImageHasTheExpectedFiles(t *testing.T) {
	oci, node := filepath.Join(t.TempDir(), "oci"), filepath.Join(t.TempDir(), "node")
	registry := startRegistry(t)
	build(t, root, "OCI_DIR="+oci, "NODE_OCI_DIR="+node, "PUSH="+registry.tag, "CA="+registry.authority, "DOCKER_CONFIG="+registry.config)
	index, list := open(t, oci)

	t.Run("is an index of images for two architectures", func(t *testing.T) {
		assert.Equal(t, types.OCIImageIndex, list.MediaType)
		var platforms []string
		for _, m := range list.Manifests {
			platforms = append(platforms, m.Platform.String())
		}
		assert.Equal(t, []string{"linux/amd64", "linux/arm64"}, platforms)
	})
	t.Run("is pushed over TLS with credentials", func(t *testing.T) {
		digest, err := index.Digest()
		require.NoError(t, err)
		assert.Equal(t, digest.String(), registry.digest(t))
	})
	for _, m := range list.Manifests {
		t.Run("has the expected files for "+m.Platform.Architecture, func(t *testing.T) {
			img, err := index.Image(m.Digest)
			require.NoError(t, err)
			checkImage(t, img)
		})
	}
	t.Run("is the same when built as a single image in another folder without history", func(t *testing.T) {
		again := filepath.Join(t.TempDir(), "oci")
		build(t, clone(t), "OCI_DIR="+again, "ARCH="+runtime.GOARCH)
		all, err := layout.ImageIndexFromPath(again)
		require.NoError(t, err)
		single, err := all.IndexManifest()
		require.NoError(t, err)
		require.Len(t, single.Manifests, 1)
		assert.Equal(t, ours(t, list).Digest, single.Manifests[0].Digest)
	})
	t.Run("has a binary that prints its version", func(t *testing.T) {
		img, err := index.Image(ours(t, list).Digest)
		require.NoError(t, err)
		out, err := exec.CommandContext(t.Context(), extract(t, img, "cvo"), "--version").CombinedOutput()
		require.NoError(t, err, string(out))
		assert.Contains(t, string(out), "v1.2.3")
	})
	t.Run("has a node stage beside it", func(t *testing.T) {
		index, list := open(t, node)
		require.Len(t, list.Manifests, 2)
		for _, m := range list.Manifests {
			img, err := index.Image(m.Digest)
			require.NoError(t, err)
			config, err := img.ConfigFile()
			require.NoError(t, err)
			assert.Equal(t, "true", config.Config.Labels[api.OperatorLabel])
			layers, err := img.Layers()
			require.NoError(t, err)
			assert.Less(t, compressed(t, layers), int64(nodeMost))
		}
		img, err := index.Image(ours(t, list).Digest)
		require.NoError(t, err)
		out, err := exec.CommandContext(t.Context(), extract(t, img, "cvo-node"), "--version").CombinedOutput()
		require.NoError(t, err, string(out))
		assert.Contains(t, string(out), "v1.2.3")
	})
}

func ours(t *testing.T, list *v1.IndexManifest) v1.Descriptor {
	t.Helper()
	for _, m := range list.Manifests {
		if m.Platform.Architecture == runtime.GOARCH {
			return m
		}
	}
	t.Skipf("there is no image for %s", runtime.GOARCH)
	return v1.Descriptor{}
}

// open reads the only index of a layout.
func open(t *testing.T, dir string) (v1.ImageIndex, *v1.IndexManifest) {
	t.Helper()
	all, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	names, err := all.IndexManifest()
	require.NoError(t, err)
	require.Len(t, names.Manifests, 1)
	index, err := all.ImageIndex(names.Manifests[0].Digest)
	require.NoError(t, err)
	list, err := index.IndexManifest()
	require.NoError(t, err)
	return index, list
}

func checkImage(t *testing.T, img v1.Image) {
	t.Helper()
	config, err := img.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, "65532:65532", config.Config.User)
	assert.Equal(t, "v1.2.3", config.Config.Labels["org.opencontainers.image.version"])
	assert.Equal(t, "0123abc", config.Config.Labels["org.opencontainers.image.revision"])
	assert.Equal(t, int64(1700000000), config.Created.Unix())

	modes, sets := map[string]int64{}, 0
	layers, err := img.Layers()
	require.NoError(t, err)
	for _, layer := range layers {
		walk(t, layer, func(h *tar.Header, content io.Reader) {
			assert.Equal(t, int64(1700000000), h.ModTime.Unix(), h.Name)
			assert.Zero(t, h.Uid+h.Gid, h.Name)
			switch {
			case strings.HasPrefix(h.Name, "manifests/0000_"):
				sets++
				assert.Equal(t, int64(0o444), h.Mode)
			case h.Name == "etc/ssl/certs/ca-certificates.crt":
				data, err := io.ReadAll(content)
				require.NoError(t, err)
				assert.Greater(t, certificates(t, data), 50)
				fallthrough
			default:
				modes[h.Name] = h.Mode
			}
		})
	}
	assert.Less(t, compressed(t, layers), int64(most))
	assert.Greater(t, sets, 10, "the image contains the manifests, including the definitions")
	assert.Equal(t, map[string]int64{
		"cvo": 0o755, "manifests/": 0o755, "etc/": 0o755, "etc/ssl/": 0o755, "etc/ssl/certs/": 0o755,
		"etc/ssl/certs/ca-certificates.crt": 0o444,
	}, modes)
}

// compressed returns the size of layers in bytes.
func compressed(t *testing.T, layers []v1.Layer) (size int64) {
	t.Helper()
	for _, layer := range layers {
		s, err := layer.Size()
		require.NoError(t, err)
		size += s
	}
	t.Logf("%.1f MB compressed", float64(size)/1e6)
	return size
}

func walk(t *testing.T, layer v1.Layer, do func(*tar.Header, io.Reader)) {
	t.Helper()
	content, err := layer.Uncompressed()
	require.NoError(t, err)
	defer content.Close()
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		do(header, archive)
	}
}

// certificates returns the number of certificates in a PEM file and checks that all can be parsed.
func certificates(t *testing.T, data []byte) (count int) {
	t.Helper()
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		_, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		count++
	}
	return count
}

// extract extracts a binary from an image.
func extract(t *testing.T, img v1.Image, name string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name)
	layers, err := img.Layers()
	require.NoError(t, err)
	for _, layer := range layers {
		walk(t, layer, func(h *tar.Header, content io.Reader) {
			if h.Name != name {
				return
			}
			data, err := io.ReadAll(content)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, data, 0o755))
		})
	}
	return file
}

// secureRegistry is a registry with a password and a certificate of an unknown authority.
type secureRegistry struct {
	server                 *httptest.Server
	tag, authority, config string
}

const credentials = "image:secret"

func startRegistry(t *testing.T) secureRegistry {
	t.Helper()
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r := secureRegistry{server: httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if user, password, ok := req.BasicAuth(); !ok || user+":"+password != credentials {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		store.ServeHTTP(w, req)
	}))}
	t.Cleanup(r.server.Close)
	dir := t.TempDir()
	host := r.server.Listener.Addr().String()
	r.tag, r.authority, r.config = host+"/cvo:v1.2.3", filepath.Join(dir, "ca.crt"), dir
	block := &pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw}
	require.NoError(t, os.WriteFile(r.authority, pem.EncodeToMemory(block), 0o600))
	auth := base64.StdEncoding.EncodeToString([]byte(credentials))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, host, auth), 0o600))
	return r
}

// digest returns the digest of the tag.
func (r secureRegistry) digest(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, r.server.URL+"/v2/cvo/manifests/v1.2.3", http.NoBody)
	require.NoError(t, err)
	user, password, _ := strings.Cut(credentials, ":")
	req.SetBasicAuth(user, password)
	resp, err := r.server.Client().Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	return resp.Header.Get("Docker-Content-Digest")
}
