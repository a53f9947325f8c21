package manifests_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/api"
)

// TestSetDefinesOurKinds checks that the set contains the definitions. Without them, the operator would still work but silently record
// nothing.
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
