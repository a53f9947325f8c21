package annotate

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/cluster-version/cvo/internal/sorted"
)

// text is a file with insertions.
type text struct {
	lines      [][]byte // with their line breaks
	lineBreak  string
	documents  []int // the first lines of the documents, from 1
	insertions []insertion
}

// insertion is text to insert before a byte of a line. Both are counted from 0.
type insertion struct {
	line, at int
	text     string
}

func newText(data []byte, documents []int) *text {
	t := &text{lines: slices.Collect(bytes.Lines(data)), lineBreak: "\n", documents: documents}
	if bytes.Contains(data, []byte("\r\n")) {
		t.lineBreak = "\r\n"
	}
	return t
}

// annotate adds an annotation to all objects of a document that name no profile.
func (t *text) annotate(document int, key string) error {
	first := t.documents[document-1] - 1
	last := len(t.lines)
	if document < len(t.documents) {
		last = t.documents[document] - 1
	}
	for i := first + 1; i < last; i++ {
		if bytes.HasPrefix(t.lines[i], []byte("---")) {
			last = i
		}
	}
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(bytes.Join(t.lines[first:last], nil), &root); err != nil {
		return fmt.Errorf("parsing the document: %w", err)
	}
	if len(root.Content) == 0 {
		return errors.New("it shares a line with another document")
	}
	return t.object(root.Content[0], first, key)
}

// object adds the annotation to an object, or to the items of a list.
func (t *text) object(object *yamlv3.Node, first int, key string) error {
	if kind, items := value(object, "kind"), value(object, "items"); kind != nil && strings.HasSuffix(kind.Value, "List") &&
		items != nil && items.Kind == yamlv3.SequenceNode {
		for _, item := range items.Content {
			if err := t.object(item, first, key); err != nil {
				return err
			}
		}
		return nil
	}
	metadataKey, metadata := field(object, "metadata")
	if metadata == nil || metadata.Kind != yamlv3.MappingNode {
		return errors.New("its metadata is not a separate map")
	}
	annotationsKey, annotations := field(metadata, "annotations")
	entry := strconv.Quote(key) + `: "true"`
	switch {
	case annotations == nil && flow(metadata):
		return t.intoFlow(metadata, first, `"annotations": {`+entry+`}`)
	case annotations == nil:
		t.below(metadataKey, metadata, first, "annotations:", "  "+key+`: "true"`)
	case annotations.Tag == "!!null":
		return t.replaceNull(annotationsKey, annotations, first, " {"+entry+"}")
	case annotations.Kind != yamlv3.MappingNode:
		return errors.New("its annotations are not a separate map")
	case named(annotations):
	case flow(annotations):
		return t.intoFlow(annotations, first, entry)
	default:
		t.below(annotationsKey, annotations, first, key+`: "true"`)
	}
	return nil
}

// below inserts lines below the line of a key, indented like the map that is its value.
func (t *text) below(key, mapping *yamlv3.Node, first int, lines ...string) {
	indent := strings.Repeat(" ", mapping.Content[0].Column-1)
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(indent + line + t.lineBreak)
	}
	t.insertions = append(t.insertions, insertion{line: first + key.Line, text: b.String()})
}

// intoFlow inserts an entry at the beginning of a map in flow style.
func (t *text) intoFlow(mapping *yamlv3.Node, first int, entry string) error {
	line, at := first+mapping.Line-1, byteOffset(t.lines[first+mapping.Line-1], mapping.Column)
	brace := bytes.IndexByte(t.lines[line][at:], '{') // after an anchor or a tag
	if brace < 0 {
		return errors.New("its map has no brace on its first line")
	}
	if len(mapping.Content) > 0 {
		entry += ", "
	}
	t.insertions = append(t.insertions, insertion{line: line, at: at + brace + 1, text: entry})
	return nil
}

// replaceNull adds a value after a key without one. An explicit null would remain, so it is an error.
func (t *text) replaceNull(key, null *yamlv3.Node, first int, entry string) error {
	line := first + key.Line - 1
	at := byteOffset(t.lines[line], key.Column)
	colon := bytes.IndexByte(t.lines[line][at:], ':')
	if null.Value != "" || colon < 0 {
		return errors.New("its annotations are null")
	}
	t.insertions = append(t.insertions, insertion{line: line, at: at + colon + 1, text: entry})
	return nil
}

// edited returns the text with all insertions, and the numbers of the inserted lines in it.
func (t *text) edited() (data []byte, inserted []int) {
	sorted.By(t.insertions, func(a, b insertion) int {
		if a.line != b.line {
			return a.line - b.line
		}
		return a.at - b.at
	})
	var out bytes.Buffer
	rest, number := t.insertions, 1 // the number of the next line in out
	for i := 0; i <= len(t.lines); i++ {
		var line []byte
		if i < len(t.lines) {
			line = t.lines[i]
		}
		copied := 0
		for len(rest) > 0 && rest[0].line == i {
			out.Write(line[copied:rest[0].at])
			out.WriteString(rest[0].text)
			for range strings.Count(rest[0].text, t.lineBreak) {
				inserted = append(inserted, number)
				number++
			}
			copied, rest = rest[0].at, rest[1:]
		}
		out.Write(line[copied:])
		number++
	}
	return out.Bytes(), inserted
}

// byteOffset returns the offset of a column, which YAML counts in characters from 1.
func byteOffset(line []byte, column int) int {
	at := 0
	for range column - 1 {
		rest := line[at:]
		if len(rest) == 0 {
			break
		}
		_, size := utf8.DecodeRune(rest)
		at += size
	}
	return at
}

// field returns a key of a map and its value; nil if there is none. Of repeated keys, the last one counts.
func field(object *yamlv3.Node, name string) (key, value *yamlv3.Node) {
	if object.Kind != yamlv3.MappingNode {
		return nil, nil
	}
	for i := len(object.Content) - 2; i >= 0; i -= 2 {
		if object.Content[i].Value == name {
			return object.Content[i], object.Content[i+1]
		}
	}
	return nil, nil
}

func value(object *yamlv3.Node, name string) *yamlv3.Node {
	_, v := field(object, name)
	return v
}

// named reports whether annotations select clusters.
func named(annotations *yamlv3.Node) bool {
	keys := map[string]string{}
	for i := 0; i < len(annotations.Content); i += 2 {
		keys[annotations.Content[i].Value] = ""
	}
	return !namesNoProfile(keys)
}

func flow(node *yamlv3.Node) bool { return node.Style&yamlv3.FlowStyle != 0 }
