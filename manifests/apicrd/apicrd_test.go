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
	dir := t.TempDir()
	names, err := apicrd.Copy(t.Context(), dir)

	require.NoError(t, err)
	assert.Len(t, names, 2)
	data, err := os.ReadFile(filepath.Join(dir, apicrd.Versions))
	require.NoError(t, err)
	list, err := manifest.Parse(apicrd.Versions, data, manifest.Limits{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	for _, set := range []string{"", "TechPreviewNoUpgrade", "CustomNoUpgrade", "OKD"} {
		why, excluded := inclusion.Filter{Profile: api.DefaultProfile, FeatureSet: set}.Exclude(list[0])
		assert.False(t, excluded, "feature set %q: %s", set, why)
	}
	for _, field := range []string{"mode", "acceptRisks", "conditionalUpdateRisks", "riskNames"} {
		assert.Regexp(t, `\n +`+field+`:\n`, string(data))
	}
}

// TestCopyDoesNotRewriteEqualFiles checks that an equal file keeps its modification time, so nothing is rebuilt.
func TestCopyDoesNotRewriteEqualFiles(t *testing.T) {
	dir := t.TempDir()
	names, err := apicrd.Copy(t.Context(), dir)
	require.NoError(t, err)
	require.Len(t, names, 2)
	before := time.Unix(1_700_000_000, 0)
	for _, name := range names {
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), before, before))
	}
	changed := filepath.Join(dir, names[0])
	require.NoError(t, os.WriteFile(changed, []byte("edited"), 0o600))

	_, err = apicrd.Copy(t.Context(), dir)

	require.NoError(t, err)
	same, err := os.Stat(filepath.Join(dir, names[1]))
	require.NoError(t, err)
	assert.True(t, same.ModTime().Equal(before), "an equal file must not be rewritten")
	data, err := os.ReadFile(changed)
	require.NoError(t, err)
	assert.NotEqual(t, "edited", string(data))
}

func TestCopyReportsMissingSources(t *testing.T) {
	_, err := apicrd.Copy(t.Context(), filepath.Join(t.TempDir(), "missing"))
	require.ErrorContains(t, err, "writing a definition")

	t.Setenv("GOWORK", "off")
	t.Chdir(t.TempDir())
	_, err = apicrd.Copy(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "running go list -m", "a directory outside a module has no pinned definitions")
}
