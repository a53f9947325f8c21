package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/fixture"
)

func writeProgram(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "cvo")
	require.NoError(t, os.WriteFile(file, []byte("\x7fELF"), 0o600))
	return file
}

// TestLayoutIsPushedUnchanged checks that an image built by an engine is pushed unchanged.
func TestLayoutIsPushedUnchanged(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	registry, cvo := fixture.StartRegistry(t), writeProgram(t)
	for name, args := range map[string][]string{
		"an image": {"-binary", "arm64=" + cvo},
		"an index": {"-binary", "amd64=" + cvo, "-binary", "arm64=" + cvo},
	} {
		t.Run(name, func(t *testing.T) {
			built, copied := filepath.Join(t.TempDir(), "built"), filepath.Join(t.TempDir(), "copied")
			var out strings.Builder
			require.NoError(t, run(t.Context(), append(args, "-to-oci", built, "-version", "v1"), &out))
			where, digest, _ := strings.Cut(strings.TrimSpace(out.String()), "@")
			assert.Equal(t, built, where)
			out.Reset()
			tag := registry.Host() + "/cvo:" + strings.ReplaceAll(name, " ", "-")
			require.NoError(t, run(t.Context(), []string{"-from-oci", built, "-to-oci", copied, "-as", "v1", "-to-image", tag}, &out))
			assert.Equal(t, copied+"@"+digest+"\n"+registry.Host()+"/cvo@"+digest+"\n", out.String())
			there, err := remote.Head(reference(t, tag))
			require.NoError(t, err)
			assert.Equal(t, digest, there.Digest.String())

			require.NoError(t, os.WriteFile(cvo, []byte("\x7fELF"+name), 0o600))
			out.Reset()
			require.NoError(t, run(t.Context(), append(args, "-to-oci", built, "-version", "v1"), &out), "a version that is not released changes")
			assert.NotContains(t, out.String(), digest)
		})
	}
}

// TestReleaseIncludesTheNodeStageByOneArgument builds a release with the image of the node stage, and reads the manifests that a cluster gets.
func TestReleaseIncludesTheNodeStageByOneArgument(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	registry, dir := fixture.StartRegistry(t), filepath.Join(t.TempDir(), "release")
	var out strings.Builder
	args := []string{"-node", "-binary", "amd64=" + writeProgram(t), "-binary", "arm64=" + writeProgram(t), "-to-image", registry.Host() + "/node:v1"}
	require.NoError(t, run(t.Context(), args, &out))
	stage := strings.TrimSpace(out.String())

	var errs strings.Builder
	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: io.Discard, Err: &errs})
	cmd.SetArgs([]string{"release", "new", "machine-config-operator=" + stage, "--name", "1.1.0", "--no-operator", "--to-dir", dir})
	require.NoError(t, cmd.ExecuteContext(t.Context()), errs.String())

	assert.NotContains(t, errs.String(), "warning: ")
	p, err := payload.Load(os.DirFS(dir), "registry.example.com/release@sha256:"+strings.Repeat("a", 64), payload.Options{})
	require.NoError(t, err)
	assert.Empty(t, p.Warnings)
	var kinds []string
	containers := 0
	for _, m := range p.Manifests {
		if !strings.HasPrefix(m.File, "0000_80_machine-config_") {
			continue // the version operator's
		}
		kinds = append(kinds, m.Object.GetKind())
		for text := range manifest.Texts(m.Object.Object) {
			assert.NotContains(t, text, "0.0.1-snapshot", m)
			assert.NotContains(t, text, "placeholder", m)
		}
		list, _, err := unstructured.NestedSlice(m.Object.Object, "spec", "template", "spec", "containers")
		require.NoError(t, err)
		for _, c := range list {
			containers++
			assert.Equal(t, stage, c.(map[string]any)["image"])
			assert.Contains(t, c.(map[string]any)["env"], map[string]any{"name": "RELEASE_VERSION", "value": "1.1.0"})
		}
		switch m.Object.GetKind() {
		case "ControllerConfig":
			assert.Equal(t, "1.1.0", m.Object.GetAnnotations()[api.ReleaseAnnotation])
		case "ClusterOperator":
			versions, _, err := unstructured.NestedSlice(m.Object.Object, "status", "versions")
			require.NoError(t, err)
			assert.Equal(t, []any{map[string]any{"name": "operator", "version": "1.1.0"}, map[string]any{"name": "operator-image", "version": stage}}, versions)
		}
	}
	assert.Equal(t, 3, containers)
	assert.Equal(t, []string{"ControllerConfig", "MachineConfig", "MachineConfig", "DaemonSet", "DaemonSet", "Deployment", "ClusterOperator"}, kinds[len(kinds)-7:])
	definitions := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return kind != "CustomResourceDefinition" })
	assert.Equal(t, definitions, kinds[1:1+len(definitions)], "after the namespace")
	assert.Len(t, definitions, 7)
}

func TestRunRejectsWrongArguments(t *testing.T) {
	cvo, two := writeProgram(t), t.TempDir()
	path, err := layout.Write(two, empty.Index)
	require.NoError(t, err)
	for range 2 {
		img, err := random.Image(10, 1)
		require.NoError(t, err)
		require.NoError(t, path.AppendImage(img))
	}
	for name, c := range map[string]struct {
		args  []string
		epoch string
		text  string
	}{
		"rejects missing arguments":      {text: "-binary is missing"},
		"rejects a layout of two images": {args: []string{"-from-oci", two}, text: "contains 2 images instead of one"},
		"rejects two sources":            {args: []string{"-from-oci", two, "-binary", "arm64=" + cvo}, text: "omit -binary"},
		"rejects labels of a layout":     {args: []string{"-from-oci", two, "-version", "v1"}, text: "omit -binary, -node, -version and -revision"},
		"rejects an invalid layout":      {args: []string{"-from-oci", t.TempDir()}, text: "opening the OCI layout"},
		"rejects an invalid time":        {args: []string{"-binary", "arm64=" + cvo}, epoch: "yesterday", text: "SOURCE_DATE_EPOCH"},
		"rejects a missing program":      {args: []string{"-binary", "arm64=" + cvo + "x"}, text: "no such file"},
		"rejects a push to a digest": {
			args: []string{"-binary", "arm64=" + cvo, "-to-image", "127.0.0.1:1/cvo@sha256:" + strings.Repeat("0", 64)}, text: "a tag instead of a digest",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SOURCE_DATE_EPOCH", c.epoch)
			require.ErrorContains(t, run(t.Context(), c.args, io.Discard), c.text)
		})
	}
	var list binaries
	require.ErrorContains(t, list.Set(cvo), "architecture=file")
}

func reference(t *testing.T, pullspec string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(pullspec)
	require.NoError(t, err)
	return ref
}
