package docs_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
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
)

// threats are texts that must occur in the first column of docs/security.md.
var threats = []string{
	// Retrieval.
	"tag is moved", "tampered with", "mirror serves other content", "credentials leak", "plain HTTP, a redirect", "tokens expire",
	"endless responses", "slow and silent", "broken responses", "429", "decompression bombs", "million files", "`..`, absolute paths",
	"links, devices", "PAX", "schema version 1", "foreign and encrypted layers",
	// Verification.
	"none by a trusted signer", "policy with less authority", "wrong key", "expired key", "revoked key", "weak algorithms",
	"signature of another digest", "platform's image in place of the index", "wrong identity or issuer", "untrusted log",
	"tampered inclusion proof", "threshold", "older release, properly signed", "stores that lie", "messages that bomb", "force",
	// Payload.
	"alias bombs", "deep nesting", "huge documents", "duplicate keys", "NUL bytes", "byte order mark", "not UTF-8", "1.5 MB",
	// Cluster.
	"ClusterVersion is deleted", "extends its own permissions", "operator's endpoint", "ClusterVersion contains invalid values", "overrides",
	"operator's field manager name", "forges its managedFields", "replaces the history of ClusterVersion", "makes every save fail",
	// Other threats.
	"mistakes in a release", "cannot be rebuilt", "our signatures", "mirrored, or extracted", "interrupted", "content changes on the way",
	"poisoned", "half-written", "libraries of the host", "modules change",
}

// evidence matches a test on the page: folder, function, and the name of one of its cases.
var evidence = regexp.MustCompile("`((?:pkg|internal|test|cmd)/[a-z0-9/]+)\\.((?:Test|Fuzz)[A-Za-z0-9_]*)(?:/([^`]+))?`")

// TestSecurityNamesTests checks that every table row names a test, and that every named test and case exists.
func TestSecurityNamesTests(t *testing.T) {
	declared := functions(t)
	var first []string
	for _, row := range rows(t) {
		first = append(first, row[0])
		found := evidence.FindAllStringSubmatch(row[len(row)-1], -1)
		assert.NotEmpty(t, found, "no test for: %s", row[0])
		assert.Len(t, found, strings.Count(row[len(row)-1], "`")/2, "only tests of packages belong here: %s", row[len(row)-1])
		for _, named := range found {
			folder, name, of := named[1], named[2], named[3]
			_, ok := declared[folder+"."+name]
			if !assert.True(t, ok, "%s has no %s", folder, name) || of == "" {
				continue
			}
			texts := reached(declared, folder, name, map[string]bool{})
			assert.True(t, slices.Contains(texts, of) || slices.Contains(texts, strings.TrimPrefix(of, "it ")), "%s.%s has no case %q", folder, name, of)
		}
	}
	for _, threat := range threats {
		assert.True(t, slices.ContainsFunc(first, func(cell string) bool { return strings.Contains(cell, threat) }), "no row for: %s", threat)
	}
	assert.Len(t, slices.Compact(slices.Sorted(slices.Values(first))), len(first), "a row occurs twice")
}

// TestEveryParserIsFuzzed checks that the page and hack/fuzz.sh list every fuzz target of the shipped source, and that each target has seed
// inputs.
func TestEveryParserIsFuzzed(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/security.md"))
	require.NoError(t, err)
	var declared, missing []string
	for name, function := range functions(t) {
		folder, target, _ := strings.Cut(name, ".")
		if !strings.HasPrefix(target, "Fuzz") {
			continue
		}
		declared = append(declared, "./"+folder+" "+target)
		if strings.HasPrefix(folder, "pkg/") && !strings.Contains(string(page), "`"+name+"`") {
			missing = append(missing, name)
		}
		corpus, err := filepath.Glob(filepath.Join(root, folder, "testdata", "fuzz", target, "*"))
		require.NoError(t, err)
		assert.True(t, function.seeded || len(corpus) > 0, "%s has no seeds", name)
	}
	assert.Empty(t, missing, "docs/security.md has no row with these fuzz targets")
	require.Greater(t, len(declared), 40)
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "fuzz.sh"), "--list").Output()
	require.NoError(t, err)
	assert.ElementsMatch(t, declared, strings.Split(strings.TrimSpace(string(out)), "\n"))
}

// TestOperatorIsStatic checks that every build of the operator and of the node stage disables cgo, and that no dependency needs C code.
//
//threat:libraries-host-image
func TestOperatorIsStatic(t *testing.T) {
	built := 0
	for _, file := range []string{"Makefile", "Dockerfile", "hack/image.sh"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		for command := range strings.SplitSeq(strings.ReplaceAll(string(text), "\\\n", " "), "\n") {
			if !strings.Contains(command, "go build") || !strings.Contains(command, "./cmd/") {
				continue
			}
			built++
			assert.Contains(t, command, "CGO_ENABLED=0", file)
			assert.Contains(t, command, "-trimpath", file)
		}
	}
	assert.Equal(t, 5, built)
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if or .CgoFiles .CFiles .SysoFiles}}{{.ImportPath}}{{end}}", "./cmd/...")
	list.Dir = root
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.Output()
	require.NoError(t, err)
	assert.Empty(t, strings.TrimSpace(string(out)))
}

// TestModulesArePinned checks that modules are downloaded under their own names, with the reviewed checksums.
//
//threat:modules-change
func TestModulesArePinned(t *testing.T) {
	var mod struct {
		Require []struct{ Path, Version string }
		Replace []any
	}
	edit := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	edit.Dir = root
	out, err := edit.Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &mod))
	assert.Empty(t, mod.Replace)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	require.NotEmpty(t, mod.Require)
	for _, m := range mod.Require {
		assert.Contains(t, string(sums), m.Path+" "+m.Version+"/go.mod h1:")
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^verify:.* verify-modules`, string(makefile))
	assert.Contains(t, string(makefile), "go mod verify")
}

// rows returns the rows of the page's tables without their headings.
func rows(t *testing.T) [][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs/security.md"))
	require.NoError(t, err)
	var all [][]string
	head := true
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			head = true
		case strings.HasPrefix(line, "|---"):
			head = false
		case !head:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			all = append(all, cells)
		}
	}
	require.NotEmpty(t, all)
	return all
}

// function is a test or a test helper, as parsed from its source.
type function struct {
	// texts are its string literals.
	texts []string
	// names are its identifiers, some of which are functions.
	names []string
	// seeded reports whether it adds seed inputs itself.
	seeded bool
}

// reached returns the strings of a test and of the functions in its folder that it calls, because functions may hold long tables.
func reached(declared map[string]function, folder, name string, seen map[string]bool) []string {
	body, ok := declared[folder+"."+name]
	if !ok || seen[name] {
		return nil
	}
	seen[name] = true
	texts := slices.Clone(body.texts)
	for _, used := range body.names {
		texts = append(texts, reached(declared, folder, used, seen)...)
	}
	return texts
}

// functions returns the functions of the repository's tests by folder and name.
func functions(t *testing.T) map[string]function {
	t.Helper()
	all := map[string]function{}
	for _, top := range []string{"cmd", "internal", "pkg", "test"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			folder, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			for _, declaration := range file.Decls {
				if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil {
					all[filepath.ToSlash(folder)+"."+f.Name.Name] = read(f)
				}
			}
			return nil
		})
		require.NoError(t, err)
	}
	return all
}

func read(f *ast.FuncDecl) function {
	var out function
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
				out.texts = append(out.texts, text)
			}
		case *ast.Ident:
			out.names = append(out.names, n.Name)
		case *ast.SelectorExpr:
			out.seeded = out.seeded || n.Sel.Name == "Add"
		}
		return true
	})
	return out
}
