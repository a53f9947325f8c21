package apicrd_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/manifests/apicrd"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// TestOrdinaryClustersGetAllFields checks that ordinary clusters get the fields that the module's definition lacks.
func TestOrdinaryClustersGetAllFields(t *testing.T) {
	definitions, err := apicrd.Read(t.Context())
	require.NoError(t, err)
	assert.Len(t, definitions, 2)
	data := definitions[apicrd.Versions]
	list, err := manifest.Parse(apicrd.Versions, data, manifest.Limits{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	requireEverywhere(t, list[0])
	for _, field := range []string{"mode", "acceptRisks", "conditionalUpdateRisks", "riskNames"} {
		assert.Regexp(t, `\n +`+field+`:\n`, string(data))
	}
}

func requireEverywhere(t *testing.T, m *manifest.Manifest) {
	t.Helper()
	for _, set := range []string{"", "TechPreviewNoUpgrade", "CustomNoUpgrade", "OKD"} {
		why, excluded := inclusion.Filter{Profile: api.DefaultProfile, FeatureSet: set}.Exclude(m)
		assert.False(t, excluded, "feature set %q: %s", set, why)
	}
}

func TestNodeStageHasOneDefinitionForEachKind(t *testing.T) {
	definitions, err := apicrd.NodeStage(t.Context())
	require.NoError(t, err)
	kinds := map[string]int{}
	for name, data := range definitions {
		list, err := manifest.Parse(name, data, manifest.Limits{})
		require.NoError(t, err)
		require.Len(t, list, 1)
		requireEverywhere(t, list[0])
		kinds[list[0].Object.GetName()]++
	}
	assert.Equal(t, map[string]int{
		"machineconfigs.machineconfiguration.openshift.io": 1, "machineconfigpools.machineconfiguration.openshift.io": 1,
		"controllerconfigs.machineconfiguration.openshift.io": 1, "machineconfignodes.machineconfiguration.openshift.io": 1,
		"kubeletconfigs.machineconfiguration.openshift.io": 1, "machineconfigurations.operator.openshift.io": 1,
	}, kinds)
}

// TestEqualFilesAreNotRewritten checks that an equal file keeps its modification time, so nothing is rebuilt.
func TestEqualFilesAreNotRewritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a")
	require.NoError(t, apicrd.WriteChanged(file, []byte("one")))
	before := time.Unix(1_700_000_000, 0)
	require.NoError(t, os.Chtimes(file, before, before))
	require.NoError(t, apicrd.WriteChanged(file, []byte("one")))
	same, err := os.Stat(file)
	require.NoError(t, err)
	assert.True(t, same.ModTime().Equal(before), "an equal file must not be rewritten")

	require.NoError(t, apicrd.WriteChanged(file, []byte("two")))
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "two", string(data))
	require.ErrorContains(t, apicrd.WriteChanged(filepath.Join(t.TempDir(), "missing", "a"), nil), "writing a definition")
}

func TestReadNeedsTheModule(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Chdir(t.TempDir())
	_, err := apicrd.Read(t.Context())
	require.ErrorContains(t, err, "running go list -m", "a directory outside a module has no pinned definitions")
}
