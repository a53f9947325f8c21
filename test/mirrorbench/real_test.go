package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/ring"
)

// TestRealReleaseIsMirroredWhole mirrors a real payload with an image for each of its components, to a registry, to a folder and from there to
// another registry. Without the source, all images must be there. The component images are those of the benchmark, with small layers.
func TestRealReleaseIsMirroredWhole(t *testing.T) {
	ring.NeedOuter(t)
	const version, shrink = "4.23.0", 64
	payload := os.DirFS(filepath.Join(fixture.Testdata(t), "payloads", version))
	p := &prepared{dir: t.TempDir()}
	p.source = registryFor(t)
	p.fillReal(t, payload, version, shrink)
	require.NoError(t, p.write())
	require.Greater(t, len(p.Pullspecs), 190)

	to, carried := registryFor(t).host+"/"+targetRepository, filepath.Join(p.dir, "carried")
	runCvo(t, "release", "mirror", p.Release, "--to", to, "--trust", p.trust, "--quiet")
	runCvo(t, "release", "mirror", p.Release, "--to-dir", carried, "--trust", p.trust, "--quiet")
	require.NoError(t, p.source.stop())
	far := registryFor(t).host + "/" + targetRepository
	runCvo(t, "release", "mirror", "--from-dir", carried, "--to", far, "--trust", p.trust, "--quiet")

	folder, err := ocilayout.FromPath(carried)
	require.NoError(t, err)
	inFolder := func(_ string, digest v1.Hash) (v1.Image, error) { return folder.Image(digest) }
	inRegistry := func(place string, digest v1.Hash) (v1.Image, error) {
		ref, err := name.NewDigest(place + "@" + digest.String())
		if err != nil {
			return nil, err
		}
		return remote.Image(ref, remote.WithContext(t.Context()))
	}
	for place, image := range map[string]func(string, v1.Hash) (v1.Image, error){to: inRegistry, far: inRegistry, carried: inFolder} {
		p.requireWhole(t, place, image)
		out := runCvo(t, "release", "info", place+":"+version+"-x86_64", "--verify", "--trust", p.trust)
		assert.Contains(t, out, string(p.Digest))
		assert.Contains(t, out, fmt.Sprintf("Checked %d images in %s\n", len(p.Pullspecs)-1, place))
	}
}

func registryFor(t *testing.T) *running {
	t.Helper()
	r, err := startRegistry(t.Context(), 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.stop() })
	return r
}

// fillReal fills the source with the payload and one component image for each that it names. It replaces their pullspecs in all files.
func (p *prepared) fillReal(t *testing.T, payload fs.FS, version string, shrink int) {
	t.Helper()
	const references = "release-manifests/image-references"
	data, err := fs.ReadFile(payload, references)
	require.NoError(t, err)
	var stream struct {
		Spec struct {
			Tags []struct {
				Name string
				From struct{ Name string }
			}
		}
	}
	require.NoError(t, json.Unmarshal(data, &stream))
	sizes, replacements := map[v1.Hash]int64{}, []string{}
	p.Pullspecs = []string{""}
	for i, tag := range stream.Spec.Tags {
		img, err := componentImage(i, shrink)
		require.NoError(t, err)
		digest, err := count(sizes, img)
		require.NoError(t, err)
		require.NoError(t, push(t.Context(), img, fmt.Sprintf("%s/%s:%s", p.source.host, componentsRepository, tag.Name)))
		pullspec := fmt.Sprintf("%s/%s@%s", p.source.host, componentsRepository, digest)
		p.Pullspecs, replacements = append(p.Pullspecs, pullspec), append(replacements, tag.From.Name, pullspec)
	}
	img, err := fixture.ReleaseImage(replaced(t, payload, strings.NewReplacer(replacements...)))
	require.NoError(t, err)
	p.Digest, err = count(sizes, img)
	require.NoError(t, err)
	p.Release = fmt.Sprintf("%s/%s:%s-x86_64", p.source.host, releaseRepository, version)
	require.NoError(t, push(t.Context(), img, p.Release))
	p.Pullspecs[0] = release.Image{Pullspec: p.Release, Digest: p.Digest}.ByDigest()
}

// replaced returns the files of a folder with replacements in their texts.
func replaced(t *testing.T, folder fs.FS, replacer *strings.Replacer) fs.FS {
	t.Helper()
	tree := fstest.MapFS{}
	require.NoError(t, fs.WalkDir(folder, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(folder, file)
		tree[file] = &fstest.MapFile{Data: []byte(replacer.Replace(string(data))), Mode: 0o444}
		return err
	}))
	return tree
}

// requireWhole reads all images of the release at a place by their original digests. The readers compare each content with its digest.
func (p *prepared) requireWhole(t *testing.T, place string, image func(place string, digest v1.Hash) (v1.Image, error)) {
	t.Helper()
	read := map[v1.Hash]bool{}
	for _, pullspec := range p.Pullspecs {
		_, hex, _ := strings.Cut(pullspec, "@")
		digest, err := v1.NewHash(hex)
		require.NoError(t, err)
		img, err := image(place, digest)
		require.NoError(t, err, "%s in %s", pullspec, place)
		_, err = img.RawConfigFile()
		require.NoError(t, err, "%s in %s", pullspec, place)
		layers, err := img.Layers()
		require.NoError(t, err)
		for _, l := range layers {
			digest, err := l.Digest()
			require.NoError(t, err)
			if read[digest] {
				continue
			}
			read[digest] = true
			content, err := l.Compressed()
			require.NoError(t, err, "layer %s in %s", digest, place)
			got, _, err := v1.SHA256(content)
			require.NoError(t, err, "layer %s in %s", digest, place)
			require.NoError(t, content.Close())
			require.Equal(t, digest, got, "a layer in %s", place)
		}
	}
}

// runCvo runs cvo as another process, which must succeed, and returns all its output.
func runCvo(t *testing.T, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), self, append([]string{"cvo"}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}
