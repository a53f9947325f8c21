package docs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// TestLinksLeadSomewhere checks that each link of a page in git leads to a file in git and, if it names one, to a heading of that page. It
// ignores links to other sites, because the test must not fail when another server is down.
func TestLinksLeadSomewhere(t *testing.T) {
	command := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	command.Dir = root
	listed, err := command.Output()
	require.NoError(t, err)
	files := map[string]bool{".": true}
	pages := map[string]outline{}
	for file := range strings.SplitSeq(strings.Trim(string(listed), "\x00"), "\x00") {
		source, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) {
			continue // deleted, but still in the index
		}
		for folder := file; folder != "."; folder = path.Dir(folder) {
			files[folder] = true
		}
		if path.Ext(file) == ".md" {
			require.NoError(t, err)
			pages[file] = readOutline(source)
		}
	}
	assert.Greater(t, len(pages), 50)
	for name := range pages {
		assert.Empty(t, brokenLinks(name, pages, files), name)
	}
}

// outline has the targets of a page's links and images, and the anchors of its headings.
type outline struct {
	links   []string
	anchors map[string]bool
	// undefined are references that no definition explains. Markdown shows their brackets.
	undefined []string
}

var (
	reference = regexp.MustCompile(`\]\[[^\]]*\]`)
	htmlLink  = regexp.MustCompile(`(?:href|src)="([^"]+)"`)
)

func readOutline(source []byte) outline {
	p := outline{anchors: map[string]bool{}}
	document := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	_ = ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch node := node.(type) {
		case *ast.Link:
			p.links = append(p.links, string(node.Destination))
		case *ast.Image:
			p.links = append(p.links, string(node.Destination))
		case *ast.RawHTML:
			for _, match := range htmlLink.FindAllSubmatch(node.Segments.Value(source), -1) {
				p.links = append(p.links, string(match[1]))
			}
		case *ast.HTMLBlock:
			for _, match := range htmlLink.FindAllSubmatch(node.Lines().Value(source), -1) {
				p.links = append(p.links, string(match[1]))
			}
		case *ast.CodeSpan:
			return ast.WalkSkipChildren, nil
		case *ast.Paragraph:
			p.undefined = append(p.undefined, reference.FindAllString(textOf(node, source, false), -1)...)
		case *ast.Heading:
			anchor := anchorOf(textOf(node, source, true))
			for i := 1; p.anchors[anchor]; i++ {
				anchor = fmt.Sprintf("%s-%d", anchorOf(textOf(node, source, true)), i)
			}
			p.anchors[anchor] = true
		}
		return ast.WalkContinue, nil
	})
	return p
}

// textOf returns the text that a reader sees of a node, with or without that of code.
func textOf(node ast.Node, source []byte, code bool) string {
	var out bytes.Buffer
	_ = ast.Walk(node, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if _, ok := node.(*ast.CodeSpan); ok && !code {
			return ast.WalkSkipChildren, nil
		}
		if part, ok := node.(*ast.Text); ok && entering {
			out.Write(part.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return out.String()
}

// anchorOf returns the anchor that GitHub gives a heading.
func anchorOf(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

func brokenLinks(name string, pages map[string]outline, files map[string]bool) (broken []string) {
	for _, reference := range pages[name].undefined {
		broken = append(broken, reference+" has no definition")
	}
	for _, link := range pages[name].links {
		if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
			continue
		}
		target, anchor, hasAnchor := strings.Cut(link, "#")
		if target == "" {
			target = name
		} else {
			target = path.Join(path.Dir(name), target)
		}
		switch to, isPage := pages[target]; {
		case !files[target]:
			broken = append(broken, link+": git has no "+target)
		case hasAnchor && isPage && !to.anchors[anchor]:
			broken = append(broken, link+": "+target+" has no such heading")
		}
	}
	return broken
}

func TestBrokenLinksAreFound(t *testing.T) {
	files := map[string]bool{"docs": true, "docs/a.md": true, "docs/b.md": true, "docs/c.go": true}
	b := readOutline([]byte("# B\n\n## A `cvo` heading, über all\n\n## Again\n\n## Again\n"))
	for source, want := range map[string][]string{
		"[a](b.md#a-cvo-heading-über-all) [b](../docs) ![c](c.go#L1)": nil,
		"[a](b.md#again-1) [b](#a)\n\n# A":                            nil,
		"[a][b]\n\n[b]: b.md":                                         nil,
		"[a](https://example.com/none) `[a](x) [a][b]`":               nil,
		"```\n[a](none.md)\n```":                                      nil,
		"[a](none.md)":                                                {"none.md: git has no docs/none.md"},
		"[a]( none.md )":                                              {"none.md: git has no docs/none.md"},
		"<img src=\"none.png\">":                                      {"none.png: git has no docs/none.png"},
		"see <a href=\"none.md\">a</a>":                               {"none.md: git has no docs/none.md"},
		"[a](b.md#none)":                                              {"b.md#none: docs/b.md has no such heading"},
		"[a](b.md#again-2)":                                           {"b.md#again-2: docs/b.md has no such heading"},
		"[a][b]\n\n[b]: none.md":                                      {"none.md: git has no docs/none.md"},
		"[a][b]":                                                      {"][b] has no definition"},
	} {
		pages := map[string]outline{"docs/a.md": readOutline([]byte(source)), "docs/b.md": b}
		assert.Equal(t, want, brokenLinks("docs/a.md", pages, files), source)
	}
}
