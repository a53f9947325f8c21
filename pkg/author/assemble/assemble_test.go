package assemble

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ggcrregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	imagev1 "github.com/openshift/api/image/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/layer"
	"github.com/cluster-version/cvo/pkg/author/extract"
	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/golden"
)

const (
	digestA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	digestB = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

var (
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)
	later = epoch.Add(time.Hour)
)

// object returns a manifest for all clusters; more is the text after the metadata.
func object(kind, name, more string) string {
	return "apiVersion: v1\nkind: " + kind + "\nmetadata:\n  name: " + name + "\n  annotations:\n    " +
		api.IncludePrefix + api.DefaultProfile + ": \"true\"\n" + more
}

func file(name, data string) input.File {
	return input.File{Name: name, Data: []byte(data), ModTime: epoch}
}

// small returns a release with two components.
func small() Options {
	return Options{
		Version:  "1.2.0+build.7",
		Previous: []string{"1.1.0", "1.0.0", "1.1.0"},
		Metadata: map[string]any{"url": "https://example.com/1.2.0?a&b"},
		Components: []input.Component{
			{
				Name: "ntp",
				Files: []input.File{
					file("ns.yaml", object("Namespace", "ntp", "")),
					{Name: "0000_20_ntp_00.yaml", Data: []byte(object("Namespace", "ntp-data", "")), ModTime: later},
				},
			},
			{
				Name: "dns",
				Files: []input.File{
					file("0000_30_dns_00.yaml", object("Namespace", "dns", "---\n# nothing\n---\n")+object("ConfigMap", "dns", "  namespace: dns\ndata:\n  image: placeholder.example.com/dns:v1\n  version: 0.0.1-snapshot\n  cni: 0.0.1-snapshot-cni\n")),
				},
				References: []imagev1.TagReference{input.ImageTag("dns", "placeholder.example.com/dns")},
			},
		},
		Images: []imagev1.TagReference{
			input.ImageTag("ntp", "registry.example.com/ntp@"+digestB),
			{Name: "dns", Annotations: map[string]string{api.ComponentVersionsLabel: "cni=1.5.0"}, From: input.ImageTag("dns", "registry.example.com/dns@"+digestA).From},
		},
		Operator: []input.File{file("0000_00_cluster-version-operator_00.yaml", object("ConfigMap", "operator", "  namespace: '{{.ClusterProfile}}'\ndata:\n  image: '{{.ReleaseImage}}'\n  version: 0.0.1-snapshot\n"))},
	}
}

func assembled(t *testing.T, opts Options) *Result {
	t.Helper()
	r, err := New(opts)
	require.NoError(t, err)
	return r
}

func server(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(ggcrregistry.New(ggcrregistry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// tree returns the files in a folder by name.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, folder := range []string{payload.OperatorDir, payload.ReleaseDir} {
		read, err := input.ReadFiles(os.DirFS(filepath.Join(dir, folder)))
		require.NoError(t, err)
		for _, f := range read {
			files[folder+"/"+f.Name] = string(f.Data)
		}
	}
	return files
}

func TestNewWritesTheFilesOfARelease(t *testing.T) {
	r := assembled(t, small())
	dir := t.TempDir()
	require.NoError(t, r.WriteFolder(dir))
	files := tree(t, dir)

	golden.Assert(t, "image-references", files["release-manifests/image-references"])
	golden.Assert(t, "release-metadata", files["release-manifests/release-metadata"])
	var names []string
	for name := range files {
		names = append(names, name)
	}
	assert.ElementsMatch(t, []string{
		"manifests/0000_00_cluster-version-operator_00.yaml",
		"release-manifests/0000_20_ntp_00.yaml", "release-manifests/0000_30_dns_00.yaml", "release-manifests/0000_50_ntp_ns.yaml",
		"release-manifests/image-references", "release-manifests/release-metadata",
	}, names)
	dns := files["release-manifests/0000_30_dns_00.yaml"]
	assert.Contains(t, dns, "image: registry.example.com/dns@"+digestA+"\n")
	assert.Contains(t, dns, "version: 1.2.0\n", "an operator's version has no build metadata")
	assert.Contains(t, dns, "cni: 1.5.0\n")
	operator := files["manifests/0000_00_cluster-version-operator_00.yaml"]
	assert.Contains(t, operator, "version: 1.2.0\n")
	assert.Contains(t, operator, "{{.ReleaseImage}}", "templates are rendered when a payload is loaded")
	assert.Equal(t, 2, r.Operators)

	assert.ErrorContains(t, r.WriteFolder(dir), "exists and is not empty")
}

func TestNewBuildsADockerImage(t *testing.T) {
	r := assembled(t, small())
	m, err := r.Image.Manifest()
	require.NoError(t, err)
	assert.Equal(t, types.DockerManifestSchema2, m.MediaType)
	assert.Equal(t, types.DockerConfigJSON, m.Config.MediaType)
	require.Len(t, m.Layers, 2)
	for _, layer := range m.Layers {
		assert.Equal(t, types.DockerLayer, layer.MediaType)
	}
	config, err := r.Image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, "1.2.0+build.7", config.Config.Labels[api.ReleaseLabel])
	assert.Regexp(t, "^sha256:[0-9a-f]{64}$", config.Config.Labels[api.ReleaseBaseLabel])
	assert.Len(t, config.Config.Labels, 2)
	assert.Equal(t, later.Truncate(time.Second), config.Created.Time, "the creation time is the latest manifest's")
	require.Len(t, config.History, 2, "one history entry per layer, as image formats require")
	assert.Equal(t, "Release image", config.History[1].Comment)
	assert.Empty(t, config.History[0])
}

func TestNewLayerMatchesTheGoldenFile(t *testing.T) {
	layers, err := assembled(t, small()).Image.Layers()
	require.NoError(t, err)
	got, err := fixture.ListLayer(layers[len(layers)-1])
	require.NoError(t, err)
	golden.Assert(t, "layer", got)
}

//threat:release-cannot-rebuilt
func TestNewIsReproducible(t *testing.T) {
	want := assembled(t, small()).Digest
	t.Run("it results in the same digest for inputs in another order", func(t *testing.T) {
		opts := small()
		opts.Components[0], opts.Components[1] = opts.Components[1], opts.Components[0]
		opts.Images[0], opts.Images[1] = opts.Images[1], opts.Images[0]
		opts.Previous = []string{"1.0.0", "1.1.0"}
		assert.Equal(t, want, assembled(t, opts).Digest)
	})
	t.Run("it results in the same digest for other file times if the creation time is the same", func(t *testing.T) {
		opts := small()
		opts.Created = later
		opts.Components[0].Files[0].ModTime = later.Add(time.Hour)
		assert.Equal(t, want, assembled(t, opts).Digest)
	})
	t.Run("it results in another digest if a byte differs", func(t *testing.T) {
		opts := small()
		opts.Components[0].Files[0].Data = append([]byte("#\n"), opts.Components[0].Files[0].Data...)
		assert.NotEqual(t, want, assembled(t, opts).Digest)
	})
}

func TestNewRejectsInvalidReleases(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Options)
		want   []string
	}{
		{"an invalid version", func(o *Options) { o.Version = "v1" }, []string{`release name "v1" is not a semantic version`}},
		{"an invalid previous version", func(o *Options) { o.Previous = []string{"latest"} }, []string{`"latest" in the list of previous or next releases`}},
		{"an image by tag", func(o *Options) { o.Images[0] = input.ImageTag("ntp", "r/ntp:v1") }, []string{`image "ntp": "r/ntp:v1" has no digest`}},
		{"an image with a malformed digest", func(o *Options) { o.Images[0] = input.ImageTag("ntp", "r/ntp@sha256:1") }, []string{`digest "sha256:1" is not`}},
		{"an image without a pullspec", func(o *Options) { o.Images[0].From = nil }, []string{`image "ntp" has no pullspec`}},
		{"a duplicate image", func(o *Options) { o.Images = append(o.Images, o.Images[0]) }, []string{`duplicate image "ntp"`}},
		{"a duplicate component", func(o *Options) { o.Components = append(o.Components, o.Components[0]) }, []string{`duplicate component "ntp"`}},
		{"a component name with a path", func(o *Options) { o.Components[0].Name = "../x" }, []string{`component "../x"`}},
		{"no operator", func(o *Options) { o.Operator = nil }, []string{"neither a base image nor"}},
		{"operator files together with a base", func(o *Options) {
			o.Base = empty.Image
			o.Components[0].Name = OperatorComponent
		}, []string{"the base image already contains the operator's manifests"}},
		{"a missing image", func(o *Options) { o.Images = o.Images[:1] }, []string{`component dns: image-references: no input image tag named "dns"`}},
		{"broken manifests in several components", func(o *Options) {
			o.Components[0].Files[0].Data = []byte("apiVersion: v1\nmetadata:\n  name: x\n")
			o.Components[1].Files = append(o.Components[1].Files, file("0000_40_dns_y.yml", object("Namespace", "yy", "---\nkind: Namespace\nmetadata:\n  name: zz\n")))
		}, []string{"component ntp: ns.yaml[1]: kind: missing", "component dns: 0000_40_dns_y.yml[2]: apiVersion: missing"}},
		{"an object in two components", func(o *Options) {
			o.Components[0].Files[0].Data = []byte(object("Namespace", "dns", ""))
		}, []string{"0000_30_dns_00.yaml", "0000_50_ntp_ns.yaml"}},
		{"a template that cannot be rendered", func(o *Options) {
			o.Operator[0].Data = []byte("a: {{.Nobody}}")
		}, []string{"0000_00_cluster-version-operator_00.yaml", "Nobody"}},
	} {
		t.Run("it refuses "+tt.name, func(t *testing.T) {
			opts := small()
			tt.change(&opts)
			_, err := New(opts)
			require.Error(t, err)
			for _, want := range tt.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

func TestWrittenReleaseReadsBackEqual(t *testing.T) {
	r := assembled(t, small())
	dir := t.TempDir()
	require.NoError(t, r.WriteFolder(filepath.Join(dir, "written")))
	want := tree(t, filepath.Join(dir, "written"))

	remote := server(t) + "/platform/release:1.2.0"
	pushed, err := r.Push(t.Context(), registry.New(registry.Options{}), remote)
	require.NoError(t, err)
	assert.Equal(t, r.Digest, pushed.Digest)
	oci := filepath.Join(dir, "oci")
	require.NoError(t, r.WriteLayout(oci))
	require.NoError(t, r.WriteLayout(oci), "an image with the same name is replaced")

	images, err := image.New(image.Options{})
	require.NoError(t, err)
	for _, ref := range []string{remote, pushed.ByDigest(), oci, oci + ":1.2.0+build.7", oci + "@" + string(r.Digest)} {
		t.Run("it reads a written release from "+ref, func(t *testing.T) {
			to := t.TempDir()
			e, err := extracted(t, images, ref, to)
			require.NoError(t, err)
			assert.Equal(t, r.Created, e.Created)
			assert.Equal(t, want, tree(t, to))
		})
	}
	t.Run("it requires a name if a layout has several releases", func(t *testing.T) {
		opts := small()
		opts.Version = "1.3.0"
		require.NoError(t, assembled(t, opts).WriteLayout(oci))
		_, err := extracted(t, images, oci, t.TempDir())
		require.ErrorContains(t, err, "select an image with ")
		_, err = extracted(t, images, oci+":1.3.0", t.TempDir())
		assert.NoError(t, err)
	})
	t.Run("it rejects a layout with changed content", func(t *testing.T) {
		m, err := r.Image.Manifest()
		require.NoError(t, err)
		blob := filepath.Join(oci, "blobs", "sha256", m.Layers[1].Digest.Hex)
		data, err := os.ReadFile(blob)
		require.NoError(t, err)
		data[len(data)-1] ^= 1
		require.NoError(t, os.Chmod(blob, 0o644))
		require.NoError(t, os.WriteFile(blob, data, 0o644))
		_, err = extracted(t, images, oci+":1.2.0+build.7", t.TempDir())
		assert.ErrorContains(t, err, "was changed")
	})
}

func TestNewBuildsOnABase(t *testing.T) {
	content, err := layer.New(epoch, layer.Folder(payload.OperatorDir, 0o755, small().Operator))
	require.NoError(t, err)
	base, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{Layer: content, MediaType: types.OCILayer})
	require.NoError(t, err)
	base, err = mutate.Config(base, v1.Config{Entrypoint: []string{"/cvo"}, User: "65532", Labels: map[string]string{"a": "b"}})
	require.NoError(t, err)
	baseDigest, err := base.Digest()
	require.NoError(t, err)

	opts := small()
	opts.Operator, opts.Base = nil, base
	r := assembled(t, opts)
	config, err := r.Image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, []string{"/cvo"}, config.Config.Entrypoint, "the base's entrypoint is kept")
	assert.Equal(t, map[string]string{api.ReleaseLabel: "1.2.0+build.7", api.ReleaseBaseLabel: baseDigest.String()}, config.Config.Labels)
	m, err := r.Image.Manifest()
	require.NoError(t, err)
	assert.Equal(t, types.DockerLayer, m.Layers[0].MediaType)

	dir := t.TempDir()
	require.NoError(t, r.WriteFolder(dir))
	assert.Contains(t, tree(t, dir), "manifests/0000_00_cluster-version-operator_00.yaml")
}

func TestRealReleaseKeepsItsManifests(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, version := range []string{"4.22.9", "4.23.0"} {
		t.Run("it keeps the manifests of "+version+" unchanged", func(t *testing.T) {
			root := filepath.Join(fixture.Testdata(t), "payloads", version)
			want := tree(t, root)
			stream, err := payload.ParseReferences([]byte(want["release-manifests/image-references"]))
			require.NoError(t, err)
			component, err := input.ReadComponent("platform", os.DirFS(filepath.Join(root, payload.ReleaseDir)))
			require.NoError(t, err)
			component.References = nil
			component.Files = slices.DeleteFunc(component.Files, func(f input.File) bool { return f.Name == metadataFile })
			operator, err := input.ReadFiles(os.DirFS(filepath.Join(root, payload.OperatorDir)))
			require.NoError(t, err)

			r := assembled(t, Options{
				Version: version, Created: stream.CreationTimestamp.Time, Components: []input.Component{component},
				Images: stream.Spec.Tags, Operator: operator,
			})
			oci := t.TempDir()
			require.NoError(t, r.WriteLayout(filepath.Join(oci, "layout")))
			to := t.TempDir()
			_, err = extracted(t, reader(t), filepath.Join(oci, "layout"), to)
			require.NoError(t, err)
			got := tree(t, to)
			delete(got, "release-manifests/release-metadata")
			for name, data := range got {
				// Only version placeholders that the original build did not replace may differ.
				if !strings.Contains(want[name], manifest.VersionPlaceholder) && name != "release-manifests/image-references" {
					assert.Equal(t, want[name], data, name)
				}
			}
			assert.Len(t, got, len(want)-1)
		})
	}
}

// extracted writes the two folders of a release like the tools for inspecting releases.
func extracted(t *testing.T, images *image.Reader, ref, dir string) (*extract.Result, error) {
	t.Helper()
	img, err := images.Resolve(t.Context(), ref)
	if err != nil {
		return nil, err
	}
	return extract.Files(t.Context(), inspect.Open(images, img), dir, extract.Options{Layout: extract.LayoutImage})
}

func reader(t *testing.T) *image.Reader {
	t.Helper()
	r, err := image.New(image.Options{})
	require.NoError(t, err)
	return r
}
