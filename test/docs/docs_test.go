// Package docs_test holds what the documentation says of the code against the code.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// TestKnownTroublesNamesTests checks that every test that docs/dev/known-troubles.md names is there.
func TestKnownTroublesNamesTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/dev/known-troubles.md"))
	require.NoError(t, err)
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z]+)`").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, named)
	there := tests(t)
	for _, name := range named {
		assert.Contains(t, there, name[1])
	}
}

// tests lists the test functions of the repository.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`)
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range declared.FindAllSubmatch(source, -1) {
			names[string(match[1])] = true
		}
		return err
	})
	require.NoError(t, err)
	return names
}
