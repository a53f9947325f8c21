package cli_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/cli/release/create"
)

func TestReleaseNewWritesEachOutput(t *testing.T) {
	p := newPlatform(t)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	to := p.Host() + "/release:1.0.0"
	args := []string{"-f", p.stream(t), "--name", "1.0.0", "--previous", "0.9.0"}
	digest, _ := newRelease(t, append(args, "--to-image", to, "--to-dir", in("dir"), "--to-file", in("layer.tar.gz"), "--to-signature", in("claim"), "--result-file", in("result"))...)

	t.Run("writes the claim that signers sign", func(t *testing.T) {
		var claim struct {
			Critical struct {
				Type  string
				Image struct {
					Digest string `json:"docker-manifest-digest"`
				}
				Identity struct {
					Reference string `json:"docker-reference"`
				}
			}
			Optional struct{ Creator string }
		}
		data, err := os.ReadFile(in("claim"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &claim))
		assert.Equal(t, "atomic container signature", claim.Critical.Type)
		assert.Equal(t, digest, claim.Critical.Image.Digest)
		assert.Equal(t, p.Host()+"/release", claim.Critical.Identity.Reference)
	})
	t.Run("writes a result file for scripts", func(t *testing.T) {
		data, err := os.ReadFile(in("result"))
		require.NoError(t, err)
		assert.JSONEq(t, fmt.Sprintf(`{"digest": %q, "name": "1.0.0", "created": "2026-04-01T08:30:00Z", "image": %q, "images": 3, "operators": 1, "leftOut": ["unused"], "platforms": ["linux/amd64"]}`,
			digest, to+"@"+digest), string(data))
		out, _, err := runCvo(t, append([]string{"release", "new", "--dry-run", "--result-file", "-"}, args...)...)
		require.NoError(t, err)
		var result create.Summary
		require.NoError(t, json.Unmarshal([]byte(out), &result))
		assert.Equal(t, digest, result.Digest)
		assert.Empty(t, result.Image, "nothing was pushed")
	})
	t.Run("writes the layer, also to standard output", func(t *testing.T) {
		want, err := os.ReadFile(in("layer.tar.gz"))
		require.NoError(t, err)
		out, errs, err := runCvo(t, append([]string{"release", "new", "--to-file", "-"}, args...)...)
		require.NoError(t, err)
		assert.Equal(t, string(want), out)
		assert.Contains(t, errs, digest+" 1.0.0 ", "text goes to the stream that the layer does not use")
	})
	t.Run("writes the folders of the release with one timestamp", func(t *testing.T) {
		files := contents(t, in("dir"))
		assert.Contains(t, files, "manifests/0000_00_cluster-version-operator_00.yaml")
		assert.Equal(t, extracted(t, to, "0000_30_dns_00.yaml"), files["release-manifests/0000_30_dns_00.yaml"])
		info, err := os.Stat(filepath.Join(in("dir"), "release-manifests", "0000_30_dns_00.yaml"))
		require.NoError(t, err)
		assert.Equal(t, sourceTime, info.ModTime().UTC())
	})
	t.Run("does not overwrite existing files", func(t *testing.T) {
		for _, again := range [][]string{
			{"--to-dir", in("dir")}, {"--to-file", in("claim")}, {"--to-image", to, "--to-signature", in("claim")}, {"--dry-run", "--result-file", in("claim")},
		} {
			_, _, err := runCvo(t, append(append([]string{"release", "new"}, args...), again...)...)
			assert.ErrorContains(t, err, ": name an", "%q", again)
		}
	})
	t.Run("writes and pushes nothing if a file exists", func(t *testing.T) {
		unpushed := p.Host() + "/unpushed:1.0.0"
		for _, flag := range []string{"--to-file", "--to-signature", "--result-file"} {
			_, _, err := runCvo(t, append([]string{"release", "new", "--to-image", unpushed, "--to-dir", in("not-written"), flag, in("claim")}, args...)...)
			require.ErrorContains(t, err, in("claim")+" exists: name another file", flag)
			assert.NoDirExists(t, in("not-written"), flag)
			_, err = crane.Digest(unpushed)
			require.Error(t, err, flag)
		}
	})
	t.Run("prints the list of images and stops", func(t *testing.T) {
		for _, output := range []string{"json", "yaml"} {
			out, errs, err := runCvo(t, append([]string{"release", "new", "-o", output, "--to-dir", in("not-written")}, args...)...)
			require.NoError(t, err)
			asJSON, err := yaml.YAMLToJSON([]byte(out))
			require.NoError(t, err)
			assert.JSONEq(t, extracted(t, to, "image-references"), string(asJSON))
			assert.NotContains(t, errs, "Included")
			assert.NoDirExists(t, in("not-written"))
		}
	})
	t.Run("mirrors the images of the release", func(t *testing.T) {
		mirrored := p.Host() + "/mirrored:1.0.0"
		_, errs := newRelease(t, append(args, "--mirror", p.Host()+"/all", "--to-image", mirrored)...)
		assert.Contains(t, errs, "info: Mirrored 3 images to "+p.Host()+"/all\n")
		_, tags := references(t, mirrored)
		require.Len(t, tags, 3)
		for component, tag := range tags {
			_, digest, _ := strings.Cut(p.images[component], "@")
			assert.Equal(t, p.Host()+"/all@"+digest, tag.From.Name)
			pulled(t, tag.From.Name)
		}
		assert.Contains(t, extracted(t, mirrored, "0000_30_dns_00.yaml"), "image: "+tags["dns"].From.Name)
		pulled(t, p.Host()+"/all:1.0.0-dns")
	})
}

func TestReleaseNewReadsImageStreamsFromURLAndCluster(t *testing.T) {
	p := newPlatform(t)
	data, err := os.ReadFile(p.stream(t))
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stream", "/apis/image.openshift.io/v1/namespaces/ci/imagestreams/platform":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(data)
		case "/endless":
			for {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
		}
	}))
	t.Cleanup(server.Close)
	secure := httptest.NewTLSServer(http.RedirectHandler(server.URL+"/stream", http.StatusFound))
	t.Cleanup(secure.Close)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600))
	want, _ := newRelease(t, "-f", p.stream(t), "--name", "1.0.0", "--dry-run")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"x",
"clusters":[{"name":"x","cluster":{"server":"`+server.URL+`"}}],"contexts":[{"name":"x","context":{"cluster":"x","namespace":"ci"}}]}`), 0o600))

	t.Run("reads an image stream from a URL", func(t *testing.T) {
		got, _ := newRelease(t, "-f", server.URL+"/stream", "--name", "1.0.0", "--dry-run")
		assert.Equal(t, want, got)
	})
	t.Run("reads an image stream of a cluster", func(t *testing.T) {
		got, _ := newRelease(t, "--from-image-stream", "platform", "--kubeconfig", kubeconfig, "--name", "1.0.0", "--dry-run")
		assert.Equal(t, want, got)
	})
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"a stream missing from the cluster", "use --from-image-stream-file", []string{"--from-image-stream", "platform", "-n", "other", "--kubeconfig", kubeconfig}},
		{"a missing URL", "responded with 404", []string{"-f", server.URL + "/gone"}},
		{"an endless response", "it has more than", []string{"-f", server.URL + "/endless"}},
		{"a redirect from HTTPS to HTTP", "refusing a redirect from https to http", []string{"-f", secure.URL, "--certificate-authority", authority}},
		{"a URL without TLS", "use https, or add --insecure", []string{"-f", "http://streams.example/x"}},
		{"a missing file", "no such file", []string{"-f", "/nonexistent/x"}},
	} {
		t.Run("rejects "+tt.name, func(t *testing.T) {
			_, _, err := runCvo(t, append([]string{"release", "new", "--dry-run"}, tt.args...)...)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}
