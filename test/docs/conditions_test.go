package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
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

// TestEveryReasonHasARemedy checks that whatever reason the operator may give for something, in a condition, a precondition
// or a refusal, the pages for users have a row or a sentence about it, that is more than its name.
func TestEveryReasonHasARemedy(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs/user/*.md"))
	require.NoError(t, err)
	var lines []string
	for _, page := range pages {
		data, err := os.ReadFile(page)
		require.NoError(t, err)
		lines = append(lines, paragraphs(string(data))...)
	}
	found := reasons(t)
	require.Greater(t, len(found), 80)
	for _, reason := range slices.Sorted(maps.Keys(found)) {
		told := slices.ContainsFunc(lines, func(line string) bool {
			return strings.Contains(line, "`"+reason+"`") && explains(line)
		})
		assert.True(t, told, "no page in docs/user says what to do about %s (%s)", reason, found[reason])
	}
}

// paragraphs are the rows of a page's tables and its paragraphs, each in one line.
func paragraphs(page string) []string {
	var all []string
	joined := false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch row := strings.HasPrefix(line, "|"); {
		case row || line == "" || strings.HasPrefix(line, "#"):
			joined = false
			if row {
				all = append(all, line)
			}
		case joined && !strings.HasPrefix(line, "- ") && !strings.HasPrefix(line, "* "):
			all[len(all)-1] += " " + line
		default:
			all = append(all, line)
			joined = true
		}
	}
	return all
}

// explains tells whether a row has, besides the reason, what it means and what to do, or a paragraph some words.
func explains(line string) bool {
	if !strings.HasPrefix(line, "|") {
		return len(strings.Fields(line)) > 12
	}
	cells := strings.Split(strings.Trim(line, "|"), "|")
	filled := 0
	for _, cell := range cells {
		if strings.TrimSpace(cell) != "" {
			filled++
		}
	}
	return filled >= 2
}

var camelCase = regexp.MustCompile(`^[A-Z][a-z]*[A-Z]?\w+$`)

// reasons are the values of all constants and fields of what is shipped that are called a reason, with where they are.
func reasons(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(filepath.Join(root, "pkg"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		note := func(value ast.Expr) {
			if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil && camelCase.MatchString(text) {
					found[text] = path
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if i < len(n.Values) && strings.HasPrefix(strings.ToLower(name.Name), "reason") {
						note(n.Values[i])
					}
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "reason") {
					note(n.Value)
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if name := assigned(left); i < len(n.Rhs) && strings.EqualFold(name, "reason") {
						note(n.Rhs[i])
					}
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	return found
}

func assigned(left ast.Expr) string {
	switch left := left.(type) {
	case *ast.Ident:
		return left.Name
	case *ast.SelectorExpr:
		return left.Sel.Name
	}
	return ""
}
