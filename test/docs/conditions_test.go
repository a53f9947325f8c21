package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestConditionsPageIsComplete checks that docs/user/conditions.md explains every condition and reason that package api
// names.
func TestConditionsPageIsComplete(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/user/conditions.md"))
	require.NoError(t, err)
	source, err := os.ReadFile(filepath.Join(root, "pkg/api/conditions.go"))
	require.NoError(t, err)
	declared := regexp.MustCompile(`(?m)^\t(?:Reason\w+|\w+ +configv1\.ClusterStatusConditionType) += "(\w+)"`).FindAllSubmatch(source, -1)
	require.Greater(t, len(declared), 25)
	for _, name := range declared {
		assert.Regexp(t, "`"+string(name[1])+"`", string(page))
	}
}
