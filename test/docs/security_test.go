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

// evidence matches a test on the page: folder, function, and the name of one of its cases.
var evidence = regexp.MustCompile("`((?:pkg|internal|test|cmd)/[a-z0-9/]+)\\.((?:Test|Fuzz)[A-Za-z0-9_]*)(?:/([^`]+))?`")

// TestSecurityNamesCases checks that every named case of a test exists. hack/threats, which writes the names, checks the tests.
func TestSecurityNamesCases(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/security.md"))
	require.NoError(t, err)
	declared := functions(t)
	cases := 0
	for _, named := range evidence.FindAllStringSubmatch(string(page), -1) {
		folder, name, of := named[1], named[2], named[3]
		if of == "" {
			continue
		}
		cases++
		texts := reached(declared, folder, name, map[string]bool{})
		assert.True(t, slices.Contains(texts, of) || slices.Contains(texts, strings.TrimPrefix(of, "it ")), "%s.%s has no case %q", folder, name, of)
	}
	assert.Greater(t, cases, 50)
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

// TestModulesArePinned checks that modules are downloaded under their own names, and that `make verify` compares their checksums.
//
//threat:modules-change
func TestModulesArePinned(t *testing.T) {
	var mod struct{ Replace []any }
	edit := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	edit.Dir = root
	out, err := edit.Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &mod))
	assert.Empty(t, mod.Replace)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^verify:.* verify-modules`, string(makefile))
	assert.Contains(t, string(makefile), "go mod tidy -diff")
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
