package source

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// Path is the path of a field. Its elements are names of fields (string) and list indexes (int).
type Path []any

var plainStep = regexp.MustCompile(`^[A-Za-z0-9_$-]+$`)

// String returns a path such as `spec.containers[0].image` or `metadata.annotations[a.b/c]`.
func (p Path) String() string {
	var b strings.Builder
	for _, step := range p {
		name, isName := step.(string)
		switch {
		case !isName:
			fmt.Fprintf(&b, "[%d]", step)
		case !plainStep.MatchString(name):
			fmt.Fprintf(&b, "[%s]", name)
		case b.Len() > 0:
			b.WriteString("." + name)
		default:
			b.WriteString(name)
		}
	}
	return b.String()
}

// ParsePath parses paths in the formats of other packages: `a.b[0].c`, `a[k.e/y]`, `a["k"]`.
func ParsePath(s string) Path {
	var out Path
	for s != "" {
		if inside, ok := strings.CutPrefix(s, "["); ok {
			key, rest, closed := strings.Cut(inside, "]")
			if !closed {
				return out
			}
			key = strings.Trim(key, `"`)
			if n, err := strconv.Atoi(key); err == nil {
				out = append(out, n)
			} else {
				out = append(out, key)
			}
			s = strings.TrimPrefix(rest, ".")
			continue
		}
		end := strings.IndexAny(s, ".[")
		if end < 0 {
			return append(out, s)
		}
		if end > 0 {
			out = append(out, s[:end])
		}
		if s[end] == '.' {
			end++
		}
		s = s[end:]
	}
	return out
}

// Value returns the value in object at a path of names; nil if there is none.
func (p Path) Value(object any) any {
	for _, step := range p {
		fields, _ := object.(map[string]any)
		name, _ := step.(string)
		object = fields[name]
	}
	return object
}

// locate returns the line of a field, or of its closest existing parent. It parses the document again, which is only needed for findings.
func (f *Parsed) locate(document int, at Path) int {
	line := f.lineOf(document)
	if line == 0 || len(at) == 0 {
		return line
	}
	var node yamlv3.Node
	if yamlv3.Unmarshal(f.document(document), &node) != nil || len(node.Content) == 0 {
		return line
	}
	current, found := node.Content[0], 0
	for _, step := range at {
		next := child(current, step)
		if next == nil {
			break
		}
		current, found = next.value, next.line
	}
	return line + max(found-1, 0)
}

// document returns the text of a document up to the next document.
func (f *Parsed) document(number int) []byte {
	text := skipLines(f.Text, f.parsed.Lines[number-1]-1)
	if number < len(f.parsed.Lines) {
		rest := skipLines(text, f.parsed.Lines[number]-f.parsed.Lines[number-1])
		text = text[:len(text)-len(rest)]
	}
	// The separator belongs to the next document.
	if i := bytes.Index(text, []byte("\n---")); i >= 0 {
		text = text[:i+1]
	}
	return text
}

func skipLines(text []byte, n int) []byte {
	for ; n > 0; n-- {
		i := bytes.IndexByte(text, '\n')
		if i < 0 {
			return nil
		}
		text = text[i+1:]
	}
	return text
}

type located struct {
	value *yamlv3.Node
	line  int
}

// child returns the child at a step. Its line is the line of the key or list entry.
func child(node *yamlv3.Node, step any) *located {
	for node.Kind == yamlv3.AliasNode && node.Alias != nil {
		node = node.Alias
	}
	switch step := step.(type) {
	case int:
		if node.Kind == yamlv3.SequenceNode && step >= 0 && step < len(node.Content) {
			return &located{node.Content[step], node.Content[step].Line}
		}
	case string:
		if node.Kind != yamlv3.MappingNode {
			return nil
		}
		for i := len(node.Content) - 2; i >= 0; i -= 2 { // backwards, because the last duplicate counts
			if node.Content[i].Value == step {
				return &located{node.Content[i+1], node.Content[i].Line}
			}
		}
	}
	return nil
}
