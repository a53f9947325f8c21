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
	err := sources(folder, func(file *ast.File) {
		for _, declaration := range file.Decls {
			group, ok := declaration.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST || !slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(group.Doc.Text(), word) }) {
				continue
			}
			title, intro, _ := strings.Cut(join(group.Doc.Text()), ". ")
			s := section{title: strings.TrimSuffix(title, "."), intro: intro}
			for _, spec := range group.Specs {
				c, err := constantOf(spec.(*ast.ValueSpec))
				s.constants, errs = append(s.constants, c), append(errs, err)
			}
			found = append(found, s)
		}
	})
	if len(found) == 0 {
		errs = append(errs, fmt.Errorf("%s has no constants with a comment that begins with %q", folder, words))
	}
	return found, errors.Join(append(errs, err)...)
}

func constantOf(spec *ast.ValueSpec) (constant, error) {
	c := constant{name: spec.Names[0].Name, doc: join(spec.Doc.Text())}
	literal, ok := spec.Values[0].(*ast.BasicLit)
	if !ok || len(spec.Names) > 1 {
		return c, fmt.Errorf("%s is no single literal", c.name)
	}
	if c.doc == "" {
		return c, fmt.Errorf("%s has no comment", c.name)
	}
	c.value = literal.Value
	if literal.Kind == token.STRING {
		c.value, _ = strconv.Unquote(literal.Value) // the parser has accepted it
	}
	return c, nil
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
