package hack

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGateRunsTheMainPaths compares the Makefile's list with the tests: `go test -run` ignores a name without a test.
func TestGateRunsTheMainPaths(t *testing.T) {
	for folder, variable := range map[string]string{"test/integration": "MAIN_PATHS", "test/nodes": "NODE_PATHS"} {
		files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
		require.NoError(t, err)
		var source []byte
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			source = append(source, data...)
		}
		names := regexp.MustCompile(`Test\w+`).FindAllString(makeVariable(t, variable), -1)
		require.NotEmpty(t, names)
		for _, name := range names {
			assert.True(t, bytes.Contains(source, []byte("\nfunc "+name+"(t *testing.T)")), "%s has no %s", folder, name)
		}
	}
}

func makefile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	return string(text)
}

// makeVariable returns the value of a variable in the Makefile.
func makeVariable(t *testing.T, name string) string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^` + name + ` := (.*)$`).FindStringSubmatch(makefile(t))
	require.NotNil(t, line, name)
	return line[1]
}

// TestBuildersAreNotCached looks for packages whose tests build programs, or run scripts or installed programs. Go's test cache tracks none of
// them.
func TestBuildersAreNotCached(t *testing.T) {
	builds := regexp.MustCompile(`"build", "-|exec\.Command.*"build"|exec\.Command.*\.sh"|program\.Build\(|platform\.New\(|fixture\.(Promtool|RunPrometheus)\(`)
	uncached := regexp.MustCompile(`^(test/(` + makeVariable(t, "WHOLE") + `)|` + makeVariable(t, "BUILDERS") + `)$`)
	found := 0
	for _, folder := range []string{"charts", "cmd", "docs", "examples", "hack", "internal", "manifests", "pkg", "test"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil || !builds.Match(source) {
				return err
			}
			found++
			folder, err := filepath.Rel("..", filepath.Dir(path))
			assert.Regexp(t, uncached, filepath.ToSlash(folder), "add the package to BUILDERS in the Makefile, because %s builds a program, or runs a script or an installed program", path)
			return err
		}))
	}
	assert.Greater(t, found, 5)
}

// TestVerifyComparesBeforeItGenerates checks that nothing repairs an outdated file before `make verify` looks for it.
func TestVerifyComparesBeforeItGenerates(t *testing.T) {
	output, err := runMake(t, t.TempDir(), "--dry-run", "verify").CombinedOutput()
	require.NoError(t, err, "%s", output)
	assert.Equal(t, "hack/verify-generated.sh", regexp.MustCompile(`\S*generate\S*`).FindString(string(output)))
}

// TestTargetsThatReadResultsNeedCommands looks for recipes that read results, which would fail after a long run without these commands.
func TestTargetsThatReadResultsNeedCommands(t *testing.T) {
	found := 0
	for _, rule := range regexp.MustCompile(`(?m)^([a-z0-9-]+):(.*)\n((\t.*\n)+)`).FindAllStringSubmatch(makefile(t), -1) {
		if !strings.Contains(rule[3], "$(call gotest,") && !strings.Contains(rule[3], "hack/results") {
			continue
		}
		found++
		prerequisites, _, _ := strings.Cut(rule[2], "##")
		assert.Contains(t, strings.Fields(prerequisites), "commands", "%s", rule[1])
	}
	assert.Greater(t, found, 5)
}
