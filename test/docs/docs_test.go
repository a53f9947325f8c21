// Package docs_test checks the documentation against the code.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// defects is the number of rows in the first table of docs/dev/known-troubles.md.
const defects = 19

// TestKnownTroublesNamesTests checks that docs/dev/known-troubles.md numbers all defects and that each table row names existing tests.
func TestKnownTroublesNamesTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/dev/known-troubles.md"))
	require.NoError(t, err)
	var numbers []int
	declared, named := tests(t), regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || strings.TrimSpace(cells[len(cells)-1]) == "tests" {
			continue // text, a separator or a heading
		}
		require.GreaterOrEqual(t, len(cells), 3, line)
		if number, err := strconv.Atoi(strings.TrimSpace(cells[0])); err == nil {
			numbers = append(numbers, number)
		}
		found := named.FindAllStringSubmatch(cells[len(cells)-1], -1)
		assert.NotEmpty(t, found, "no test for: %s", line)
		for _, name := range found {
			assert.Contains(t, declared, name[1])
		}
	}
	want := make([]int, defects)
	for i := range want {
		want[i] = i + 1
	}
	assert.Equal(t, want, numbers)
}

// TestWalkPageNamesFunctions checks that the walk for newcomers visits nine packages, and that all packages and functions on its page exist.
func TestWalkPageNamesFunctions(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/dev/walk.md"))
	require.NoError(t, err)
	packages := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| \\d\\. [^|]*\\| `([a-z/]+)\\.([A-Za-z.]+)` ").FindAllStringSubmatch(string(page), -1) {
		packages[row[1]] = true
	}
	assert.Len(t, packages, 9)
	for _, name := range regexp.MustCompile("`(pkg/[a-z/]+)(?:\\.([A-Za-z.]+))?`").FindAllStringSubmatch(string(page), -1) {
		functions := exported(t, name[1])
		assert.NotEmpty(t, functions, name[1])
		if name[2] != "" {
			assert.Contains(t, functions, name[2], "in %s", name[1])
		}
	}
}

// maxWords is the maximum length of a page for users, of the README and of CONTRIBUTING.
const maxWords = 900

func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	pages := pagesIn(t, "docs/user")
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		pages = append(pages, page{name: name, text: string(text)})
	}
	for _, page := range pages {
		assert.LessOrEqual(t, len(strings.Fields(page.text)), maxWords, "words of %s", page.name)
	}
}

// TestUserPagesBeginWithTheirPurpose checks that each page for users begins with its purpose, and shows a command before its first section.
func TestUserPagesBeginWithTheirPurpose(t *testing.T) {
	t.Parallel()
	purpose, shown := regexp.MustCompile("^This page (explains|lists) "), regexp.MustCompile(`(?m)^\$ \w`)
	for _, page := range pagesIn(t, "docs/user") {
		intro, _, _ := strings.Cut(page.text, "\n## ")
		assert.Regexp(t, purpose, paragraphs(intro)[0], page.name)
		assert.Regexp(t, shown, intro, "%s shows no command before its first section", page.name)
	}
}

// TestPackagesForOtherProgramsHaveAnExample checks that docs/architecture.md lists the packages with an example function, and no others.
func TestPackagesForOtherProgramsHaveAnExample(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n### Packages for other programs\n")
	section, _, _ = strings.Cut(section, "\n## ")
	listed, shown := map[string]bool{}, map[string]bool{}
	for _, name := range codeSpan.FindAllStringSubmatch(section, -1) {
		listed[name[1]] = true
	}
	example := regexp.MustCompile(`(?m)^func Example`)
	err = filepath.WalkDir(filepath.Join(root, "pkg"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err == nil && example.Match(source) {
			folder, err := filepath.Rel(filepath.Join(root, "pkg"), filepath.Dir(path))
			shown[filepath.ToSlash(folder)] = true
			return err
		}
		return err
	})
	require.NoError(t, err)
	assert.Equal(t, shown, listed)
}

// exported lists the exported functions of a package, with methods as Type.Method.
func exported(t *testing.T, dir string) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (?:\(\w+ \*?([A-Z]\w*)(?:\[\w+\])?\) )?([A-Z]\w*)[\[(]`)
	names := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range declared.FindAllStringSubmatch(string(source), -1) {
			names[strings.TrimPrefix(match[1]+"."+match[2], ".")] = true
		}
	}
	return names
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
