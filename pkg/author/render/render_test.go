package render

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests with Helm and kubectl are in test/chart.

func TestSourcesNameTheirComponent(t *testing.T) {
	for text, want := range map[string]Source{
		"./charts/web":                     {"web", "./charts/web"},
		"charts/web-1.2.3.tgz":             {"web-1.2.3", "charts/web-1.2.3.tgz"},
		"dns=./overlays/production":        {"dns", "./overlays/production"},
		"oci://registry.example/charts/ui": {"ui", "oci://registry.example/charts/ui"},
	} {
		got, err := ParseSource(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for text, want := range map[string]string{"": "has no path", "dns=": "has no path", "=./x": "use COMPONENT=PATH", "./Web": "use COMPONENT=PATH", "/": "use COMPONENT=PATH"} {
		_, err := ParseSource(text)
		require.ErrorContains(t, err, want, "%q", text)
	}
}

func TestTemplatesBecomeFilesOfOneFolder(t *testing.T) {
	at := time.Unix(1, 0)
	files, err := flatten(fstest.MapFS{
		"web/templates/deployment.yaml":               {Data: []byte("a")},
		"web/crds/sites.yaml":                         {Data: []byte("b")},
		"web/charts/cache/templates/deployment.yaml":  {Data: []byte("c")},
		"web/charts/cache/templates/nested/notes.txt": {Data: []byte("d")},
	}, at)
	require.NoError(t, err)
	names := map[string]string{}
	for _, f := range files {
		names[f.Name] = string(f.Data)
		assert.Equal(t, at, f.ModTime)
	}
	assert.Equal(t, map[string]string{"templates-deployment.yaml": "a", "crds-sites.yaml": "b", "charts-cache-templates-deployment.yaml": "c"}, names)
}

func TestMissingProgramsAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Chart(t.Context(), Source{"web", "./web"}, nil)
	require.ErrorContains(t, err, "rendering chart ./web: helm is not on the PATH: install it (https://helm.sh), or render the chart yourself into a folder for --from-dir")
	_, err = Kustomization(t.Context(), Source{"web", "./web"})
	require.ErrorContains(t, err, "rendering kustomization ./web: kustomize or kubectl is not on the PATH: install one of them")
}
