package inspect_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	imagev1 "github.com/openshift/api/image/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/golden"
)

// epoch is the creation time in all test data.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// platform is a registry with a release of three components. Two of them are built on the third.
type platform struct {
	registry *fixture.Registry
	images   *image.Reader
	release  release.Image
	files    fstest.MapFS
}

// layer returns an uncompressed, incompressible tar archive with one file of the given size.
func layer(t *testing.T, seed byte, size int) []byte {
	t.Helper()
	content := make([]byte, size)
	state := uint32(seed) + 1
	for i := range content {
		state = state*1664525 + 1013904223
		content[i] = byte(state >> 24)
	}
	return fixtureTar(t, map[string]string{fmt.Sprintf("usr/lib/%d", seed): string(content)})
}

func component(t *testing.T, seeds ...byte) v1.Image {
	t.Helper()
	img, err := empty.Image, error(nil)
	for _, seed := range seeds {
		img, err = fixture.Append(img, layer(t, seed, int(seed)*100_000))
		require.NoError(t, err)
	}
	config, err := img.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", "amd64", v1.Time{Time: epoch.Add(-49 * time.Hour)}
	img, err = mutate.ConfigFile(img, config)
	require.NoError(t, err)
	return img
}

func newPlatform(t *testing.T) *platform {
	t.Helper()
	p := &platform{registry: fixture.StartRegistry(t)}
	stream := imagev1.ImageStream{
		TypeMeta:   metav1.TypeMeta{APIVersion: "image.openshift.io/v1", Kind: "ImageStream"},
		ObjectMeta: metav1.ObjectMeta{Name: "1.2.3", CreationTimestamp: metav1.NewTime(epoch)},
	}
	for _, c := range []struct {
		name        string
		image       v1.Image
		annotations map[string]string
	}{
		{"dns", component(t, 1, 2), map[string]string{
			api.ComponentVersionsLabel:                 "kubernetes=1.30.1,kubectl=9.9.9",
			"io.openshift.build.commit.id":             "abc123",
			"io.openshift.build.source-location":       "https://github.com/example/dns",
			"io.openshift.build.version-display-names": "",
		}},
		{"base", component(t, 1), map[string]string{"io.openshift.build.source-location": "https://gitlab.example/base.git", "io.openshift.build.commit.id": "def456"}},
		{"machine-os", component(t, 3), map[string]string{
			api.ComponentVersionsLabel: "machine-os=9.1.0", "io.openshift.build.version-display-names": "machine-os=Example Linux",
		}},
		{"machine-os-10", component(t, 3, 1), map[string]string{api.ComponentVersionsLabel: "machine-os=10.0.1"}},
	} {
		pushed, err := fixture.Push(t.Context(), p.registry, c.image, "platform/components:"+c.name)
		require.NoError(t, err)
		stream.Spec.Tags = append(stream.Spec.Tags, imagev1.TagReference{
			Name: c.name, Annotations: c.annotations, From: &corev1.ObjectReference{Kind: "DockerImage", Name: pushed.ByDigest()},
		})
	}
	references, err := json.Marshal(stream)
	require.NoError(t, err)
	p.files = fstest.MapFS{}
	for name, text := range manifests() {
		p.files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	p.files["release-manifests/image-references"] = &fstest.MapFile{Data: references}
	p.release, err = fixture.PushRelease(t.Context(), p.registry, p.files, "platform/release:1.2.3")
	require.NoError(t, err)
	p.images, err = image.New(image.Options{})
	require.NoError(t, err)
	return p
}

func manifests() map[string]string {
	files := map[string]string{
		"release-manifests/release-metadata": `{"kind":"cincinnati-metadata-v0","version":"1.2.3","previous":["1.10.0","1.2.0","1.9.1"],
			"metadata":{"url":"https://example.com/1.2.3","flags":{"a":1}}}`,
		"release-manifests/.gitkeep": "",
	}
	for _, name := range []string{
		"manifests/0000_00_operator_00_namespace.yaml", "release-manifests/0000_10_dns_00.yaml", "release-manifests/0000_20_dns_requests.yaml",
		"release-manifests/0000_30_gates.json", "release-manifests/0000_40_shiny.yaml", "release-manifests/0000_50_console.yaml",
		"release-manifests/0000_60_list.yaml",
	} {
		files[name] = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + filepath.Base(name) + `"}}`
	}
	return files
}

func (p *platform) open() *inspect.Release { return inspect.Open(p.images, p.release) }

// golden compares text with a file after replacing variable parts.
func (p *platform) golden(t *testing.T, name, text string) {
	t.Helper()
	golden.Assert(t, name, strings.NewReplacer(p.registry.Host(), "registry.example", string(p.release.Digest), "sha256:release").Replace(text))
}

func TestInfoTextMatchesTheOriginal(t *testing.T) {
	p := newPlatform(t)
	info, err := inspect.Describe(t.Context(), p.open())
	require.NoError(t, err)
	require.NoError(t, info.ReadImages(t.Context(), p.images, nil))
	info.Measure()
	for _, view := range []inspect.View{inspect.ViewDigests, inspect.ViewPullspecs, inspect.ViewCommits, inspect.ViewCommitURLs, inspect.ViewSizes} {
		t.Run("it matches the original's format for "+string(view), func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, info.WriteText(&out, view, epoch))
			p.golden(t, "info-"+string(view), out.String())
		})
	}
	t.Run("it prints lists", func(t *testing.T) {
		for what, prefix := range map[string]string{"name": "base\n", "pullspec": p.registry.Host() + "/platform/components@sha256:", "digest": "sha256:"} {
			var out bytes.Buffer
			require.NoError(t, info.WriteList(&out, what))
			assert.True(t, strings.HasPrefix(out.String(), prefix), out.String())
			assert.Equal(t, 4, strings.Count(out.String(), "\n"))
		}
	})
	t.Run("it returns a component's image, and suggests similar names for a typo", func(t *testing.T) {
		pullspec, err := info.ImageFor("dns")
		require.NoError(t, err)
		assert.Equal(t, info.Images["dns"].Name, pullspec)
		_, err = info.ImageFor("machine")
		assert.ErrorContains(t, err, "similar names: machine-os, machine-os-10")
	})
	t.Run("its JSON has the original's field names", func(t *testing.T) {
		data, err := json.Marshal(info)
		require.NoError(t, err)
		var fields map[string]any
		require.NoError(t, json.Unmarshal(data, &fields))
		for _, name := range []string{"image", "digest", "contentDigest", "listDigest", "config", "metadata", "references", "versions", "displayVersions", "versionsTags", "images", "warnings"} {
			assert.Contains(t, fields, name)
		}
		assert.Nil(t, fields["versions"])
		assert.Equal(t, map[string]any{"Version": "9.1.0", "DisplayName": "Example Linux"}, fields["displayVersions"].(map[string]any)["machine-os"])
	})
}

// originalInfo has the JSON names and types that programs using the original client decode.
type originalInfo struct {
	Image           string            `json:"image"`
	Digest          string            `json:"digest"`
	ContentDigest   string            `json:"contentDigest"`
	ListDigest      string            `json:"listDigest"`
	Config          *originalConfig   `json:"config"`
	Metadata        *originalMetadata `json:"metadata"`
	References      *imagev1.ImageStream
	Versions        map[string]string `json:"versions"`
	DisplayVersions map[string]struct {
		Version     string
		DisplayName string
	} `json:"displayVersions"`
	VersionsTags map[string]string         `json:"versionsTags"`
	Images       map[string]*originalImage `json:"images"`
	Warnings     []string                  `json:"warnings"`
}

type originalMetadata struct {
	Kind     string         `json:"kind"`
	Version  string         `json:"version"`
	Previous []string       `json:"previous"`
	Next     []string       `json:"next,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

type originalImage struct {
	Name          string `json:"name"`
	Digest        string `json:"digest"`
	ContentDigest string `json:"contentDigest"`
	ListDigest    string `json:"listDigest"`
	MediaType     string `json:"mediaType"`
	Layers        []struct {
		MediaType string `json:"mediaType,omitempty"`
		Digest    string `json:"digest,omitempty"`
		Size      int64  `json:"size,omitempty"`
	} `json:"layers"`
	Config *originalConfig `json:"config"`
}

type originalConfig struct {
	ID              *string            `json:"id"`
	Parent          string             `json:"parent,omitempty"`
	Comment         string             `json:"comment,omitempty"`
	Created         time.Time          `json:"created"`
	Container       string             `json:"container,omitempty"`
	ContainerConfig *originalContainer `json:"container_config,omitempty"`
	DockerVersion   string             `json:"docker_version,omitempty"`
	Author          string             `json:"author,omitempty"`
	Config          *originalContainer `json:"config,omitempty"`
	Architecture    string             `json:"architecture,omitempty"`
	Size            int64              `json:"size,omitempty"`
	RootFS          *struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids,omitempty"`
	} `json:"rootfs,omitempty"`
	History []struct {
		Created    time.Time `json:"created"`
		CreatedBy  string    `json:"created_by,omitempty"`
		EmptyLayer bool      `json:"empty_layer,omitempty"`
	} `json:"history,omitempty"`
	OS         string   `json:"os,omitempty"`
	OSVersion  string   `json:"os.version,omitempty"`
	OSFeatures []string `json:"os.features,omitempty"`
}

type originalContainer struct {
	User         string              `json:"User,omitempty"`
	Env          []string            `json:"Env,omitempty"`
	Cmd          []string            `json:"Cmd,omitempty"`
	Entrypoint   []string            `json:"Entrypoint,omitempty"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
	Volumes      map[string]struct{} `json:"Volumes,omitempty"`
	WorkingDir   string              `json:"WorkingDir,omitempty"`
	Labels       map[string]string   `json:"Labels,omitempty"`
}

// TestInfoIsReadByProgramsOfTheOriginal decodes the JSON into the types that programs using the original client have.
func TestInfoIsReadByProgramsOfTheOriginal(t *testing.T) {
	p := newPlatform(t)
	info, err := inspect.Describe(t.Context(), p.open())
	require.NoError(t, err)
	require.NoError(t, info.ReadImages(t.Context(), p.images, nil))
	data, err := json.Marshal(info)
	require.NoError(t, err)
	var read originalInfo
	require.NoError(t, json.Unmarshal(data, &read))

	assert.Nil(t, read.Versions)
	assert.NotEmpty(t, read.VersionsTags)
	tags := map[string]bool{}
	for _, tag := range read.References.Spec.Tags {
		tags[tag.Name] = true
	}
	for name, tag := range read.VersionsTags {
		assert.True(t, tags[tag], "%s: image %s is not in the release", name, tag)
	}
	configs := map[string]*originalConfig{"the release": read.Config}
	for name, img := range read.Images {
		configs[name] = img.Config
		size := int64(0)
		for _, layer := range img.Layers {
			size += layer.Size
		}
		assert.Equal(t, size, img.Config.Size, "%s: wrong size of the layers", name)
	}
	for name, config := range configs {
		require.NotNil(t, config, name)
		assert.NotNil(t, config.ID, "%s: the id must be set, even though current images have none", name)
		assert.NotNil(t, config.ContainerConfig, name)
		assert.Positive(t, config.Size, name)
		assert.NotEmpty(t, config.RootFS.DiffIDs, name)
	}
	assert.Equal(t, "9.1.0", read.DisplayVersions["machine-os"].Version)
}

func TestInfoDescribesAnIndex(t *testing.T) {
	p := newPlatform(t)
	img, err := fixture.ReleaseImage(p.files)
	require.NoError(t, err)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	pushed := pushIndex(t, p.registry, index, "platform/release:multi")
	info, err := inspect.Describe(t.Context(), inspect.Open(p.images, pushed))
	require.NoError(t, err)
	assert.Equal(t, p.release.Digest, info.Digest, "Digest is the image's own digest")
	assert.Equal(t, pushed.Digest, info.ListDigest)
	var out bytes.Buffer
	require.NoError(t, info.WriteText(&out, inspect.ViewDigests, epoch))
	assert.Contains(t, out.String(), "Digest:         "+string(pushed.Digest)+"\n")
	assert.Contains(t, out.String(), "OS/Arch:        multi (linux/amd64)\n")
	assert.Contains(t, out.String(), "Image digest:   "+string(info.Digest)+"\n")
	assert.Contains(t, out.String(), "Pull From: "+pushed.ByDigest()+"\n")
}

func TestInfoReadsOnlyTheTopmostLayer(t *testing.T) {
	p := newPlatform(t)
	p.registry.Reset()
	_, err := inspect.Describe(t.Context(), p.open())
	require.NoError(t, err)
	assert.LessOrEqual(t, p.registry.Count("GET", "/blobs/"), 2, "only the topmost layer and the configuration are read")
}

func TestReadImagesReportsAllErrors(t *testing.T) {
	p := newPlatform(t)
	info, err := inspect.Describe(t.Context(), p.open())
	require.NoError(t, err)
	missing := "sha256:" + strings.Repeat("0", 64)
	info.References.Spec.Tags[0].From.Name = p.registry.Host() + "/platform/components@" + missing
	info.References.Spec.Tags[1].From.Name = p.registry.Host() + "/platform/components:base"
	err = info.ReadImages(t.Context(), p.images, nil)
	require.ErrorContains(t, err, "image dns: ")
	require.ErrorIs(t, err, failure.ErrNotFound)
	require.ErrorContains(t, err, "image base: ")
	require.ErrorIs(t, err, failure.ErrIntegrity, "a pullspec with a tag cannot be verified")
}

func TestReadImagesNeedsNoReachableReleaseRepository(t *testing.T) {
	p := newPlatform(t)
	info, err := inspect.Describe(t.Context(), p.open())
	require.NoError(t, err)
	info.Image = "127.0.0.1:1/platform/release:1.2.3"
	require.NoError(t, info.ReadImages(t.Context(), p.images, nil), "the images are elsewhere")
	assert.Len(t, info.Images, len(info.References.Spec.Tags))
}

func TestReadImagesChecksContent(t *testing.T) {
	p := newPlatform(t)
	info, err := inspect.Describe(t.Context(), p.open())
	require.NoError(t, err)
	p.registry.AddFault(fixture.Fault{
		Match:   fixture.MatchPath(`/platform/components/manifests/`),
		Rewrite: func(body []byte) []byte { return bytes.Replace(body, []byte(`"size":`), []byte(`"size": `), 1) },
	})
	assert.ErrorIs(t, info.ReadImages(t.Context(), p.images, nil), failure.ErrIntegrity)
}

// TestVerifyImagesAcceptsAShallowPath verifies an index that the first path reaches too deep for its image.
func TestVerifyImagesAcceptsAShallowPath(t *testing.T) {
	p := newPlatform(t)
	info, err := inspect.Describe(t.Context(), p.open())
	require.NoError(t, err)
	wrap := func(inner mutate.Appendable) v1.ImageIndex {
		return mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: inner})
	}
	shared := wrap(component(t, 1))
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: wrap(wrap(shared)), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "deep"}}},
		mutate.IndexAddendum{Add: shared, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "shallow"}}},
	)
	info.References.Spec.Tags[0].From.Name = pushIndex(t, p.registry, index, "platform/components:deep").ByDigest()
	err = info.VerifyImages(t.Context(), p.images, nil)
	require.ErrorIs(t, err, failure.ErrLimit)
	require.ErrorContains(t, err, "platform linux/deep: ")
	assert.NotContains(t, err.Error(), "platform linux/shallow")
}

// TestVerifyImagesRejectsAnIndexWithoutImages verifies an index that lists only an attestation.
func TestVerifyImagesRejectsAnIndexWithoutImages(t *testing.T) {
	p := newPlatform(t)
	info, err := inspect.Describe(t.Context(), p.open())
	require.NoError(t, err)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: component(t, 1), Descriptor: v1.Descriptor{
		Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}, Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest"},
	}})
	pushed := pushIndex(t, p.registry, index, "platform/components:attestation")
	info.References.Spec.Tags[0].From.Name = pushed.ByDigest()
	err = info.VerifyImages(t.Context(), p.images, nil)
	require.ErrorIs(t, err, failure.ErrNotFound)
	require.ErrorContains(t, err, "index "+string(pushed.Digest)+" lists no image")
}

func TestOpenReadsAFolder(t *testing.T) {
	p := newPlatform(t)
	whole, flat := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "flat")
	require.NoError(t, os.CopyFS(whole, p.files))
	require.NoError(t, os.CopyFS(flat, os.DirFS(filepath.Join(whole, "release-manifests"))))
	for _, dir := range []string{whole, flat} {
		t.Run("it reads the folder "+filepath.Base(dir), func(t *testing.T) {
			r, err := inspect.OpenFolder(dir)
			require.NoError(t, err)
			assert.Equal(t, dir == flat, r.Flat())
			info, err := inspect.Describe(t.Context(), r)
			require.NoError(t, err)
			var out bytes.Buffer
			require.NoError(t, info.WriteText(&out, inspect.ViewDigests, epoch))
			assert.Contains(t, out.String(), "Version:  1.2.3")
			assert.NotContains(t, out.String(), "Pull From")
			data, err := r.File(t.Context(), "0000_40_shiny.yaml")
			require.NoError(t, err)
			assert.Equal(t, manifests()["release-manifests/0000_40_shiny.yaml"], string(data))
		})
	}
	_, err := inspect.OpenFolder(t.TempDir())
	assert.ErrorIs(t, err, inspect.ErrNoRelease)
}

func TestFileFindsManifestsByName(t *testing.T) {
	p := newPlatform(t)
	for name, want := range map[string]string{
		"release-metadata": "release-manifests/release-metadata", "release-manifests/release-metadata": "release-manifests/release-metadata",
		"0000_00_operator_00_namespace.yaml": "manifests/0000_00_operator_00_namespace.yaml", "/manifests/0000_00_operator_00_namespace.yaml": "manifests/0000_00_operator_00_namespace.yaml",
	} {
		data, err := p.open().File(t.Context(), name)
		require.NoError(t, err, name)
		assert.Equal(t, manifests()[want], string(data))
	}
	_, err := p.open().File(t.Context(), "../nothing")
	require.ErrorContains(t, err, "image did not contain ../nothing")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestContentsPrintsAllFilesInOrder(t *testing.T) {
	p := newPlatform(t)
	var out bytes.Buffer
	require.NoError(t, p.open().WriteContents(t.Context(), &out))
	text := out.String()
	assert.True(t, strings.HasPrefix(text, "# image-references\n{"))
	position := -1
	for _, name := range []string{"image-references", "release-metadata", ".gitkeep", "0000_10_dns_00.yaml", "0000_60_list.yaml"} {
		next := strings.Index(text, "# "+filepath.Base(name)+"\n")
		assert.Greater(t, next, position, name)
		position = max(position, next)
	}
}
