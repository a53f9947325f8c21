package manifests_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/manifests/apicrd"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// TestSetDefinesOurKinds: the operator goes on without the definitions and records nothing, so nobody would miss them.
func TestSetDefinesOurKinds(t *testing.T) {
	found := map[string]int{}
	names, err := fs.Glob(manifests.FS(), "*.yaml")
	require.NoError(t, err)
	for _, name := range names {
		data, err := fs.ReadFile(manifests.FS(), name)
		require.NoError(t, err)
		for _, kind := range []string{"releasestatuses." + api.ReleaseStatusVersion.Group, api.ReleaseRolloutDefinition} {
			found[kind] += strings.Count(string(data), "\n  name: "+kind+"\n")
		}
	}
	assert.Equal(t, map[string]int{"releasestatuses." + api.ReleaseStatusVersion.Group: 1, api.ReleaseRolloutDefinition: 1}, found)
}

// TestOneDefinitionOfClusterVersion: ordinary clusters get the fields that the module keeps from them.
func TestOneDefinitionOfClusterVersion(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "0000_00_cluster-version-operator_01_clusterversions-Default.crd.yaml")
	require.NoError(t, os.WriteFile(stale, nil, 0o600))
	other := filepath.Join(dir, "0000_00_cluster-version-operator_02_mine.yaml")
	require.NoError(t, os.WriteFile(other, nil, 0o600))

	names, err := apicrd.Copy(t.Context(), dir)

	require.NoError(t, err)
	assert.Len(t, names, 2)
	assert.NoFileExists(t, stale, "two definitions of one kind make no set")
	assert.FileExists(t, other)
	data, err := os.ReadFile(filepath.Join(dir, apicrd.Versions))
	require.NoError(t, err)
	list, err := manifest.Parse(apicrd.Versions, data, manifest.Limits{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	for _, set := range []string{"", "TechPreviewNoUpgrade", "CustomNoUpgrade", "OKD"} {
		why, excluded := manifest.Filter{Profile: api.DefaultProfile, FeatureSet: set}.Exclude(list[0])
		assert.False(t, excluded, "feature set %q: %s", set, why)
	}
	for _, field := range []string{"mode", "acceptRisks", "conditionalUpdateRisks", "riskNames"} {
		assert.Regexp(t, `\n +`+field+`:\n`, string(data))
	}
}
