package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// section is a group of constants. Its title is the first sentence of their common comment, its intro is the rest.
type section struct {
	title, intro string
	constants    []constant
}

// constant is a constant with its comment.
type constant struct{ name, value, doc string }

// read returns the groups of constants below a folder whose comment begins with one of the given words. It fails if one of their constants
// has no comment, because the reference would not explain it.
func read(folder string, words ...string) ([]section, error) {
	var found []section
	var errs []error
	groups, values, err := declared(folder)
	for _, group := range groups {
		if !slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(group.Doc.Text(), word) }) {
			continue
		}
		title, intro, _ := strings.Cut(join(group.Doc.Text()), ". ")
		s := section{title: strings.TrimSuffix(title, "."), intro: intro}
		for _, spec := range group.Specs {
			c, err := constantOf(spec.(*ast.ValueSpec), values)
			s.constants, errs = append(s.constants, c), append(errs, err)
		}
		found = append(found, s)
	}
	if len(found) == 0 {
		errs = append(errs, fmt.Errorf("%s has no constants with a comment that begins with %q", folder, words))
	}
	return found, errors.Join(append(errs, err)...)
}

// declared returns the groups of constants below a folder, and the expressions of their values by name.
func declared(folder string) (groups []*ast.GenDecl, values map[string]ast.Expr, err error) {
	values = map[string]ast.Expr{}
	err = sources(folder, func(file *ast.File) {
		for _, declaration := range file.Decls {
			group, ok := declaration.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			groups = append(groups, group)
			for _, spec := range group.Specs {
				if spec := spec.(*ast.ValueSpec); len(spec.Values) == 1 {
					values[spec.Names[0].Name] = spec.Values[0]
				}
			}
		}
	})
	return groups, values, err
}

func constantOf(spec *ast.ValueSpec, values map[string]ast.Expr) (constant, error) {
	c := constant{name: spec.Names[0].Name, doc: join(spec.Doc.Text())}
	var ok bool
	if c.value, ok = valueOf(spec.Values[0], values); !ok || len(spec.Names) > 1 {
		return c, fmt.Errorf("%s is no single literal, nor a sum of constants of its folder", c.name)
	}
	if c.doc == "" {
		return c, fmt.Errorf("%s has no comment", c.name)
	}
	return c, nil
}

// valueOf returns the value of an expression of literals and of constants with these values.
func valueOf(expr ast.Expr, values map[string]ast.Expr) (string, bool) {
	switch expr := expr.(type) {
	case *ast.BasicLit:
		if expr.Kind != token.STRING {
			return expr.Value, true
		}
		text, err := strconv.Unquote(expr.Value)
		return text, err == nil
	case *ast.Ident:
		return valueOf(values[expr.Name], values)
	case *ast.BinaryExpr:
		left, isConstant := valueOf(expr.X, values)
		right, both := valueOf(expr.Y, values)
		return left + right, isConstant && both
	}
	return "", false
}

func join(text string) string { return strings.Join(strings.Fields(text), " ") }

// sources parses the Go files below a folder, except tests, in the order of their names.
func sources(folder string, visit func(*ast.File)) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err == nil {
			visit(file)
		}
		return err
	})
}

// userPage matches the name of a user page in a comment.
var userPage = regexp.MustCompile(`docs/user/([a-z-]+)\.md(#[a-z-]+)?`)

// text returns the comment of a constant for a cell. The value stands next to it, so the name is dropped: "X means that it failed" becomes
// "It failed". Names of user pages become links.
func (c constant) text() string {
	text, ok := strings.CutPrefix(c.doc, c.name+" ")
	if ok {
		text = strings.TrimPrefix(strings.TrimPrefix(text, "means that "), "is ")
	}
	return userPage.ReplaceAllString(cell(strings.ToUpper(text[:1])+text[1:]), "[$1](../user/$1.md$2)")
}

// table writes a section. more returns further cells between the value and the text.
func (s section) table(head string, more func(constant) string) string {
	var out strings.Builder
	out.WriteString("## " + s.title + "\n\n")
	if s.intro != "" {
		out.WriteString(escape(s.intro) + "\n\n")
	}
	out.WriteString(head + "\n|" + strings.Repeat("---|", strings.Count(head, "|")-1) + "\n")
	for _, c := range s.constants {
		fmt.Fprintf(&out, "| `%s` | %s%s |\n", c.value, more(c), c.text())
	}
	return out.String() + "\n"
}

func none(constant) string { return "" }
