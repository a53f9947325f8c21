package payload

import (
	"testing"
	"testing/fstest"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
)

func TestLoadUpdateEnablesCapabilities(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: lab, name: x, annotations: {include.release.openshift.io/self-managed-high-availability: 'true'"
	files := func(manifests ...string) fstest.MapFS {
		out := fstest.MapFS{
			"manifests/notes":                    {},
			"release-manifests/release-metadata": {Data: []byte(`{"kind": "cincinnati-metadata-v0", "version": "1.1.0"}`)},
			"release-manifests/image-references": {Data: []byte(`{"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": {"name": "1.1.0"}}`)},
		}
		for i, text := range manifests {
			out["release-manifests/0000_50_lab_0"+string(rune('1'+i))+".yaml"] = &fstest.MapFile{Data: []byte(text)}
		}
		return out
	}
	filter := func(version string) inclusion.Filter {
		assert.Equal(t, "1.1.0", version)
		return inclusion.Filter{
			Profile: "self-managed-high-availability", Gates: sets.New[string](),
			Capabilities: inclusion.Capabilities{Known: sets.New(inclusion.KnownCapabilities()...), Enabled: sets.New[configv1.ClusterVersionCapability]()},
		}
	}
	before, err := manifest.Parse("0000_50_lab_01.yaml", []byte(head+"}}"), manifest.Limits{})
	require.NoError(t, err)
	reads := 0
	running := func() ([]*manifest.Manifest, error) { reads++; return before, nil }
	optional := head + ", capability.openshift.io/name: Console}}"

	u, err := LoadUpdate(files(optional), "", Options{}, filter, running)
	require.NoError(t, err)
	assert.Len(t, u.Payload.Manifests, 1)
	assert.Equal(t, []configv1.ClusterVersionCapability{"Console"}, u.Enables)
	assert.True(t, u.Filter.Capabilities.Enabled.Has("Console"))
	assert.EqualValues(t, 1, *u.Filter.MajorVersion)
	assert.Equal(t, "The update to 1.1.0 also enables these capabilities, because they now contain objects of the running release: Console", u.EnablesText())

	u, err = LoadUpdate(files(optional, optional), "", Options{}, filter, running)
	require.Error(t, err, "the object is defined twice")
	assert.Empty(t, u.EnablesText())

	u, err = LoadUpdate(files(head+", capability.openshift.io/name: ClusterAPI}}"), "", Options{}, filter, running)
	require.NoError(t, err)
	assert.Empty(t, u.Enables, "its feature gate is off")
	assert.Empty(t, u.Payload.Manifests)

	reads = 0
	u, err = LoadUpdate(files(head+"}}"), "", Options{}, filter, running)
	require.NoError(t, err)
	assert.Empty(t, u.Enables)
	assert.Zero(t, reads, "the running release is read only if capabilities exclude a manifest")
}
