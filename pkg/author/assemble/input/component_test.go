package input_test

import (
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	ggcrregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	imagev1 "github.com/openshift/api/image/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/layer"
	"github.com/cluster-version/cvo/pkg/author/assemble/publish"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/payload"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)

func file(name, data string) input.File {
	return input.File{Name: name, Data: []byte(data), ModTime: epoch}
}

func server(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(ggcrregistry.New(ggcrregistry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func reader(t *testing.T) *image.Reader {
	t.Helper()
	r, err := image.New(image.Options{})
	require.NoError(t, err)
	return r
}

func TestComponentsAreReadFromImages(t *testing.T) {
	host, access := server(t), registry.New(registry.Options{})
	push := func(name string, labels map[string]string, files ...input.File) {
		content, err := layer.New(epoch, layer.Folder(payload.OperatorDir, 0o755, files))
		require.NoError(t, err)
		img, err := mutate.AppendLayers(empty.Image, content)
		require.NoError(t, err)
		img, err = mutate.Config(img, v1.Config{Labels: labels})
		require.NoError(t, err)
		_, err = publish.Push(t.Context(), access, img, host+"/"+name+":v1")
		require.NoError(t, err)
	}
	stream := `{"kind": "ImageStream", "spec": {"tags": [{"name": "dns", "from": {"kind": "DockerImage", "Name": "p/dns"}}]}}`
	push("dns", map[string]string{api.OperatorLabel: "true", "io.openshift.build.commit.id": "abc", "other": "x"},
		file("crd.yaml", "content"), file(".gitkeep", ""), file(input.ReferencesFile, stream))
	push("tool", map[string]string{api.ComponentVersionsLabel: "cni=1.0.0"}, file("ignored.yaml", "x"))
	push("local", map[string]string{api.OperatorLabel: "true"}, file("ignored.yaml", "x"))

	var loaded []string
	got, err := input.ReadImages(t.Context(), []imagev1.TagReference{
		input.ImageTag("dns", host+"/dns:v1"), input.ImageTag("tool", host+"/tool:v1"), input.ImageTag("local", host+"/local:v1"),
	}, input.ReadOptions{
		Images: reader(t), LabelsOnly: []string{"local"}, PerRegistry: 1,
		Loading: func(tag imagev1.TagReference) { loaded = append(loaded, tag.Name) },
	})
	require.NoError(t, err)
	require.Len(t, got.Images, 3)
	assert.Equal(t, map[string]string{"io.openshift.build.commit.id": "abc"}, got.Images[0].Annotations)
	assert.Regexp(t, "^"+host+"/dns@sha256:[0-9a-f]{64}$", got.Images[0].From.Name)
	require.Len(t, got.Components, 1)
	require.Len(t, got.Components[0].Files, 1, "hidden files and image-references are not manifests")
	assert.Equal(t, "crd.yaml", got.Components[0].Files[0].Name)
	require.Len(t, got.Components[0].References, 1)
	assert.Equal(t, "p/dns", got.Components[0].References[0].From.Name)

	assert.ElementsMatch(t, []string{"dns", "tool", "local"}, loaded)
	assert.Equal(t, epoch.Truncate(time.Second), got.Components[0].Files[0].ModTime.UTC(), "the file has the latest file's time")

	_, err = input.ReadImages(t.Context(), []imagev1.TagReference{input.ImageTag("gone", host+"/gone:v1")}, input.ReadOptions{Images: reader(t)})
	require.ErrorContains(t, err, "component gone: resolving "+host+"/gone:v1")
	_, err = input.ReadImages(t.Context(), []imagev1.TagReference{input.ImageTag("dns", host+"/dns:v1")}, input.ReadOptions{Images: reader(t), TotalBytes: 4})
	assert.ErrorIs(t, err, failure.ErrLimit)
}

func TestComponentsAreReadFromAFolder(t *testing.T) {
	stream := "kind: ImageStream\nspec:\n  tags:\n  - name: dns\n    from: {kind: DockerImage, name: x}\n"
	t.Run("it reads components and images", func(t *testing.T) {
		got, err := input.ReadFolder(fstest.MapFS{
			"image-references":     {Data: []byte(stream)},
			"README.md":            {Data: []byte("x")},
			".git/config":          {Data: []byte("x")},
			"dns/crd.yaml":         {Data: []byte("x"), ModTime: epoch},
			"dns/.hidden":          {Data: []byte("x")},
			"dns/image-references": {Data: []byte(stream)},
			"dns/deep/notes.txt":   {Data: []byte("x")},
			"ntp/a.json":           {Data: []byte("{}")},
		})
		require.NoError(t, err)
		require.Len(t, got.Components, 2)
		assert.Equal(t, []input.File{{Name: "crd.yaml", Data: []byte("x"), ModTime: epoch}}, got.Components[0].Files)
		assert.Len(t, got.Components[0].References, 1)
		assert.Len(t, got.Images, 1)
	})
	t.Run("it rejects a folder without components", func(t *testing.T) {
		_, err := input.ReadFolder(fstest.MapFS{"a.yaml": {Data: []byte("x")}})
		assert.ErrorContains(t, err, "no subdirectories")
	})
	t.Run("it reports all errors", func(t *testing.T) {
		_, err := input.ReadFolder(fstest.MapFS{
			"Big/a.yaml":           {Data: []byte("x")},
			"dns/image-references": {Data: []byte("kind: ConfigMap")},
			"image-references":     {Data: []byte("{")},
		})
		require.ErrorContains(t, err, `component "Big"`)
		require.ErrorContains(t, err, `component dns: image-references has kind "ConfigMap" instead of ImageStream`)
		assert.ErrorContains(t, err, "decoding image-references")
	})
}

func TestFilesOfToolsThatRenderManifestsAreRejected(t *testing.T) {
	for _, tt := range []struct{ name, file, text, want string }{
		{"a kustomization", "kustomization.yaml", "resources: [a.yaml]\n", "component web: kustomization.yaml is a kustomization, not a manifest: move its folder out of here, and build the release with --from-kustomize DIR"},
		{"a chart", "Chart.yaml", "apiVersion: v2\nname: web\n", "Chart.yaml describes a Helm chart"},
		{"values", "values-prod.yaml", "replicas: 2\n", "values-prod.yaml has the values of a Helm chart"},
		{"a template", "web.yaml", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {{ .Release.Namespace }}\n", "web.yaml is a template, not a manifest (web.yaml[1]: "},
		{
			"a template in quotes", "web.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {app: '{{ .Values.name }}'}}\n",
			"web.yaml is a template, not a manifest (Namespace a contains {{ .Values.name }}): ",
		},
		{
			"a template in quotes in the content", "web.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: '{{ .Values.replicas }}'}\n",
			"web.yaml is a template, not a manifest (Deployment.apps a contains {{ .Values.replicas }}): ",
		},
		{
			"a template of a custom resource", "web.yaml", "apiVersion: example.com/v1\nkind: Rule\nmetadata: {name: '{{ .Release.Name }}'}\n",
			"web.yaml is a template, not a manifest (Rule.example.com {{ .Release.Name }} contains {{ .Release.Name }}): ",
		},
		{"a manifest in a subfolder", "crds/web.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n", "component web: crds/web.yaml is in a subfolder"},
		{"a chart in a subfolder", "chart/Chart.yaml", "apiVersion: v2\nname: web\n", "component web: folder chart: Chart.yaml describes a Helm chart"},
		{"a kustomization in a subfolder", "base/Kustomization", "resources: [a.yaml]\n", "component web: folder base: Kustomization is a kustomization"},
	} {
		t.Run("it rejects "+tt.name, func(t *testing.T) {
			_, err := input.ReadComponent("web", fstest.MapFS{tt.file: {Data: []byte(tt.text)}})
			assert.ErrorContains(t, err, tt.want)
		})
	}
	t.Run("a file that cannot be read is no mistake of the author", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "base"), 0o755))
		require.NoError(t, os.Symlink("missing.yaml", filepath.Join(dir, "base", "a.yaml")))
		_, err := input.ReadComponent("web", os.DirFS(dir))
		require.ErrorIs(t, err, fs.ErrNotExist)
		var mistake *input.ContentError
		assert.NotErrorAs(t, err, &mistake)
	})
	for file, want := range map[string]string{
		"kustomization.yaml": "kustomization.yaml is a kustomization, not a manifest: ", "Chart.yaml": "Chart.yaml describes a Helm chart",
		"values.yaml": "values.yaml has the values of a Helm chart", "web.yaml": "web.yaml belongs to no component",
	} {
		t.Run("it rejects "+file+" beside the components", func(t *testing.T) {
			_, err := input.ReadFolder(fstest.MapFS{file: {Data: []byte("a: b\n")}})
			assert.ErrorContains(t, err, want)
		})
	}
	t.Run("it keeps a manifest with braces", func(t *testing.T) {
		_, err := input.ReadComponent("web", fstest.MapFS{"values.yaml": {Data: []byte(
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: '{{ .Values.b }}'}\n---\n" +
				"apiVersion: example.com/v1\nkind: Rule\nmetadata: {name: a}\nspec: {text: '{{ $labels.b }}', values: '{{ .Values.b }}'}\n")}})
		require.NoError(t, err)
	})
	t.Run("it keeps the operator's templates", func(t *testing.T) {
		_, err := input.ReadComponent("cluster-version-operator", fstest.MapFS{"a.yaml": {Data: []byte("a: {{.ReleaseImage}}\n")}})
		require.NoError(t, err)
	})
}
