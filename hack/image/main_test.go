package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/test/fixture"
)

func program(t *testing.T) (file string) {
	t.Helper()
	require.True(t, manifests.Complete(), "run make crds")
	file = filepath.Join(t.TempDir(), "cvo")
	require.NoError(t, os.WriteFile(file, []byte("\x7fELF"), 0o600))
	return file
}

// TestFromLayout: what an engine has built is pushed as it is.
func TestFromLayout(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	registry, cvo := fixture.StartRegistry(t), program(t)
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
		})
	}
}

func TestRunRefuses(t *testing.T) {
	cvo, two := program(t), t.TempDir()
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
		"nothing":                {text: "-binary is missing"},
		"a layout of two images": {args: []string{"-from-oci", two}, text: "holds 2 images, not one"},
		"a layout that is none":  {args: []string{"-from-oci", t.TempDir()}, text: "opening the OCI layout"},
		"a time that is none":    {args: []string{"-binary", "arm64=" + cvo}, epoch: "yesterday", text: "SOURCE_DATE_EPOCH"},
		"a program that is none": {args: []string{"-binary", "arm64=" + cvo + "x"}, text: "no such file"},
		"an image by its digest": {
			args: []string{"-binary", "arm64=" + cvo, "-to-image", "127.0.0.1:1/cvo@sha256:" + strings.Repeat("0", 64)}, text: "pushed to a tag",
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
