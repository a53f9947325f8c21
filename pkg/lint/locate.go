package lint

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// fieldPath leads to a field: names of fields (string) and positions in lists (int).
type fieldPath []any

var plainStep = regexp.MustCompile(`^[A-Za-z0-9_$-]+$`)

// String reads like `spec.containers[0].image` and `metadata.annotations[a.b/c]`.
func (p fieldPath) String() string {
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

// parseFieldPath reads what others write of paths: `a.b[0].c`, `a[k.e/y]`, `a["k"]`.
func parseFieldPath(s string) fieldPath {
	var out fieldPath
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

func quoted(s string) string { return strconv.Quote(s) }

// locate is the line of a field, or of the last step towards it that is there. It parses the document once more, which
// is done for findings only.
func (f *file) locate(document int, at fieldPath) int {
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

// document is the text of a document, from its first line to the beginning of the next one.
func (f *file) document(number int) []byte {
	text := skipLines(f.text, f.parsed.Lines[number-1]-1)
	if number < len(f.parsed.Lines) {
		rest := skipLines(text, f.parsed.Lines[number]-f.parsed.Lines[number-1])
		text = text[:len(text)-len(rest)]
	}
	// What separates it from the next one would begin another document.
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

// child is what a step leads to; its line is that of the key, or of the entry.
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
		for i := len(node.Content) - 2; i >= 0; i -= 2 { // from the end: the last one counts
			if node.Content[i].Value == step {
				return &located{node.Content[i+1], node.Content[i].Line}
			}
		}
	}
	return nil
}
