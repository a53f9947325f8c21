package manifests_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/manifests/apicrd"
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

// TestDefinitionsLackOnlyDescriptions compares the definitions in the repository with those of the API module.
func TestDefinitionsLackOnlyDescriptions(t *testing.T) {
	definitions, err := apicrd.Read(t.Context())
	require.NoError(t, err)
	for name, definition := range definitions {
		var plain, described any
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(data, &plain))
		require.NoError(t, yaml.Unmarshal(definition, &described))
		requireOnlyDescriptions(t, described, plain, name)
	}
}

func requireOnlyDescriptions(t *testing.T, described, plain any, at string) {
	t.Helper()
	fields, ok := described.(map[string]any)
	if !ok {
		list, _ := described.([]any)
		for i, entry := range list {
			require.IsType(t, list, plain, at)
			require.Len(t, plain, len(list), at)
			requireOnlyDescriptions(t, entry, plain.([]any)[i], fmt.Sprintf("%s[%d]", at, i))
		}
		if list == nil {
			require.Equal(t, described, plain, at)
		}
		return
	}
	require.IsType(t, fields, plain, at)
	rest := maps.Clone(plain.(map[string]any))
	for name, value := range fields {
		if text, ok := value.(string); ok && name == "description" {
			require.NotContains(t, rest, name, "%s: %s", at, text)
			continue
		}
		require.Contains(t, rest, name, at)
		requireOnlyDescriptions(t, value, rest[name], at+"."+name)
		delete(rest, name)
	}
	require.Empty(t, rest, at)
}
