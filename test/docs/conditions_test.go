package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli"
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
// or a refusal, the pages for users have a row about it with what it means or what to do, or a paragraph.
func TestEveryReasonHasARemedy(t *testing.T) {
	t.Parallel()
	told := map[string]bool{}
	for _, page := range userPages(t) {
		for _, table := range tables(page.text) {
			for _, row := range table.rows {
				if filled := slices.DeleteFunc(slices.Clone(row), func(cell string) bool { return cell == "" }); len(filled) > 1 {
					note(told, strings.Join(filled, " "))
				}
			}
		}
		for _, text := range paragraphs(page.text) {
			if len(strings.Fields(text)) > 12 {
				note(told, text)
			}
		}
	}
	found := reasons(t)
	require.Greater(t, len(found), 80)
	for _, reason := range slices.Sorted(maps.Keys(found)) {
		assert.True(t, told[reason], "no page in docs/user says what to do about %s (%s)", reason, found[reason])
	}
}

// TestReasonsOfPagesAreGiven checks that the pages name no reason that nothing gives any more: whatever stands in a column
// of reasons is in the source of what is shipped, or of the API that it writes.
func TestReasonsOfPagesAreGiven(t *testing.T) {
	t.Parallel()
	given := literals(t)
	named := 0
	for _, page := range userPages(t) {
		for _, table := range tables(page.text) {
			column := slices.Index(table.head, "reason")
			if column < 0 {
				continue
			}
			for _, row := range table.rows {
				require.Greater(t, len(row), column, "%s: %s", page.name, row)
				reasons := map[string]bool{}
				note(reasons, row[column])
				for reason := range reasons {
					named++
					assert.True(t, given[reason], "%s explains the reason %s, which nothing gives", page.name, reason)
				}
			}
		}
	}
	require.Greater(t, named, 60)
}

// TestRemediesParse checks that the commands in tables, which are what a reader is to do, are such.
func TestRemediesParse(t *testing.T) {
	t.Parallel()
	kubectl := kubectlPath(t)
	seen := map[string]bool{}
	for _, page := range userPages(t) {
		for _, table := range tables(page.text) {
			for _, row := range table.rows {
				for _, span := range codeSpan.FindAllStringSubmatch(strings.Join(row, " "), -1) {
					for _, words := range simple(span[1]) {
						if line := strings.Join(words, " "); len(words) > 1 && !seen[line] {
							seen[line] = true
							switch words[0] {
							case "cvo":
								if !commandNamed(words[1:]) {
									require.NoError(t, parsedByCVO(words[1:]), "%s: %s", page.name, line)
								}
							case "kubectl":
								require.NoError(t, parsedByKubectl(t, kubectl, words[1:]), "%s: %s", page.name, line)
							}
						}
					}
				}
			}
		}
	}
	require.Greater(t, len(seen), 20)
}

// commandNamed tells whether somebody only speaks of a command of cvo, by its name.
func commandNamed(words []string) bool {
	_, rest, err := cli.New(cli.Streams{}).Find(words)
	return err == nil && len(rest) == 0
}

type page struct{ name, text string }

// userPages are the pages for users.
func userPages(t *testing.T) []page {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "docs/user/*.md"))
	require.NoError(t, err)
	var pages []page
	for _, name := range names {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		pages = append(pages, page{name: filepath.Base(name), text: string(data)})
	}
	return pages
}

// table is one of a page, cell by cell.
type table struct {
	head []string
	rows [][]string
}

func tables(text string) []table {
	var all []table
	open := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			open = false
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(strings.ReplaceAll(line, `\|`, "\x00"), "|"), "|"), "|")
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cell, "\x00", "|"))
		}
		switch {
		case !open:
			all = append(all, table{head: cells})
			open = true
		case strings.HasPrefix(line, "|---"):
		default:
			all[len(all)-1].rows = append(all[len(all)-1].rows, cells)
		}
	}
	return all
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// note adds the reasons that a text names.
func note(reasons map[string]bool, text string) {
	for _, span := range codeSpan.FindAllStringSubmatch(text, -1) {
		if camelCase.MatchString(span[1]) {
			reasons[span[1]] = true
		}
	}
}

// paragraphs are those of a page, each in one line, without its tables.
func paragraphs(text string) []string {
	var all []string
	joined := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "|") || line == "" || strings.HasPrefix(line, "#"):
			joined = false
		case joined && !strings.HasPrefix(line, "- ") && !strings.HasPrefix(line, "* "):
			all[len(all)-1] += " " + line
		default:
			all = append(all, line)
			joined = true
		}
	}
	return all
}

// literals are the strings of what is shipped, and of the API that conditions are named by.
func literals(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	require.NoError(t, err)
	for _, folder := range []string{filepath.Join(root, "pkg"), filepath.Join(strings.TrimSpace(string(out)), "config", "v1")} {
		sources(t, folder, func(file *ast.File, _ string) {
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil {
						found[text] = true
					}
				}
				return true
			})
		})
	}
	return found
}

// sources reads the Go files below a folder, but those of tests.
func sources(t *testing.T, folder string, see func(file *ast.File, path string)) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			see(file, path)
		}
		return err
	})
	require.NoError(t, err)
}

var camelCase = regexp.MustCompile(`^[A-Z][a-z]*[A-Z]?\w+$`)

// reasons are the values of all constants and fields of what is shipped that are called a reason, with where they are.
func reasons(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	sources(t, filepath.Join(root, "pkg"), func(file *ast.File, path string) {
		literal := func(value ast.Expr) {
			if value, ok := value.(*ast.BasicLit); ok && value.Kind == token.STRING {
				if text, err := strconv.Unquote(value.Value); err == nil && camelCase.MatchString(text) {
					found[text] = path
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if i < len(n.Values) && strings.HasPrefix(strings.ToLower(name.Name), "reason") {
						literal(n.Values[i])
					}
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "reason") {
					literal(n.Value)
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if name := assigned(left); i < len(n.Rhs) && strings.EqualFold(name, "reason") {
						literal(n.Rhs[i])
					}
				}
			}
			return true
		})
	})
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
