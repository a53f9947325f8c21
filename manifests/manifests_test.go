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

// TestSetDefinesReleaseStatus: the operator goes on without the definition and records nothing, so nobody would miss it.
func TestSetDefinesReleaseStatus(t *testing.T) {
	var found []string
	names, err := fs.Glob(manifests.FS(), "*.yaml")
	require.NoError(t, err)
	for _, name := range names {
		data, err := fs.ReadFile(manifests.FS(), name)
		require.NoError(t, err)
		if strings.Contains(string(data), "name: releasestatuses."+api.ReleaseStatusVersion.Group) {
			found = append(found, name)
		}
	}
	assert.Len(t, found, 1)
}
