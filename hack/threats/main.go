// Command threats writes the tests of each threat into the tables of a page, based on directives in the tests. A row of the page has an ID
// in a comment:
//
//	| a threat <!-- threat:ID --> | what happens | tests |
//
// A test or fuzz target names its rows in its doc comment, for itself or for one of its subtests:
//
//	//threat:ID
//	//threat:ID name of the subtest
//
// The command replaces the last cell of each row with these names, sorted by package, file and line. It fails if a row has no test, or if a
// directive names no row.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:generate go run . ../.. docs/security.md

const directive = "//threat:"

// test is a test that belongs to a threat.
type test struct {
	threat string
	// name is the folder of the package, the function, and the subtest if the directive names one.
	name string
	// file and line locate the directive.
	file string
	line int
}

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: threats ROOT PAGE\n\nWrites the tests below ROOT into the tables of PAGE, a path below ROOT.")
	}
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(root, page string) error {
	tests, err := find(os.DirFS(root))
	if err != nil {
		return err
	}
	file := filepath.Join(root, filepath.FromSlash(page))
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	out, err := fill(string(text), tests)
	if err != nil {
		return fmt.Errorf("writing the tests into %s: %w", page, err)
	}
	return os.WriteFile(file, []byte(out), 0o644)
}

// find returns the tests with directives below a root, sorted by folder, file and line. It skips hidden folders.
func find(root fs.FS) ([]test, error) {
	var tests []test
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		found, err := read(name, source)
		tests = append(tests, found...)
		return err
	})
	slices.SortStableFunc(tests, func(a, b test) int {
		return cmp.Or(cmp.Compare(path.Dir(a.file), path.Dir(b.file)), cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	return tests, err
}

// read returns the tests with directives of one file.
func read(name string, source []byte) ([]test, error) {
	if !strings.Contains(string(source), directive) {
		return nil, nil
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var tests []test
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Doc == nil {
			continue
		}
		for _, comment := range function.Doc.List {
			text, ok := strings.CutPrefix(comment.Text, directive)
			if !ok {
				continue
			}
			threat, subtest, _ := strings.Cut(strings.TrimSpace(text), " ")
			full := path.Dir(name) + "." + function.Name.Name
			if subtest = strings.TrimSpace(subtest); subtest != "" {
				full += "/" + subtest
			}
			tests = append(tests, test{threat: threat, name: full, file: name, line: files.Position(comment.Pos()).Line})
		}
	}
	return tests, nil
}

var rowID = regexp.MustCompile(`<!-- threat:([a-z0-9-]+) -->`)

// fill replaces the last cell of each row that has an ID.
func fill(page string, tests []test) (string, error) {
	names := map[string][]string{}
	for _, t := range tests {
		names[t.threat] = append(names[t.threat], "`"+t.name+"`")
	}
	var out strings.Builder
	var errs []error
	rows := map[string]bool{}
	for line := range strings.Lines(page) {
		if id := rowID.FindStringSubmatch(line); id != nil {
			cells := strings.Split(strings.TrimSuffix(line, "|\n"), "|")
			cells[len(cells)-1] = " " + strings.Join(names[id[1]], ", ") + " "
			line = strings.Join(cells, "|") + "|\n"
			switch {
			case rows[id[1]]:
				errs = append(errs, fmt.Errorf("two rows have the ID %s", id[1]))
			case len(names[id[1]]) == 0:
				errs = append(errs, fmt.Errorf("row %s has no test: write %s%s above a test", id[1], directive, id[1]))
			}
			rows[id[1]] = true
		}
		out.WriteString(line)
	}
	for _, t := range tests {
		if !rows[t.threat] {
			errs = append(errs, fmt.Errorf("%s:%d: no row has the ID %s", t.file, t.line, t.threat))
		}
	}
	return out.String(), errors.Join(errs...)
}
