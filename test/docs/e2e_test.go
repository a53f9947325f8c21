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

// TestPageListsAllStepsOnClusters compares the steps of the tests on real clusters with the page. A row such as `TestFault/…` names several
// steps in its text.
func TestPageListsAllStepsOnClusters(t *testing.T) {
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(Test\\w+)/(…|\\w+)` \\|(.*)$").FindAllStringSubmatch(readText(t, "docs/dev/e2e.md"), -1) {
		if row[2] != "…" {
			listed[row[1]+"/"+row[2]] = true
			continue
		}
		for _, name := range regexp.MustCompile("`([A-Z]\\w+)`").FindAllStringSubmatch(row[3], -1) {
			listed[row[1]+"/"+name[1]] = true
		}
	}
	steps, test := map[string]bool{}, ""
	for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)|^\t\t\{"(\w+)", test\w+\},$`).FindAllStringSubmatch(readText(t, "test/e2e/main_test.go"), -1) {
		if found[1] != "" {
			test = found[1]
			continue
		}
		steps[test+"/"+found[2]] = true
	}
	assert.Greater(t, len(steps), 15)
	assert.Equal(t, steps, listed)
}

// TestPageListsAllVariablesOfClusters looks for the variables that scripts and tests read.
func TestPageListsAllVariablesOfClusters(t *testing.T) {
	page := readText(t, "docs/dev/e2e.md")
	found := 0
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "test/e2e"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range regexp.MustCompile(`CVO_E2E_[A-Z_]+|KIND_NODE_IMAGE`).FindAllString(string(text), -1) {
			found++
			assert.True(t, strings.Contains(page, "\n| `"+name+"` |") || strings.Contains(page, "\n| `"+name+"=1` |"), "%s in %s", name, path)
		}
		return err
	}))
	assert.Greater(t, found, 10)
}

// TestPublicNodeImageHasThePinnedKubernetes compares the minor version of the public node image with that of our own image and of the
// control planes of other tests.
func TestPublicNodeImageHasThePinnedKubernetes(t *testing.T) {
	image := regexp.MustCompile(`kindest/node:v(\d+\.\d+)\.`).FindStringSubmatch(readText(t, "test/e2e/prepare.sh"))
	pinned := regexp.MustCompile(`(?m)^\s+k8s\.io/kubernetes v(\d+\.\d+)\.`).FindStringSubmatch(readText(t, "test/kube/go.mod"))
	require.NotEmpty(t, image)
	require.NotEmpty(t, pinned)
	assert.Equal(t, pinned[1], image[1])
}

// readText returns a file of the repository.
func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}
