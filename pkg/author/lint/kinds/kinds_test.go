package kinds_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/lint/kinds"
)

func TestTargetIsTheFirstValidVersion(t *testing.T) {
	version, err := kinds.ParseVersion("v1.36.0-rc.1")
	require.NoError(t, err)
	assert.Equal(t, "1.36", version.String())
	_, err = kinds.ParseVersion("latest")
	require.ErrorContains(t, err, "use a format such as 1.36")

	assert.Equal(t, "1.30", kinds.Target("", "1.30.2", "1.31").String())
}

var nonNamespaced = regexp.MustCompile(`(?s)// \+genclient:nonNamespaced\n(?:[^\n]*//[^\n]*\n|\n)*?type (\w+) \w+`)

// TestClusterScopedKindsMatchTheSources reads source code, because only the source of a type defines its scope.
func TestClusterScopedKindsMatchTheSources(t *testing.T) {
	marked := map[string]bool{}
	dirs := []string{moduleDir(t, "k8s.io/api"), moduleDir(t, "k8s.io/apiextensions-apiserver")}
	for _, group := range []string{"apps", "authorization", "build", "image", "oauth", "project", "route", "template", "user"} {
		dirs = append(dirs, filepath.Join(moduleDir(t, "github.com/openshift/api"), group))
	}
	for _, dir := range dirs {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), "types") || !strings.HasSuffix(path, ".go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range nonNamespaced.FindAllStringSubmatch(string(text), -1) {
				marked[m[1]] = true
			}
			return err
		}))
	}
	for kind, clusterScoped := range kinds.Scopes() {
		name, _, _ := strings.Cut(kind, ".")
		if name == "APIService" || strings.HasSuffix(name, "Review") {
			continue // APIService is defined elsewhere; reviews are not stored, and several kinds share a name
		}
		assert.Equal(t, marked[name], clusterScoped, "%s: the scope does not match the marker +genclient:nonNamespaced", kind)
	}
}

func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// TestNewestKubernetesMatchesTheAPITypes compares the newest known version with the imported module.
func TestNewestKubernetesMatchesTheAPITypes(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/api").Output()
	require.NoError(t, err)
	assert.Regexp(t, `^v0\.`+strings.TrimPrefix(kinds.Target().String(), "1.")+`\.`, string(out))
}
