package assemble

import (
	"archive/tar"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
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
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/inspect"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/registry"
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

// object is a manifest that every cluster gets; more is what follows the metadata.
func object(kind, name, more string) string {
	return "apiVersion: v1\nkind: " + kind + "\nmetadata:\n  name: " + name + "\n  annotations:\n    " +
		api.IncludePrefix + api.DefaultProfile + ": \"true\"\n" + more
}

func file(name, data string) File { return File{Name: name, Data: []byte(data), ModTime: epoch} }

// small is a release of two components.
func small() Options {
	return Options{
		Version:  "1.2.0+build.7",
		Previous: []string{"1.1.0", "1.0.0", "1.1.0"},
		Metadata: map[string]any{"url": "https://example.com/1.2.0?a&b"},
		Components: []Component{
			{
				Name: "ntp",
				Files: []File{
					file("ns.yaml", object("Namespace", "ntp", "")),
					{Name: "0000_20_ntp_00.yaml", Data: []byte(object("Namespace", "ntp-data", "")), ModTime: later},
				},
			},
			{
				Name: "dns",
				Files: []File{
					file("0000_30_dns_00.yaml", object("Namespace", "dns", "---\n# nothing\n---\n")+object("ConfigMap", "dns", "  namespace: dns\ndata:\n  image: placeholder.example.com/dns:v1\n  version: 0.0.1-snapshot\n  cni: 0.0.1-snapshot-cni\n")),
				},
				References: []imagev1.TagReference{ImageTag("dns", "placeholder.example.com/dns")},
			},
		},
		Images: []imagev1.TagReference{
			ImageTag("ntp", "registry.example.com/ntp@"+digestB),
			{Name: "dns", Annotations: map[string]string{api.ComponentVersionsLabel: "cni=1.5.0"}, From: ImageTag("dns", "registry.example.com/dns@"+digestA).From},
		},
		Operator: []File{file("0000_00_cluster-version-operator_00.yaml", object("ConfigMap", "operator", "  namespace: '{{.ClusterProfile}}'\ndata:\n  image: '{{.ReleaseImage}}'\n  version: 0.0.1-snapshot\n"))},
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

// tree reads a folder as a map of its files.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, folder := range []string{operatorFolder, releaseFolder} {
		read, err := ReadFiles(os.DirFS(filepath.Join(dir, folder)))
		require.NoError(t, err)
		for _, f := range read {
			files[folder+"/"+f.Name] = string(f.Data)
		}
	}
	return files
}

func TestNewContent(t *testing.T) {
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
	assert.Contains(t, dns, "version: 1.2.0\n", "build metadata is no part of an operator's version")
	assert.Contains(t, dns, "cni: 1.5.0\n")
	operator := files["manifests/0000_00_cluster-version-operator_00.yaml"]
	assert.Contains(t, operator, "version: 1.2.0\n")
	assert.Contains(t, operator, "{{.ReleaseImage}}", "templates are rendered when a payload is loaded")
	assert.Equal(t, 2, r.Operators)

	assert.ErrorContains(t, r.WriteFolder(dir), "is there already")
}

func TestNewImage(t *testing.T) {
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
	assert.Equal(t, later.Truncate(time.Second), config.Created.Time, "the newest manifest tells the time")
	require.Len(t, config.History, 2, "one entry a layer, as image formats have it")
	assert.Equal(t, "Release image", config.History[1].Comment)
	assert.Empty(t, config.History[0])
}

func TestNewLayer(t *testing.T) {
	layers, err := assembled(t, small()).Image.Layers()
	require.NoError(t, err)
	got, err := readLayer(layers[len(layers)-1])
	require.NoError(t, err)
	golden.Assert(t, "layer", got)
}

func TestNewIsReproducible(t *testing.T) {
	want := assembled(t, small()).Digest
	t.Run("it gives the same digest for the same input in another order", func(t *testing.T) {
		opts := small()
		opts.Components[0], opts.Components[1] = opts.Components[1], opts.Components[0]
		opts.Images[0], opts.Images[1] = opts.Images[1], opts.Images[0]
		opts.Previous = []string{"1.0.0", "1.1.0"}
		assert.Equal(t, want, assembled(t, opts).Digest)
	})
	t.Run("it gives the same digest for other file times and one creation time", func(t *testing.T) {
		opts := small()
		opts.Created = later
		opts.Components[0].Files[0].ModTime = later.Add(time.Hour)
		assert.Equal(t, want, assembled(t, opts).Digest)
	})
	t.Run("it gives another digest for another byte", func(t *testing.T) {
		opts := small()
		opts.Components[0].Files[0].Data = append([]byte("#\n"), opts.Components[0].Files[0].Data...)
		assert.NotEqual(t, want, assembled(t, opts).Digest)
	})
}

func TestNewRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Options)
		want   []string
	}{
		{"a name that is no version", func(o *Options) { o.Version = "v1" }, []string{`release name "v1" is not a semantic version`}},
		{"a previous release that is no version", func(o *Options) { o.Previous = []string{"latest"} }, []string{`"latest" in the list of previous or next releases`}},
		{"an image by tag", func(o *Options) { o.Images[0] = ImageTag("ntp", "r/ntp:v1") }, []string{`image "ntp": "r/ntp:v1" is not by digest`}},
		{"an image with a malformed digest", func(o *Options) { o.Images[0] = ImageTag("ntp", "r/ntp@sha256:1") }, []string{`digest "sha256:1" is not`}},
		{"an image without pullspec", func(o *Options) { o.Images[0].From = nil }, []string{`image "ntp" has no pullspec`}},
		{"an image twice", func(o *Options) { o.Images = append(o.Images, o.Images[0]) }, []string{`image "ntp" is given twice`}},
		{"a component twice", func(o *Options) { o.Components = append(o.Components, o.Components[0]) }, []string{`component "ntp" is given twice`}},
		{"a component whose name leads elsewhere", func(o *Options) { o.Components[0].Name = "../x" }, []string{`component "../x"`}},
		{"no operator", func(o *Options) { o.Operator = nil }, []string{"neither a base image nor"}},
		{"operator files beside a base", func(o *Options) {
			o.Base = empty.Image
			o.Components[0].Name = OperatorComponent
		}, []string{"the base image brings the operator's manifests"}},
		{"a missing image", func(o *Options) { o.Images = o.Images[:1] }, []string{`component dns: image-references: no input image tag named "dns"`}},
		{"broken manifests of all components at once", func(o *Options) {
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

func TestRoundTrip(t *testing.T) {
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
	require.NoError(t, r.WriteLayout(oci), "an image of the same name is replaced")

	images, err := image.New(image.Options{})
	require.NoError(t, err)
	for _, ref := range []string{remote, pushed.ByDigest(), oci, oci + ":1.2.0+build.7", oci + "@" + string(r.Digest)} {
		t.Run("it reads back what was written, from "+ref, func(t *testing.T) {
			to := t.TempDir()
			e, err := extract(t, images, ref, to)
			require.NoError(t, err)
			assert.Equal(t, r.Created, e.Created)
			assert.Equal(t, want, tree(t, to))
		})
	}
	t.Run("it wants a name where a layout has several releases", func(t *testing.T) {
		opts := small()
		opts.Version = "1.3.0"
		require.NoError(t, assembled(t, opts).WriteLayout(oci))
		_, err := extract(t, images, oci, t.TempDir())
		require.ErrorContains(t, err, "2 of its images match")
		_, err = extract(t, images, oci+":1.3.0", t.TempDir())
		assert.NoError(t, err)
	})
	t.Run("it refuses a layout whose content was changed", func(t *testing.T) {
		m, err := r.Image.Manifest()
		require.NoError(t, err)
		blob := filepath.Join(oci, "blobs", "sha256", m.Layers[1].Digest.Hex)
		data, err := os.ReadFile(blob)
		require.NoError(t, err)
		data[len(data)-1] ^= 1
		require.NoError(t, os.Chmod(blob, 0o644))
		require.NoError(t, os.WriteFile(blob, data, 0o644))
		_, err = extract(t, images, oci+":1.2.0+build.7", t.TempDir())
		assert.ErrorContains(t, err, "was changed")
	})
}

func TestBase(t *testing.T) {
	layer, err := folderLayer(operatorFolder, 0o755, small().Operator, epoch)
	require.NoError(t, err)
	base, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{Layer: layer, MediaType: types.OCILayer})
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
	assert.Equal(t, []string{"/cvo"}, config.Config.Entrypoint, "how the base is run stays")
	assert.Equal(t, map[string]string{api.ReleaseLabel: "1.2.0+build.7", api.ReleaseBaseLabel: baseDigest.String()}, config.Config.Labels)
	m, err := r.Image.Manifest()
	require.NoError(t, err)
	assert.Equal(t, types.DockerLayer, m.Layers[0].MediaType)

	dir := t.TempDir()
	require.NoError(t, r.WriteFolder(dir))
	assert.Contains(t, tree(t, dir), "manifests/0000_00_cluster-version-operator_00.yaml")
}

func TestReadImages(t *testing.T) {
	host, access := server(t), registry.New(registry.Options{})
	push := func(name string, labels map[string]string, files ...File) {
		layer, err := folderLayer(operatorFolder, 0o755, files, epoch)
		require.NoError(t, err)
		img, err := mutate.AppendLayers(empty.Image, layer)
		require.NoError(t, err)
		img, err = mutate.Config(img, v1.Config{Labels: labels})
		require.NoError(t, err)
		_, err = Push(t.Context(), access, img, host+"/"+name+":v1")
		require.NoError(t, err)
	}
	stream := `{"kind": "ImageStream", "spec": {"tags": [{"name": "dns", "from": {"kind": "DockerImage", "Name": "p/dns"}}]}}`
	push("dns", map[string]string{api.OperatorLabel: "true", "io.openshift.build.commit.id": "abc", "other": "x"},
		file("crd.yaml", "content"), file(".gitkeep", ""), file(referencesFile, stream))
	push("tool", map[string]string{api.ComponentVersionsLabel: "cni=1.0.0"}, file("ignored.yaml", "x"))
	push("local", map[string]string{api.OperatorLabel: "true"}, file("ignored.yaml", "x"))

	var loaded []string
	got, err := ReadImages(t.Context(), []imagev1.TagReference{
		ImageTag("dns", host+"/dns:v1"), ImageTag("tool", host+"/tool:v1"), ImageTag("local", host+"/local:v1"),
	}, ReadOptions{
		Images: reader(t), LabelsOnly: []string{"local"}, PerRegistry: 1,
		Loading: func(tag imagev1.TagReference) { loaded = append(loaded, tag.Name) },
	})
	require.NoError(t, err)
	require.Len(t, got.Images, 3)
	assert.Equal(t, map[string]string{"io.openshift.build.commit.id": "abc"}, got.Images[0].Annotations)
	assert.Regexp(t, "^"+host+"/dns@sha256:[0-9a-f]{64}$", got.Images[0].From.Name)
	require.Len(t, got.Components, 1)
	require.Len(t, got.Components[0].Files, 1, "hidden files and image-references are no manifests")
	assert.Equal(t, "crd.yaml", got.Components[0].Files[0].Name)
	require.Len(t, got.Components[0].References, 1)
	assert.Equal(t, "p/dns", got.Components[0].References[0].From.Name)

	assert.ElementsMatch(t, []string{"dns", "tool", "local"}, loaded)
	assert.Equal(t, epoch.Truncate(time.Second), got.Components[0].Files[0].ModTime.UTC(), "the newest file tells the release's time")

	_, err = ReadImages(t.Context(), []imagev1.TagReference{ImageTag("gone", host+"/gone:v1")}, ReadOptions{Images: reader(t)})
	require.ErrorContains(t, err, "component gone: resolving "+host+"/gone:v1")
	_, err = ReadImages(t.Context(), []imagev1.TagReference{ImageTag("dns", host+"/dns:v1")}, ReadOptions{Images: reader(t), TotalBytes: 4})
	assert.ErrorIs(t, err, image.ErrLimit)
}

func TestReadFolder(t *testing.T) {
	stream := "kind: ImageStream\nspec:\n  tags:\n  - name: dns\n    from: {kind: DockerImage, name: x}\n"
	t.Run("it reads components and images", func(t *testing.T) {
		got, err := ReadFolder(fstest.MapFS{
			"image-references":     {Data: []byte(stream)},
			"README.md":            {Data: []byte("x")},
			".git/config":          {Data: []byte("x")},
			"dns/crd.yaml":         {Data: []byte("x"), ModTime: epoch},
			"dns/.hidden":          {Data: []byte("x")},
			"dns/image-references": {Data: []byte(stream)},
			"dns/deep/x.yaml":      {Data: []byte("x")},
			"ntp/a.json":           {Data: []byte("{}")},
		})
		require.NoError(t, err)
		require.Len(t, got.Components, 2)
		assert.Equal(t, []File{{Name: "crd.yaml", Data: []byte("x"), ModTime: epoch}}, got.Components[0].Files)
		assert.Len(t, got.Components[0].References, 1)
		assert.Len(t, got.Images, 1)
	})
	t.Run("it refuses a folder without components", func(t *testing.T) {
		_, err := ReadFolder(fstest.MapFS{"a.yaml": {Data: []byte("x")}})
		assert.ErrorContains(t, err, "no subdirectory")
	})
	t.Run("it tells all that is wrong", func(t *testing.T) {
		_, err := ReadFolder(fstest.MapFS{
			"Big/a.yaml":           {Data: []byte("x")},
			"dns/image-references": {Data: []byte("kind: ConfigMap")},
			"image-references":     {Data: []byte("{")},
		})
		require.ErrorContains(t, err, `component "Big"`)
		require.ErrorContains(t, err, `component dns: image-references is a "ConfigMap"`)
		assert.ErrorContains(t, err, "decoding image-references")
	})
}

func FuzzReadReferences(f *testing.F) {
	for _, seed := range []string{"", "kind: ImageStream", `{"kind":"ImageStream","spec":{"tags":[{"name":"a","from":null}]}}`, "kind: ImageStream\nspec: {tags: [{Name: x}]}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tags, err := parseReferences(data)
		if err != nil {
			return
		}
		_, err = json.Marshal(tags)
		require.NoError(t, err)
		_, _ = placeholders("x", tags, nil, true)
	})
}

func FuzzParseComponentVersions(f *testing.F) {
	for _, seed := range []string{"", "a=1", "kubernetes=1.2.3", "aa=1.0.0,bb=2.0.0-rc.1+x", "=,="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		versions, err := ParseComponentVersions(text)
		if err != nil {
			return
		}
		again, err := ParseComponentVersions(formatPairs(versions))
		require.NoError(t, err)
		assert.Equal(t, versions, again)
	})
}

func TestOperatorImage(t *testing.T) {
	opts := OperatorImageOptions{
		Binary: []byte("cvo"), Certificates: []byte("pem"), Manifests: small().Operator, Architecture: "arm64", Created: epoch,
	}
	opts.Version, opts.Revision = "v1.2.3", "0123abc"
	base, err := OperatorImage(opts)
	require.NoError(t, err)

	t.Run("it is for its architecture", func(t *testing.T) {
		config, err := base.ConfigFile()
		require.NoError(t, err)
		assert.Equal(t, "linux/arm64", config.Platform().String())
		index, err := OperatorIndex([]v1.Image{base})
		require.NoError(t, err)
		list, err := index.IndexManifest()
		require.NoError(t, err)
		assert.Equal(t, types.OCIImageIndex, list.MediaType)
		assert.Equal(t, "linux/arm64", list.Manifests[0].Platform.String())
	})
	t.Run("it is what the Dockerfile describes", func(t *testing.T) {
		config, err := base.ConfigFile()
		require.NoError(t, err)
		got := config.Config
		data, err := os.ReadFile(filepath.Join("..", "..", "Dockerfile"))
		require.NoError(t, err)
		_, final, ok := strings.Cut(string(data), "\nFROM scratch\n")
		require.True(t, ok)
		final = strings.NewReplacer("\\\n", " ", "$VERSION", opts.Version, "$REVISION", opts.Revision).Replace(final)
		labels := map[string]string{}
		for _, label := range regexp.MustCompile(`([\w.-]+)="([^"]*)"`).FindAllStringSubmatch(final, -1) {
			labels[label[1]] = label[2]
		}
		assert.Equal(t, labels, got.Labels)
		for _, line := range []string{
			"USER " + got.User, "WORKDIR " + got.WorkingDir, "ENV " + strings.Join(got.Env, " "), `ENTRYPOINT ["` + strings.Join(got.Entrypoint, `", "`) + `"]`,
		} {
			assert.Contains(t, final, "\n"+line+"\n")
		}
		var copied []string
		for _, line := range regexp.MustCompile(`(?m)^COPY --from=build /out(\S+) (\S+)$`).FindAllStringSubmatch(final, -1) {
			require.Equal(t, line[1], line[2])
			copied = append(copied, line[2])
		}
		layers, err := base.Layers()
		require.NoError(t, err)
		var folders []string
		for _, layer := range layers {
			content, err := layer.Uncompressed()
			require.NoError(t, err)
			first, err := tar.NewReader(content).Next()
			require.NoError(t, err)
			require.NoError(t, content.Close())
			folders = append(folders, "/"+strings.TrimSuffix(first.Name, "/"))
		}
		assert.Equal(t, copied, folders)
	})

	t.Run("it is a base of releases, which run as it does", func(t *testing.T) {
		opts := small()
		opts.Operator, opts.Base = nil, base
		r := assembled(t, opts)
		config, err := r.Image.ConfigFile()
		require.NoError(t, err)
		assert.Equal(t, []string{"/cvo"}, config.Config.Entrypoint)
		layers, err := r.Image.Layers()
		require.NoError(t, err)
		assert.Len(t, layers, 4)
	})
	t.Run("it has the same digest for the same input", func(t *testing.T) {
		again, err := OperatorImage(opts)
		require.NoError(t, err)
		want, err := base.Digest()
		require.NoError(t, err)
		got, err := again.Digest()
		require.NoError(t, err)
		assert.Equal(t, want, got)
	})
}

func TestRealRelease(t *testing.T) {
	for _, version := range []string{"4.22.9", "4.23.0"} {
		t.Run("it takes the manifests of "+version+" as they are", func(t *testing.T) {
			root := filepath.Join(fixture.Testdata(t), "payloads", version)
			want := tree(t, root)
			stream, err := payload.ParseReferences([]byte(want["release-manifests/image-references"]))
			require.NoError(t, err)
			files, err := ReadFiles(os.DirFS(filepath.Join(root, releaseFolder)))
			require.NoError(t, err)
			files = slices.DeleteFunc(files, func(f File) bool { return f.Name == metadataFile })
			component, err := newComponent("platform", files)
			require.NoError(t, err)
			component.References = nil
			operator, err := ReadFiles(os.DirFS(filepath.Join(root, operatorFolder)))
			require.NoError(t, err)

			r := assembled(t, Options{
				Version: version, Created: stream.CreationTimestamp.Time, Components: []Component{component},
				Images: stream.Spec.Tags, Operator: operator,
			})
			oci := t.TempDir()
			require.NoError(t, r.WriteLayout(filepath.Join(oci, "layout")))
			to := t.TempDir()
			_, err = extract(t, reader(t), filepath.Join(oci, "layout"), to)
			require.NoError(t, err)
			got := tree(t, to)
			delete(got, "release-manifests/release-metadata")
			for name, data := range got {
				// The tokens of a version that nobody put in place before are the only thing that may differ.
				if !strings.Contains(want[name], manifest.VersionPlaceholder) && name != "release-manifests/image-references" {
					assert.Equal(t, want[name], data, name)
				}
			}
			assert.Len(t, got, len(want)-1)
		})
	}
}

// extract writes the two folders of a release, as those who look into releases do.
func extract(t *testing.T, images *image.Reader, ref, dir string) (*inspect.Extracted, error) {
	t.Helper()
	img, err := images.Resolve(t.Context(), ref)
	if err != nil {
		return nil, err
	}
	return inspect.Open(images, img).Extract(t.Context(), dir, inspect.ExtractOptions{Layout: inspect.LayoutImage})
}

func reader(t *testing.T) *image.Reader {
	t.Helper()
	r, err := image.New(image.Options{})
	require.NoError(t, err)
	return r
}
