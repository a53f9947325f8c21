package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/fixture"
)

const list = `kind: ImageStream
apiVersion: image.openshift.io/v1
spec:
  tags:
  - name: first
    from: {kind: DockerImage, name: registry.example.com/first:1}
    annotations: {io.openshift.build.versions: "kubernetes=1.37.2"}
  - name: second
    from: {kind: DockerImage, name: registry.example.com/second:1}
`

// platforms writes lists of images, by version, and returns their folder.
func platforms(t *testing.T, lists map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for version, content := range lists {
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, version, "image-references"), []byte(content), 0o600))
	}
	return dir
}

func binary(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(file, []byte("\x7fELF"), 0o600))
	return file
}

func TestEveryComponentMatchesItsMapping(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	registry := fixture.StartRegistry(t)
	program, dir, mappings := binary(t), platforms(t, map[string]string{"1.0.0": list, "1.1.0": list}), filepath.Join(t.TempDir(), "new")
	push := func() map[string]string {
		var out strings.Builder
		require.NoError(t, run(t.Context(), []string{
			"-binary", program, "-architecture", "arm64", "-platforms", dir, "-to", registry.Host() + "/components/", "-mappings", mappings,
		}, &out))
		found := map[string]string{}
		for line := range strings.Lines(out.String()) {
			file := strings.TrimSpace(line)
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			found[filepath.Base(file)] = string(data)
		}
		return found
	}
	first := push()
	assert.Equal(t, first, push(), "the same platform has the same images")
	require.Len(t, first, 2)

	layers := map[v1.Hash]bool{}
	for _, version := range []string{"1.0.0", "1.1.0"} {
		lines := strings.Split(strings.TrimSpace(first[version+".mapping"]), "\n")
		require.Len(t, lines, 2)
		for i, want := range []map[string]string{
			{"org.opencontainers.image.title": "first", "io.openshift.build.versions": "kubernetes=1.37.2"},
			{"org.opencontainers.image.title": "second"},
		} {
			want["org.opencontainers.image.version"] = version
			component, pullspec, _ := strings.Cut(lines[i], "=")
			assert.Equal(t, want["org.opencontainers.image.title"], component)
			ref, err := name.NewDigest(pullspec)
			require.NoError(t, err)
			img, err := remote.Image(ref, remote.WithContext(t.Context()))
			require.NoError(t, err)
			config, err := img.ConfigFile()
			require.NoError(t, err)
			assert.Equal(t, want, config.Config.Labels)
			assert.Equal(t, "arm64", config.Architecture)
			assert.Equal(t, int64(1700000000), config.Created.Unix())
			manifest, err := img.Manifest()
			require.NoError(t, err)
			for _, layer := range manifest.Layers {
				layers[layer.Digest] = true
			}
		}
	}
	assert.Len(t, layers, 1, "nodes pull the program only once")
}

func TestRunRejectsWrongArguments(t *testing.T) {
	registry := fixture.StartRegistry(t)
	program := binary(t)
	broken, err := json.Marshal(map[string]string{"kind": "Pod", "apiVersion": "v1"})
	require.NoError(t, err)
	to := registry.Host() + "/components"
	good := platforms(t, map[string]string{"1.0.0": list})
	for name, c := range map[string]struct {
		args []string
		text string
	}{
		"rejects a missing registry":     {[]string{"-binary", program, "-mappings", t.TempDir()}, "are required"},
		"rejects a folder without lists": {[]string{"-binary", program, "-to", to, "-mappings", t.TempDir(), "-platforms", t.TempDir()}, "no */image-references"},
		"rejects a list of another kind": {[]string{"-binary", program, "-to", to, "-mappings", t.TempDir(), "-platforms", platforms(t, map[string]string{"1.0.0": string(broken)})}, "1.0.0/image-references"},
		"rejects a missing program":      {[]string{"-binary", program + "x", "-to", to, "-mappings", t.TempDir(), "-platforms", good}, "no such file"},
		"rejects an invalid authority":   {[]string{"-binary", program, "-to", to, "-mappings", t.TempDir(), "-platforms", good, "-certificate-authority", program}, "no PEM certificate"},
		"rejects invalid credentials":    {[]string{"-binary", program, "-to", to, "-mappings", t.TempDir(), "-platforms", good, "-registry-config", program}, "-registry-config"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, run(t.Context(), c.args, io.Discard), c.text)
		})
	}
	assert.Empty(t, registry.Requests(), "nothing of a rejected image is pushed")
}
