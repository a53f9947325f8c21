package verify_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify"
)

// Every example of the user's documentation is read as it is printed there.
func TestDocumentedExamples(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "user", "trust.md"))
	require.NoError(t, err)
	file, err := newSigstore(t).TrustedRoot()
	require.NoError(t, err)
	counts := map[string]int{}
	for _, match := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(data), -1) {
		example := match[1]
		kind := regexp.MustCompile(`(?m)^kind: (\w+)`).FindStringSubmatch(example)
		require.NotNil(t, kind, example)
		counts[kind[1]]++
		if kind[1] == "ClusterImagePolicy" {
			policies, err := verify.ParseClusterImagePolicies("trust.md", []byte(example))
			require.NoError(t, err, example)
			assert.Len(t, policies, strings.Count(example, "kind: "))
			continue
		}
		dir := t.TempDir()
		path := filepath.Join(dir, "trust.yaml")
		require.NoError(t, os.WriteFile(path, []byte(example), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "trusted_root.json"), file, 0o600))
		policy, err := verify.ReadTrust(path)
		require.NoError(t, err, example)
		assert.Equal(t, path, policy.Name)
		assert.Equal(t, strings.Contains(example, "thresholds:"), len(policy.Thresholds) > 0)
	}
	assert.Equal(t, map[string]int{"TrustPolicy": 6, "ConfigMap": 2, "ClusterImagePolicy": 1}, counts)
}
