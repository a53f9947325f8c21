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
	"github.com/cluster-version/cvo/pkg/cli/command"
)

// TestEveryReasonHasARemedy checks every reason that the operator may give in a condition, a precondition or a rejection. The pages must have
// a paragraph about it, or a table row with its meaning or its remedy. The references have a row for each constant with a comment.
func TestEveryReasonHasARemedy(t *testing.T) {
	t.Parallel()
	reported := map[string]bool{}
	for _, page := range userPages(t) {
		for _, table := range tables(page.text) {
			for _, row := range table.rows {
				if filled := slices.DeleteFunc(slices.Clone(row), func(cell string) bool { return cell == "" }); len(filled) > 1 {
					note(reported, strings.Join(filled, " "))
				}
			}
		}
		for _, text := range paragraphs(page.text) {
			if len(strings.Fields(text)) > 12 {
				note(reported, text)
			}
		}
	}
	found := reasons(t)
	require.Greater(t, len(found), 80)
	for _, reason := range slices.Sorted(maps.Keys(found)) {
		assert.True(t, reported[reason], "no page in docs/user or docs/reference explains %s (%s)", reason, found[reason])
	}
}

// TestPagesNameNoObsoleteReason checks that every reason in a column of symptoms still exists in the shipped source, or in the API that it
// writes. It reads the pages that people write: the references are generated from the source.
func TestPagesNameNoObsoleteReason(t *testing.T) {
	t.Parallel()
	given := literals(t)
	named := map[string]int{}
	for _, page := range pagesIn(t, "docs/user") {
		for _, table := range tables(page.text) {
			head := table.head[0]
			if !slices.Contains([]string{"reason", "event", "you see"}, head) {
				continue
			}
			for _, row := range table.rows {
				reasons := map[string]bool{}
				note(reasons, row[0])
				for reason := range reasons {
					named[head]++
					assert.True(t, given[reason], "%s explains the reason %s, which does not exist", page.name, reason)
				}
			}
		}
	}
	assert.GreaterOrEqual(t, named["reason"], 8)
	assert.GreaterOrEqual(t, named["event"], 3)
	assert.GreaterOrEqual(t, named["you see"], 15)
}

// TestRemedyCommandsParse checks that the commands in tables, which readers are to run, are valid.
func TestRemedyCommandsParse(t *testing.T) {
	t.Parallel()
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
								require.NoError(t, parsedByKubectl(t, words[1:]), "%s: %s", page.name, line)
							}
						}
					}
				}
			}
		}
	}
	require.Greater(t, len(seen), 20)
}

// commandNamed reports whether a text only mentions a command of cvo.
func commandNamed(words []string) bool {
	_, rest, err := cli.New(command.Streams{}).Find(words)
	return err == nil && len(rest) == 0
}

type page struct{ name, text string }

// userPages returns the pages for users, with the references.
func userPages(t *testing.T) []page {
	t.Helper()
	return append(pagesIn(t, "docs/user"), pagesIn(t, "docs/reference")...)
}

// pagesIn returns the pages in a folder of the repository.
func pagesIn(t *testing.T, folder string) []page {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, folder, "*.md"))
	require.NoError(t, err)
	var pages []page
	for _, name := range names {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		pages = append(pages, page{name: filepath.Base(name), text: string(data)})
	}
	return pages
}

// table is a table of a page, cell by cell.
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

// note adds the reasons in a text.
func note(reasons map[string]bool, text string) {
	for _, span := range codeSpan.FindAllStringSubmatch(text, -1) {
		if camelCase.MatchString(span[1]) {
			reasons[span[1]] = true
		}
	}
}

// paragraphs returns the paragraphs of a page without its tables, each on one line.
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

// literals returns the strings in the shipped source and in the API that defines conditions.
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

// sources parses the Go files in a folder tree, except tests, and calls see for each.
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

// reasons returns the values of all constants and fields of the shipped source that are named as a reason, with their
// positions.
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
