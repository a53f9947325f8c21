package cli_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/engine/drawing"
	"github.com/cluster-version/cvo/test/golden"
)

// smallRelease is a release of three components with one manifest moved forward and one excluded manifest.
var smallRelease = map[string]string{
	"release-manifests/release-metadata": `{"kind":"cincinnati-metadata-v0","version":"1.2.3"}`,
	"release-manifests/image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"},"spec":{"tags":[]}}`,
	"manifests/0000_00_operator_00_namespace.yaml": `
apiVersion: v1
kind: Namespace
metadata: {name: operator, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
`,
	"release-manifests/0000_10_config_00_cluster.yaml": `
apiVersion: config.example.com/v1
kind: Platform
metadata: {name: cluster, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
`,
	"release-manifests/0000_20_config_00_crd.yaml": `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: platforms.config.example.com, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
spec: {group: config.example.com, names: {kind: Platform, plural: platforms}}
`,
	"release-manifests/0000_50_console_00.yaml": `
apiVersion: v1
kind: Namespace
metadata: {name: console, annotations: {include.release.openshift.io/self-managed-high-availability: "true", capability.openshift.io/name: Console}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: console, namespace: console, annotations: {include.release.openshift.io/self-managed-high-availability: "true", capability.openshift.io/name: Console}}
`,
	"release-manifests/0000_50_console_01_preview.yaml": `
apiVersion: v1
kind: ConfigMap
metadata: {name: preview, namespace: console, annotations: {include.release.openshift.io/self-managed-high-availability: "true", release.openshift.io/feature-set: TechPreviewNoUpgrade}}
`,
	"release-manifests/0000_50_console_02_gated.yaml": `
apiVersion: v1
kind: ConfigMap
metadata: {name: gated, namespace: console, annotations: {include.release.openshift.io/self-managed-high-availability: "true", release.openshift.io/feature-gate: NewConsole}}
`,
}

func writeRelease(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for file, content := range smallRelease {
		path := filepath.Join(dir, filepath.FromSlash(file))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return dir
}

func TestReleaseGraphMatchesTheGoldenFiles(t *testing.T) {
	dir := writeRelease(t)
	for _, tt := range []struct {
		name string
		args []string
	}{
		{"updating", nil},
		{"initializing", []string{"--mode", "initializing"}},
		{"preview", []string{"--feature-set", "TechPreviewNoUpgrade", "--feature-gate", "NewConsole"}},
		{"excluded", []string{"--excluded"}},
		{"excluded-capability", []string{"--excluded", "--capability", "None"}},
		{"excluded-json", []string{"--excluded", "--capability", "Ingress", "-o", "json"}},
		{"excluded-yaml", []string{"--excluded", "-o", "yaml"}},
		{"excluded-profile", []string{"--excluded", "--profile", "ibm-cloud-managed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, _, err := runGraph(t, append([]string{dir}, tt.args...)...)
			require.NoError(t, err)
			golden.Assert(t, "release-graph-"+tt.name, out)
		})
	}
}

func TestReleaseGraphPrintsJSONAndYAML(t *testing.T) {
	dir := writeRelease(t)
	out, _, err := runGraph(t, dir, "-o", "json")
	require.NoError(t, err)
	var d drawing.Document
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	assert.Equal(t, 5, d.Summary.Manifests)
	out, _, err = runGraph(t, dir, "-o", "yaml")
	require.NoError(t, err)
	assert.Contains(t, out, "drawnFrom:")
	out, _, err = runGraph(t, dir, "-o", "dot")
	require.NoError(t, err)
	assert.Contains(t, out, "strict digraph release")
	out, _, err = runGraph(t, dir, "-o", "svg")
	require.NoError(t, err)
	require.NoError(t, xml.Unmarshal([]byte(out), new(struct{ XMLName xml.Name })))
}

// TestReleaseGraphReadsAnImage reads the same release from a registry.
func TestReleaseGraphReadsAnImage(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive(t))), nil })
	require.NoError(t, err)
	img, err := mutate.AppendLayers(empty.Image, layer)
	require.NoError(t, err)
	pullspec := strings.TrimPrefix(server.URL, "http://") + "/platform/release:1.2.3"
	ref, err := name.ParseReference(pullspec)
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, img))

	out, info, err := runGraph(t, pullspec)
	require.NoError(t, err)
	digest, err := img.Digest()
	require.NoError(t, err)
	assert.Contains(t, info, "release@"+digest.String()+"; its signatures are not checked")
	golden.Assert(t, "release-graph-updating", out)

	secure := httptest.NewTLSServer(server.Config.Handler)
	t.Cleanup(secure.Close)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	require.NoError(t, os.WriteFile(authority, certificate, 0o600))
	overTLS := strings.TrimPrefix(secure.URL, "https://") + "/platform/release:1.2.3"
	for _, flags := range [][]string{{"--insecure"}, {"--certificate-authority", authority}} {
		out, _, err = runGraph(t, append(flags, overTLS)...)
		require.NoError(t, err)
		golden.Assert(t, "release-graph-updating", out)
	}

	_, _, err = runGraph(t, strings.Replace(pullspec, "1.2.3", "missing", 1))
	require.ErrorContains(t, err, "resolving")
	assert.Equal(t, command.ExitFailed, command.ExitCode(err))
}

func TestReleaseGraphRejectsWrongArguments(t *testing.T) {
	dir := writeRelease(t)
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"it rejects a missing argument", "accepts 1 arg", nil},
		{"it rejects an unknown mode", `unknown mode "sideways"`, []string{dir, "--mode", "sideways"}},
		{"it rejects an unknown output", `unknown output "png"`, []string{dir, "-o", "png"}},
		{"it rejects a picture of excluded manifests", "--excluded prints text", []string{dir, "--excluded", "-o", "svg"}},
		{"it rejects an unknown capability", `unknown capability "Cosole"`, []string{dir, "--capability", "Cosole"}},
		{"it rejects an unknown feature set", `unknown feature set "Preview"`, []string{dir, "--feature-set", "Preview"}},
		{"it rejects a file", "is a file", []string{filepath.Join(dir, "release-manifests", "release-metadata")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := runGraph(t, tt.args...)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, command.ExitUsage, command.ExitCode(err))
		})
	}
	_, _, err := runGraph(t, filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, _, err = runGraph(t, filepath.Join(dir, "manifests"))
	require.ErrorIs(t, err, inspect.ErrNoRelease)
	broken := errors.New("broken pipe")
	cmd := cli.New(command.Streams{Out: failingWriter{broken}, Err: io.Discard})
	cmd.SetArgs([]string{"release", "graph", dir, "--excluded"})
	require.ErrorIs(t, cmd.ExecuteContext(t.Context()), broken)
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func runGraph(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, info bytes.Buffer
	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &out, Err: &info})
	cmd.SetArgs(append([]string{"release", "graph"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), info.String(), err
}

// archive returns the small release as a layer.
func archive(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, file := range slices.Sorted(maps.Keys(smallRelease)) {
		content := smallRelease[file]
		require.NoError(t, w.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}))
		_, err := w.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}
