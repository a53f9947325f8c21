package cli_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	imagev1 "github.com/openshift/api/image/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/test/fixture"
)

var sourceTime = time.Date(2026, 4, 1, 8, 30, 0, 0, time.UTC)

// componentImage returns an image with one layer for each map of files, in this order.
func componentImage(t *testing.T, labels map[string]string, layers ...map[string]string) v1.Image {
	t.Helper()
	img := empty.Image
	for _, files := range layers {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for _, file := range slices.Sorted(maps.Keys(files)) {
			require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file, Mode: 0o644, Size: int64(len(files[file])), ModTime: sourceTime}))
			_, err := w.Write([]byte(files[file]))
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		var err error
		img, err = fixture.Append(img, archive.Bytes())
		require.NoError(t, err)
	}
	img, err := mutate.Config(img, v1.Config{Labels: labels})
	require.NoError(t, err)
	return img
}

// namespace returns a manifest for every cluster.
func namespace(name, more string) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + name + "\n  annotations:\n    " +
		api.IncludePrefix + api.DefaultProfile + ": \"true\"\n" + more
}

// platform is a registry with the images of a small platform, by digest.
type platform struct {
	*fixture.Registry
	images map[string]string
}

func newPlatform(t *testing.T) *platform {
	t.Helper()
	p := &platform{Registry: fixture.StartRegistry(t), images: map[string]string{}}
	p.push(t, "cluster-version-operator", operatorBase(t, "amd64"))
	p.push(t, "dns", componentImage(t, map[string]string{
		"io.openshift.build.commit.id": "abc", "io.openshift.build.source-location": "https://git.example/dns",
		api.ComponentVersionsLabel: "resolver=9.1.0+build.3", "other": "x",
	}, map[string]string{"usr/bin/dns": "binary"}))
	p.push(t, "dns-operator", p.operator(t, "v1"))
	p.push(t, "unused", componentImage(t, nil, map[string]string{"usr/bin/unused": "binary"}))
	return p
}

// operatorBase returns an image to build releases on.
func operatorBase(t *testing.T, architecture string) v1.Image {
	t.Helper()
	img := componentImage(t, map[string]string{"of": "the base"}, map[string]string{
		"cvo": "binary for " + architecture, "manifests/0000_00_cluster-version-operator_00.yaml": namespace("cvo", ""),
	})
	config, err := img.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config.Entrypoint = "linux", architecture, []string{"/cvo"}
	img, err = mutate.ConfigFile(img, config)
	require.NoError(t, err)
	return img
}

// operator returns an image with manifests in two layers. The upper layer deletes one of them and replaces another.
func (p *platform) operator(t *testing.T, text string) v1.Image {
	t.Helper()
	return componentImage(t, map[string]string{api.OperatorLabel: "true"},
		map[string]string{
			"manifests/image-references": `{"kind":"ImageStream","spec":{"tags":[{"name":"dns","from":{"kind":"DockerImage","Name":"placeholder/dns"}}]}}`,
			"manifests/0000_30_dns_00.yaml": namespace("dns", "    image: placeholder/dns:v1\n    version: 0.0.1-snapshot\n"+
				"    resolver: 0.0.1-snapshot-resolver\n    text: "+text+"\n"),
			"manifests/10_more.yaml": namespace("replaced", ""),
			"manifests/gone.yaml":    namespace("gone", ""),
		},
		map[string]string{"manifests/10_more.yaml": namespace("dns-more", ""), "manifests/.wh.gone.yaml": ""},
		map[string]string{"usr/bin/operator": "binary"},
	)
}

func (p *platform) push(t *testing.T, component string, img v1.Image) string {
	t.Helper()
	pushed, err := fixture.Push(t.Context(), p.Registry, img, component+":v1")
	require.NoError(t, err)
	p.images[component] = pushed.ByDigest()
	return p.images[component]
}

// stream writes an image stream with all images.
func (p *platform) stream(t *testing.T) string {
	t.Helper()
	stream := imagev1.ImageStream{}
	stream.Kind, stream.APIVersion, stream.Name, stream.Namespace = "ImageStream", "image.openshift.io/v1", "platform", "ci"
	for _, component := range slices.Sorted(maps.Keys(p.images)) {
		tag := imagev1.TagReference{Name: component}
		_, digest, _ := strings.Cut(p.images[component], "@")
		stream.Spec.Tags = append(stream.Spec.Tags, tag)
		stream.Status.Tags = append(stream.Status.Tags, imagev1.NamedTagEventList{
			Tag: component, Items: []imagev1.TagEvent{{DockerImageReference: p.images[component], Image: digest}, {DockerImageReference: "old"}},
		})
	}
	data, err := json.Marshal(stream)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "stream.json")
	require.NoError(t, os.WriteFile(file, data, 0o644))
	return file
}

// newRelease runs the command and returns the digest that it prints.
func newRelease(t *testing.T, args ...string) (digest, stderr string) {
	t.Helper()
	out, errs, err := runCvo(t, append([]string{"release", "new"}, args...)...)
	require.NoError(t, err, errs)
	require.Regexp(t, `^sha256:[0-9a-f]{64} \S+ \S+Z\n$`, out)
	digest, _, _ = strings.Cut(out, " ")
	return digest, errs
}

func pulled(t *testing.T, pullspec string) v1.Image {
	t.Helper()
	ref, err := name.ParseReference(pullspec)
	require.NoError(t, err)
	img, err := remote.Image(ref, remote.WithContext(t.Context()))
	require.NoError(t, err)
	require.NoError(t, validate.Image(img))
	return img
}

// references reads the image references of a release.
func references(t *testing.T, pullspec string) (stream imagev1.ImageStream, byName map[string]imagev1.TagReference) {
	t.Helper()
	out, _, err := runCvo(t, "release", "extract", pullspec, "--file", "image-references")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(out), &stream))
	byName = map[string]imagev1.TagReference{}
	for _, tag := range stream.Spec.Tags {
		byName[tag.Name] = tag
	}
	return stream, byName
}

func extracted(t *testing.T, pullspec, file string) string {
	t.Helper()
	out, _, err := runCvo(t, "release", "extract", pullspec, "--file", file)
	require.NoError(t, err)
	return out
}

func TestReleaseNewReadsAnImageStream(t *testing.T) {
	p := newPlatform(t)
	to := p.Host() + "/release:1.0.0"
	digest, errs := newRelease(t, "-f", p.stream(t), "--name", "1.0.0", "--previous", "0.9.0", "--to-image", to)

	t.Run("uses the newest image of each tag and omits unreferenced images", func(t *testing.T) {
		stream, tags := references(t, to)
		assert.Equal(t, []string{"cluster-version-operator", "dns", "dns-operator"}, slices.Sorted(maps.Keys(tags)))
		for component, tag := range tags {
			assert.Equal(t, p.images[component], tag.From.Name)
		}
		assert.Equal(t, map[string]string{"release.openshift.io/from-image-stream": "ci/platform"}, stream.Annotations)
		assert.Equal(t, sourceTime, stream.CreationTimestamp.UTC(), "the time comes from the newest manifest")
	})
	t.Run("copies the source of each image", func(t *testing.T) {
		_, tags := references(t, to)
		assert.Equal(t, map[string]string{
			"io.openshift.build.commit.id": "abc", "io.openshift.build.source-location": "https://git.example/dns", api.ComponentVersionsLabel: "resolver=9.1.0+build.3",
		}, tags["dns"].Annotations)
	})
	t.Run("replaces the placeholders of images and versions", func(t *testing.T) {
		file := extracted(t, to, "0000_30_dns_00.yaml")
		assert.Contains(t, file, "image: "+p.images["dns"]+"\n")
		assert.Contains(t, file, "version: 1.0.0\n")
		assert.Contains(t, file, "resolver: 9.1.0\n")
	})
	t.Run("reads all layers of an image, including deletions in upper layers", func(t *testing.T) {
		assert.Contains(t, extracted(t, to, "0000_50_dns-operator_10_more.yaml"), "name: dns-more")
		_, _, err := runCvo(t, "release", "extract", to, "--file", "0000_50_dns-operator_gone.yaml")
		assert.ErrorContains(t, err, "did not contain")
	})
	t.Run("builds on the operator's image", func(t *testing.T) {
		config, err := pulled(t, to).ConfigFile()
		require.NoError(t, err)
		_, base, _ := strings.Cut(p.images["cluster-version-operator"], "@")
		assert.Equal(t, map[string]string{api.ReleaseLabel: "1.0.0", api.ReleaseBaseLabel: base}, config.Config.Labels)
		assert.Equal(t, []string{"/cvo"}, config.Config.Entrypoint)
	})
	t.Run("reports the images that it reads", func(t *testing.T) {
		_, dns, _ := strings.Cut(p.images["dns"], "@")
		assert.Contains(t, errs, "info: Loading "+dns+" dns\n")
		assert.Contains(t, errs, "info: Included 3 images from 1 input operators into the release\n")
		assert.Contains(t, errs, "info: Pushed to "+to+"\n")
		assert.NotContains(t, errs, "warning: ")
	})
	t.Run("reads from standard input", func(t *testing.T) {
		data, err := os.ReadFile(p.stream(t))
		require.NoError(t, err)
		var out, errOut bytes.Buffer
		cmd := cli.New(command.Streams{In: bytes.NewReader(data), Out: &out, Err: &errOut})
		cmd.SetArgs([]string{"release", "new", "-f", "-", "--name", "1.0.0", "--previous", "0.9.0", "--dry-run"})
		require.NoError(t, cmd.ExecuteContext(t.Context()), errOut.String())
		assert.True(t, strings.HasPrefix(out.String(), digest))
	})
	t.Run("keeps included images and drops excluded images", func(t *testing.T) {
		_, _, err := runCvo(t, "release", "new", "-f", p.stream(t), "--exclude", "dns", "--dry-run")
		require.ErrorContains(t, err, `no input image tag named "dns"`)
		out, _, err := runCvo(t, "release", "new", "-f", p.stream(t), "--exclude", "dns-operator", "--include", "unused", "-o", "yaml")
		require.NoError(t, err)
		var stream imagev1.ImageStream
		require.NoError(t, yaml.Unmarshal([]byte(out), &stream))
		require.Len(t, stream.Spec.Tags, 2)
		assert.Equal(t, "unused", stream.Spec.Tags[1].Name)
		assert.Regexp(t, `^0\.0\.1-\d{4}-\d\d-\d\d-\d{6}$`, stream.Name, "a release gets a default name")
	})
}

func TestReleaseNewReproducesARelease(t *testing.T) {
	p := newPlatform(t)
	to := p.Host() + "/release:1.0.0"
	oci := filepath.Join(t.TempDir(), "oci")
	digest, _ := newRelease(t, "-f", p.stream(t), "--name", "1.0.0", "--previous", "0.9.0", "--next", "2.0.0", "--metadata", `{"url":"https://x","n":12345678901234567890}`,
		"--component-versions", "kernel=6.1.0", "--component-versions-display-names", "kernel=Linux (LTS)", "--include", "unused", "--to-image", to, "--to-oci", oci)
	for _, from := range []string{to, p.Host() + "/release@" + digest, oci, oci + ":1.0.0"} {
		t.Run("reproduces the release from "+strings.TrimPrefix(from, oci), func(t *testing.T) {
			again, errs := newRelease(t, "--from-release", from, "--dry-run")
			assert.Equal(t, digest, again)
			assert.Contains(t, errs, "info: Included 4 images from 1 input operators")
		})
	}
	t.Run("does not contact the components' registry with --offline", func(t *testing.T) {
		_, _, err := runCvo(t, "release", "new", "--from-release", to, "--offline", "--dry-run")
		require.ErrorContains(t, err, "0000_30_dns_00.yaml: no component contains it")
		assert.Equal(t, command.ExitRefused, command.ExitCode(err))
	})
	t.Run("names the file that another program changed", func(t *testing.T) {
		img := pulled(t, to)
		changed := changeRelease(t, img, func(name string, data []byte) []byte {
			if name == "release-manifests/0000_30_dns_00.yaml" {
				return bytes.Replace(data, []byte("text: v1"), []byte("text: v2"), 1)
			}
			return data
		})
		p.push(t, "changed", changed)
		_, _, err := runCvo(t, "release", "new", "--from-release", p.images["changed"], "--dry-run")
		require.ErrorContains(t, err, "the release could not be reproduced from its inputs")
		require.ErrorContains(t, err, "0000_30_dns_00.yaml: line 10 differs")
		assert.NotContains(t, err.Error(), "0000_50_dns-operator_10_more.yaml")
		assert.Equal(t, command.ExitRefused, command.ExitCode(err))
	})
	t.Run("reports the difference in the configuration", func(t *testing.T) {
		config, err := pulled(t, to).ConfigFile()
		require.NoError(t, err)
		config = config.DeepCopy()
		config.Config.Entrypoint = []string{"/evil"}
		changed, err := mutate.ConfigFile(pulled(t, to), config)
		require.NoError(t, err)
		p.push(t, "changed", changed)
		_, _, err = runCvo(t, "release", "new", "--from-release", p.images["changed"], "--dry-run")
		assert.ErrorContains(t, err, `configuration: config.Entrypoint: original ["/evil"], rebuilt ["/cvo"]`)
	})
	t.Run("rejects an image that is not a release", func(t *testing.T) {
		_, _, err := runCvo(t, "release", "new", "--from-release", p.images["dns"], "--dry-run")
		assert.ErrorContains(t, err, "so the image is not a release")
	})
}

// changeRelease returns a release whose last layer is rewritten by change.
func changeRelease(t *testing.T, img v1.Image, change func(name string, data []byte) []byte) v1.Image {
	t.Helper()
	layers, err := img.Layers()
	require.NoError(t, err)
	content, err := layers[len(layers)-1].Uncompressed()
	require.NoError(t, err)
	defer content.Close()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if err != nil {
			break
		}
		var data bytes.Buffer
		_, err = data.ReadFrom(r)
		require.NoError(t, err)
		out := change(header.Name, data.Bytes())
		header.Size = int64(len(out))
		require.NoError(t, w.WriteHeader(header))
		_, err = w.Write(out)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	config, err := img.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.RootFS.DiffIDs, config.History = nil, nil
	changed := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.DockerManifestSchema2), types.DockerConfigJSON)
	changed, err = mutate.ConfigFile(changed, config)
	require.NoError(t, err)
	changed, err = mutate.AppendLayers(changed, layers[:len(layers)-1]...)
	require.NoError(t, err)
	changed, err = fixture.Append(changed, archive.Bytes())
	require.NoError(t, err)
	return changed
}

func TestReleaseNewReplacesNamedImages(t *testing.T) {
	p := newPlatform(t)
	old := p.Host() + "/release:1.0.0"
	digest, _ := newRelease(t, "-f", p.stream(t), "--name", "1.0.0", "--previous", "0.9.0", "--metadata", `{"url":"https://x"}`, "--to-image", old)
	t.Run("replaces one image and keeps the rest", func(t *testing.T) {
		to := p.Host() + "/release:1.0.1"
		mine := p.push(t, "mine", componentImage(t, map[string]string{api.ComponentVersionsLabel: "resolver=9.2.0"}, map[string]string{"x": "y"}))
		_, errs := newRelease(t, "--from-release", old, "--name", "1.0.1", "dns="+p.Host()+"/mine:v1", "--to-image", to)
		stream, tags := references(t, to)
		assert.Equal(t, mine, tags["dns"].From.Name, "a tag becomes a digest")
		assert.Equal(t, "true", tags["dns"].Annotations["io.openshift.release.override"])
		assert.Empty(t, tags["dns"].Annotations["io.openshift.build.commit.id"], "annotations of the old image are dropped")
		assert.Empty(t, tags["dns-operator"].Annotations)
		assert.Equal(t, p.Host()+"/release@"+digest, stream.Annotations["release.openshift.io/from-release"])
		file := extracted(t, to, "0000_30_dns_00.yaml")
		assert.Contains(t, file, "image: "+mine+"\n")
		assert.Contains(t, file, "version: 1.0.1\n")
		assert.Contains(t, file, "resolver: 9.2.0\n")
		assert.JSONEq(t, `{"kind":"cincinnati-metadata-v0","version":"1.0.1","previous":["0.9.0"],"metadata":{"url":"https://x"}}`, extracted(t, to, "release-metadata"))
		assert.Contains(t, errs, "info: Loading override "+p.Host()+"/mine:v1 dns\n")
		config, err := pulled(t, to).ConfigFile()
		require.NoError(t, err)
		_, base, _ := strings.Cut(p.images["cluster-version-operator"], "@")
		assert.Equal(t, base, config.Config.Labels[api.ReleaseBaseLabel])

		again, _ := newRelease(t, "--from-release", to, "--dry-run")
		assert.Equal(t, remoteDigest(t, to), again, "a release derived from another is reproducible")
	})
	t.Run("replaces an operator and its manifests, and reads overrides from a file", func(t *testing.T) {
		p.push(t, "operator-v2", p.operator(t, "v2"))
		file := filepath.Join(t.TempDir(), "mapping")
		require.NoError(t, os.WriteFile(file, []byte("# mine\n\n dns-operator="+p.Host()+"/operator-v2:v1\n"), 0o644))
		to := p.Host() + "/release:1.0.2"
		newRelease(t, "--from-release", old, "--name", "1.0.2", "--mapping-file", file, "--to-image", to)
		assert.Contains(t, extracted(t, to, "0000_30_dns_00.yaml"), "text: v2")
	})
	t.Run("builds on the replaced image of the operator", func(t *testing.T) {
		p.push(t, "cvo2", operatorBase(t, "arm64"))
		to := p.Host() + "/release:1.0.3"
		newRelease(t, "--from-release", old, "--name", "1.0.3", "cluster-version-operator="+p.Host()+"/cvo2:v1", "--to-image", to)
		config, err := pulled(t, to).ConfigFile()
		require.NoError(t, err)
		_, base, _ := strings.Cut(p.images["cvo2"], "@")
		assert.Equal(t, base, config.Config.Labels[api.ReleaseBaseLabel])
		assert.Equal(t, "arm64", config.Architecture)
	})
	t.Run("warns about an unreferenced image", func(t *testing.T) {
		_, errs := newRelease(t, "--from-release", old, "--name", "1.0.4", "extra="+p.images["unused"], "--dry-run")
		assert.Contains(t, errs, "warning: Image extra is omitted because no component refers to it: keep it with --include extra")
	})
}

func remoteDigest(t *testing.T, pullspec string) string {
	t.Helper()
	digest, err := pulled(t, pullspec).Digest()
	require.NoError(t, err)
	return digest.String()
}

func TestReleaseNewReproducesAReleaseBuiltFromFolders(t *testing.T) {
	p := newPlatform(t)
	old := p.Host() + "/release:1.0.0"
	folder := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "ntp"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "ntp", "ns.yaml"), []byte(namespace("ntp", "    version: 0.0.1-snapshot\n")), 0o644))
	digest, _ := newRelease(t, "-f", p.stream(t), "--from-dir", folder, "--name", "1.0.0", "--created", "2026-05-01T00:00:00Z", "--to-image", old)

	t.Run("reproduces a release from its folder", func(t *testing.T) {
		again, _ := newRelease(t, "--from-release", old, "--from-dir", folder, "--dry-run")
		assert.Equal(t, digest, again)
		_, _, err := runCvo(t, "release", "new", "--from-release", old, "--dry-run")
		assert.ErrorContains(t, err, "0000_50_ntp_ns.yaml: no component contains it: add its folder with --from-dir")
	})
	t.Run("rejects a rebuild that drops a manifest from a folder", func(t *testing.T) {
		args := []string{"--from-release", old, "--name", "1.0.1", "dns=" + p.images["unused"], "--component-versions", "resolver=1.0.0", "--dry-run"}
		_, _, err := runCvo(t, append([]string{"release", "new"}, args...)...)
		require.ErrorContains(t, err, "1 manifests of "+old+" do not come from its images, such as 0000_50_ntp_ns.yaml")
		assert.Equal(t, command.ExitRefused, command.ExitCode(err))
		newRelease(t, append(args, "--from-dir", folder)...)
	})
	t.Run("rebuilds on a base outside the release's images", func(t *testing.T) {
		p.push(t, "base", operatorBase(t, "s390x"))
		to := p.Host() + "/based:1.0.0"
		digest, _ := newRelease(t, "--from-dir", folder, "--name", "1.0.0", "--to-image-base", p.Host()+"/base:v1", "--to-image", to)
		again, _ := newRelease(t, "--from-release", to, "--from-dir", folder, "--dry-run")
		assert.Equal(t, digest, again)

		next := p.Host() + "/based:1.0.1"
		newRelease(t, "--from-release", to, "--from-dir", folder, "--name", "1.0.1", "--to-image", next)
		config, err := pulled(t, next).ConfigFile()
		require.NoError(t, err)
		_, base, _ := strings.Cut(p.images["base"], "@")
		assert.Equal(t, base, config.Config.Labels[api.ReleaseBaseLabel])
		assert.Len(t, config.RootFS.DiffIDs, 2, "the new release lacks the layer of the old one")
	})
	t.Run("recognizes the kinds in a base", func(t *testing.T) {
		newRelease(t, "--from-dir", filepath.Join(examples, "1.0.0"), "--name", "1.0.0", "--offline",
			"--to-image-base", p.Host()+"/base:v1", "--dry-run")
	})
	t.Run("reproduces a release without a base", func(t *testing.T) {
		oci := filepath.Join(t.TempDir(), "oci")
		digest, _ := newRelease(t, "--from-dir", folder, "--name", "1.0.0", "--operator-manifests", operatorSet(t), "--to-oci", oci)
		again, _ := newRelease(t, "--from-release", oci, "--from-dir", folder, "--dry-run")
		assert.Equal(t, digest, again)
	})
}

func TestReleaseNewKeepsAllPlatforms(t *testing.T) {
	p := newPlatform(t)
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	digests := map[string]string{}
	for _, architecture := range []string{"amd64", "arm64"} {
		base := operatorBase(t, architecture)
		digest, err := base.Digest()
		require.NoError(t, err)
		digests[architecture] = digest.String()
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: base, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
	}
	attestation := componentImage(t, nil, map[string]string{"x": "y"})
	index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: attestation, Descriptor: v1.Descriptor{
		Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}, Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest"},
	}})
	tag, err := name.NewTag(p.Host() + "/cvo-multi:v1")
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(tag, index))

	to, oci := p.Host()+"/release:1.0.0", filepath.Join(t.TempDir(), "oci")
	digest, _ := newRelease(t, "-f", p.stream(t), "cluster-version-operator="+tag.String(), "--keep-manifest-list", "--name", "1.0.0", "--to-image", to, "--to-oci", oci)
	pushed, err := name.ParseReference(to)
	require.NoError(t, err)
	got, err := remote.Index(pushed)
	require.NoError(t, err)
	t.Run("creates an index with a release for each platform", func(t *testing.T) {
		require.NoError(t, validate.Index(got))
		hash, err := got.Digest()
		require.NoError(t, err)
		assert.Equal(t, digest, hash.String(), "the digest of the release is the digest of the index")
		list, err := got.IndexManifest()
		require.NoError(t, err)
		assert.Equal(t, types.DockerManifestList, list.MediaType)
		require.Len(t, list.Manifests, 2)
		var last []v1.Hash
		for _, m := range list.Manifests {
			assert.Equal(t, types.DockerManifestSchema2, m.MediaType)
			img, err := got.Image(m.Digest)
			require.NoError(t, err)
			config, err := img.ConfigFile()
			require.NoError(t, err)
			assert.Equal(t, m.Platform.Architecture, config.Architecture)
			assert.Equal(t, digests[m.Platform.Architecture], config.Config.Labels[api.ReleaseBaseLabel])
			manifest, err := img.Manifest()
			require.NoError(t, err)
			last = append(last, manifest.Layers[len(manifest.Layers)-1].Digest)
		}
		assert.Equal(t, last[0], last[1], "all platforms have the same layer")
	})
	for _, from := range []string{to, oci} {
		t.Run("reproduces the index from "+filepath.Base(from), func(t *testing.T) {
			again, _ := newRelease(t, "--from-release", from, "--keep-manifest-list", "--dry-run")
			assert.Equal(t, digest, again)
		})
	}
	t.Run("reproduces one platform of an index", func(t *testing.T) {
		again, _ := newRelease(t, "--from-release", to, "--platform", "linux/arm64", "--dry-run")
		list, err := got.IndexManifest()
		require.NoError(t, err)
		assert.Equal(t, list.Manifests[1].Digest.String(), again)
	})
	t.Run("requires a base", func(t *testing.T) {
		_, _, err := runCvo(t, "release", "new", "--from-dir", filepath.Join(examples, "1.0.0"), "--keep-manifest-list", "--dry-run")
		require.ErrorContains(t, err, "there is no base image")
		assert.Equal(t, command.ExitUsage, command.ExitCode(err))
	})
}

func TestReleaseNewReadsOperatorLabels(t *testing.T) {
	p := newPlatform(t)
	for value, operators := range map[string]string{"true": "1", "1": "1", "T": "1", "false": "0", "0": "0", "": "0"} {
		t.Run(fmt.Sprintf("it finds %s operators for %q", operators, value), func(t *testing.T) {
			p.push(t, "x", componentImage(t, map[string]string{api.OperatorLabel: value}, map[string]string{"manifests/a.yaml": namespace("x", "")}))
			_, errs := newRelease(t, "x="+p.images["x"], "--operator-manifests", operatorSet(t), "--dry-run")
			assert.Contains(t, errs, "from "+operators+" input operators")
		})
	}
	for label, value := range map[string]string{api.OperatorLabel: "yes", api.ComponentVersionsLabel: "kubernetes", api.ComponentDisplayNamesLabel: "kubernetes=<b>"} {
		t.Run("rejects "+label+"="+value, func(t *testing.T) {
			p.push(t, "x", componentImage(t, map[string]string{label: value}, map[string]string{"a": "b"}))
			_, _, err := runCvo(t, "release", "new", "x="+p.images["x"], "--operator-manifests", operatorSet(t), "--dry-run")
			require.ErrorContains(t, err, "component x: ")
			require.ErrorContains(t, err, label)
			assert.ErrorContains(t, err, "rebuild the image")
		})
	}
}

//threat:release-cannot-rebuilt
func TestReleaseNewIsReproducible(t *testing.T) {
	p := newPlatform(t)
	folders := []string{t.TempDir(), t.TempDir()}
	for i, folder := range folders {
		for n, component := range []string{"a-1", "b-2", "c-3"} {
			if i == 1 {
				component = []string{"c-3", "a-1", "b-2"}[n]
			}
			dir := filepath.Join(folder, component)
			require.NoError(t, os.MkdirAll(dir, 0o755))
			file := filepath.Join(dir, "ns.yaml")
			require.NoError(t, os.WriteFile(file, []byte(namespace(component, "")), 0o644))
			at := sourceTime.Add(time.Duration(n*(i+1)) * time.Hour)
			require.NoError(t, os.Chtimes(file, at, at))
		}
	}
	base := []string{"--name", "1.0.0"}
	want, _ := newRelease(t, slices.Concat(base, []string{"--from-dir", folders[0], "dns=" + p.images["dns"], "dns-operator=" + p.images["dns-operator"], "--previous", "0.1.0,0.2.0", "--operator-manifests", operatorSet(t), "--dry-run", "--created", "2026-05-01T02:00:00Z"})...)

	t.Setenv("SOURCE_DATE_EPOCH", "1")
	setUmask(t, 0o077)
	oci := filepath.Join(t.TempDir(), "oci")
	got, _ := newRelease(t, slices.Concat([]string{"dns-operator=" + p.images["dns-operator"], "--previous", "0.2.0,0.1.0,0.2.0", "dns=" + p.images["dns"], "--operator-manifests", operatorSet(t), "--from-dir", folders[1], "--to-oci", oci, "--created", "2026-05-01T09:00:00+07:00"}, base)...)
	assert.Equal(t, want, got, "folders, file times, order, time zone and umask do not affect a release")
}
