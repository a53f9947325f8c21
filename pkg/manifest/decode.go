package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
	"unique"

	yamlv2 "go.yaml.in/yaml/v2"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// stream decodes all documents of a file. Which bytes count as JSON follows the decoder that the original reads
// manifests with (k8s.io/apimachinery NewYAMLOrJSONDecoder), because the payload hash depends on it: a file that
// begins with "{" is a stream of JSON documents, and what follows the first of them that does not parse is YAML.
func (p *parser) stream(data []byte) {
	rest, line := data, 0
	if startsJSON(data) {
		n, err := p.json(data)
		rest = data[n:]
		if err == nil {
			return
		}
		if p.document > 1 || !maybeYAML(rest) {
			p.begin(1 + bytes.Count(data[:n], []byte("\n")))
			p.fail("", err)
			return
		}
		line = bytes.Count(data[:n], []byte("\n"))
	}
	p.yaml(bytes.TrimPrefix(rest, byteOrderMark), line)
}

func startsJSON(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeftFunc(data, unicode.IsSpace), []byte("{"))
}

// maybeYAML tells whether what JSON could not read may still be YAML: a separator, or a flow mapping such as {a: b}.
func maybeYAML(data []byte) bool {
	for _, chunk := range splitDocuments(data) {
		if skippable(chunk.data) {
			continue
		}
		_, err := decodeYAML(chunk.data)
		return err == nil
	}
	return true
}

// json decodes documents from the start of data as long as they are JSON. It returns how many bytes it used and, if
// not all, why.
func (p *parser) json(data []byte) (int, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	for used := 0; !p.full; used = int(decoder.InputOffset()) {
		var raw json.RawMessage
		switch err := decoder.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return len(data), nil
		case err != nil:
			return used, fmt.Errorf("parsing JSON: %w", err)
		}
		if bytes.Equal(raw, []byte("null")) {
			continue
		}
		p.begin(1 + bytes.Count(data[:int(decoder.InputOffset())-len(raw)], []byte("\n")))
		if len(raw) > p.limits.ObjectBytes {
			// Not yet certain to be too large: a list is measured item by item.
			if !bytes.Contains(raw, []byte(`"items"`)) {
				p.fail("", fmt.Errorf("%w: %d bytes as JSON, the limit is %d", ErrTooLarge, len(raw), p.limits.ObjectBytes))
				continue
			}
		}
		var value any
		if err := utiljson.Unmarshal(raw, &value); err != nil {
			p.fail("", fmt.Errorf("parsing JSON: %w", err))
			continue
		}
		if err := checkDepth(value, p.limits.Depth); err != nil {
			p.fail("", err)
			continue
		}
		p.add(bytes.Clone(raw), value)
	}
	return len(data), nil
}

// yaml decodes data as YAML documents; line is how many lines of the file lie before it.
func (p *parser) yaml(data []byte, line int) {
	for _, chunk := range splitDocuments(data) {
		if p.full {
			return
		}
		if skippable(chunk.data) {
			continue
		}
		first := line + chunk.line + firstLine(chunk.data)
		decoded, repeated, err := p.decode(chunk.data)
		if err != nil {
			p.begin(first)
			p.fail("", shiftLine(err, line+chunk.line))
			continue
		}
		if decoded == nil {
			continue
		}
		p.begin(first)
		p.note(repeated, line+chunk.line)
		raw, value, err := p.convert(chunk.data, decoded)
		if err != nil {
			field, cause := fieldOf(err)
			p.fail(field, cause)
			continue
		}
		p.add(raw, value)
	}
}

// decodeYAML decodes one document and refuses more of them: the library would drop what follows in silence.
func decodeYAML(data []byte) (any, error) { return decodeYAMLWith(data, false) }

func decodeYAMLWith(data []byte, strict bool) (any, error) {
	decoder := yamlv2.NewDecoder(bytes.NewReader(data))
	decoder.SetStrict(strict)
	var value, more any
	if err := decoder.Decode(&value); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, errors.New("text after the end of the document: separate documents by a line of ---")
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return value, nil
}

// convert makes the object and its compact JSON. A document may be a list of many objects, so it gets the budget of a
// file; items are measured alone.
func (p *parser) convert(chunk []byte, decoded any) ([]byte, any, error) {
	c := converter{depth: p.limits.Depth, left: p.limits.FileBytes}
	value, err := c.convert(decoded, 0)
	if errors.Is(err, errTooLarge) {
		return nil, nil, errTooLarge
	}
	if err != nil {
		// Once more in the order of keys, so that of several mistakes the same one is named each time.
		c = converter{depth: p.limits.Depth, left: p.limits.FileBytes, sorted: true}
		_, err = c.convert(decoded, 0)
		return nil, nil, err
	}
	return encode(chunk, value, c.inexact)
}

// encode makes the compact JSON of a document. Values that JSON would not carry over unchanged (integers beyond 64
// bits with sign) take the slow way over text, which is what the original does with every document.
func encode(chunk []byte, value any, inexact bool) ([]byte, any, error) {
	if !inexact {
		raw, err := compactJSON(value)
		return raw, value, err
	}
	raw, err := yaml.YAMLToJSON(chunk)
	if err != nil {
		return nil, nil, err
	}
	var decoded any
	if err := utiljson.Unmarshal(raw, &decoded); err != nil {
		return nil, nil, err
	}
	return raw, decoded, nil
}

// compactJSON escapes <, > and & as encoding/json does by default: the payload hash is made over such text.
func compactJSON(value any) ([]byte, error) { return json.Marshal(value) }

type chunk struct {
	data []byte
	line int // lines of the stream before it
}

// splitDocuments splits at lines that are "---" or "..." at column 0, where YAML allows nothing else to begin with
// them: an indented "---" belongs to a block scalar. What follows "--- " on its line belongs to the document it opens.
func splitDocuments(data []byte) []chunk {
	var chunks []chunk
	start, startLine, line := 0, 0, 0
	for pos := 0; pos < len(data); line++ {
		end := pos + bytes.IndexByte(data[pos:], '\n') + 1
		if end == pos {
			end = len(data)
		}
		if text := data[pos:end]; isMarker(text) {
			chunks = append(chunks, chunk{data[start:pos], startLine})
			start, startLine = pos+3, line
		}
		pos = end
	}
	return append(chunks, chunk{data[start:], startLine})
}

func isMarker(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || strings.IndexByte(" \t\r\n", line[3]) >= 0
}

// skippable tells whether a document is nothing but blank lines and comments.
func skippable(data []byte) bool {
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, byteOrderMark))
		if len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// shiftLine turns the line that the YAML library counts inside a document into the line of the file.
func shiftLine(err error, offset int) error {
	match := yamlLine.FindStringSubmatch(err.Error())
	if match == nil {
		return fmt.Errorf("parsing YAML: %w", err)
	}
	n, convErr := strconv.Atoi(match[1])
	if convErr != nil {
		return fmt.Errorf("parsing YAML: %w", err)
	}
	text := fmt.Sprintf("parsing YAML: line %d of the file: %s", n+offset, strings.TrimPrefix(err.Error(), match[0]))
	return &lineError{line: n + offset, text: text}
}

// lineError is a mistake on a line of the file, which its text names already.
type lineError struct {
	line int
	text string
}

func (e *lineError) Error() string { return e.text }

// firstLine counts lines up to the first with content, from 1.
func firstLine(data []byte) int {
	n := 0
	for line := range bytes.Lines(data) {
		n++
		line = bytes.TrimSpace(bytes.TrimPrefix(line, byteOrderMark))
		if len(line) > 0 && line[0] != '#' {
			break
		}
	}
	return max(n, 1)
}

// converter turns what the YAML library decodes into the types of JSON objects, as sigs.k8s.io/yaml followed by
// decoding into an unstructured object would, without the way over text. It expands aliases, so it counts bytes.
type converter struct {
	depth   int
	left    int
	inexact bool
	sorted  bool
}

var errTooLarge = errors.New("larger than a file may be once aliases are expanded")

// spend takes bytes from the budget.
func (c *converter) spend(n int) error {
	c.left -= n
	if c.left < 0 {
		return errTooLarge
	}
	return nil
}

func (c *converter) convert(value any, depth int) (any, error) {
	switch v := value.(type) {
	case map[any]any:
		return c.object(v, depth+1)
	case []any:
		return c.list(v, depth+1)
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("holds bytes that are not UTF-8: encode them as base64 without !!binary")
		}
		return shared(v), c.spend(len(v) + 2)
	case int:
		return int64(v), c.spend(1)
	case uint64:
		c.inexact = true
		return v, c.spend(1)
	case float64:
		return c.float(v)
	case nil, bool, int64:
		return v, c.spend(1)
	default:
		return nil, fmt.Errorf("holds a %T, which JSON cannot", v)
	}
}

// shared returns the one copy in memory of a text. The manifests of a release repeat themselves, and those of two even
// more, which an operator holds at once during an update: real ones take a sixth less memory for it.
func shared(text string) string { return unique.Make(text).Value() }

// float makes an integer of what JSON writes as one.
func (c *converter) float(f float64) (any, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("is %v, which JSON cannot hold", f)
	}
	if f == math.Trunc(f) {
		c.inexact = c.inexact || math.Abs(f) >= 1<<53 || f == 0 && math.Signbit(f)
		if math.Abs(f) < 1<<53 {
			return int64(f), c.spend(1)
		}
	}
	return f, c.spend(1)
}

func (c *converter) list(v []any, depth int) (any, error) {
	if depth > c.depth {
		return nil, fmt.Errorf("nests deeper than %d", c.depth)
	}
	out := make([]any, len(v))
	for i, item := range v {
		var err error
		if out[i], err = c.convert(item, depth); err != nil {
			return nil, inField(fmt.Sprintf("[%d]", i), err)
		}
	}
	return out, c.spend(len(v) + 2)
}

func (c *converter) object(v map[any]any, depth int) (any, error) {
	if depth > c.depth {
		return nil, fmt.Errorf("nests deeper than %d", c.depth)
	}
	out := make(map[string]any, len(v))
	for k, item := range c.entries(v) {
		key, err := keyString(k)
		if err != nil {
			return nil, err
		}
		if _, ok := out[key]; ok {
			return nil, fmt.Errorf("has the key %q both as text and as another type", key)
		}
		if err := c.spend(len(key) + 4); err != nil {
			return nil, err
		}
		if out[key], err = c.convert(item, depth); err != nil {
			return nil, inField(key, err)
		}
	}
	return out, nil
}

// entries ranges over a map, in the order of its keys where that was asked for.
func (c *converter) entries(v map[any]any) iter.Seq2[any, any] {
	if !c.sorted {
		return maps.All(v)
	}
	keys := slices.SortedFunc(maps.Keys(v), func(a, b any) int {
		return strings.Compare(fmt.Sprintf("%T %v", a, a), fmt.Sprintf("%T %v", b, b))
	})
	return func(yield func(any, any) bool) {
		for _, k := range keys {
			if !yield(k, v[k]) {
				return
			}
		}
	}
}

// keyString makes text of a key, as sigs.k8s.io/yaml does.
func keyString(key any) (string, error) {
	switch k := key.(type) {
	case string:
		if !utf8.ValidString(k) {
			return "", errors.New("has a key that is not UTF-8")
		}
		return shared(k), nil
	case int:
		return strconv.Itoa(k), nil
	case int64:
		return strconv.FormatInt(k, 10), nil
	case bool:
		return strconv.FormatBool(k), nil
	case float64:
		switch {
		case math.IsNaN(k):
			return ".nan", nil
		case math.IsInf(k, 1):
			return ".inf", nil
		case math.IsInf(k, -1):
			return "-.inf", nil
		}
		return strconv.FormatFloat(k, 'g', -1, 32), nil
	default:
		return "", fmt.Errorf("has a key of type %T, JSON knows only text", key)
	}
}

// pathError carries the path to a value while an error travels up; it is never seen outside.
type pathError struct {
	path string
	err  error
}

func (e *pathError) Error() string { return e.path + ": " + e.err.Error() }
func (e *pathError) Unwrap() error { return e.err }

func inField(step string, err error) error {
	var inner *pathError
	if !errors.As(err, &inner) {
		return &pathError{path: step, err: err}
	}
	switch {
	case len(inner.path) > 512:
		inner.path = "…" + inner.path[len(inner.path)-256:]
	case strings.HasPrefix(inner.path, "["):
		inner.path = step + inner.path
	default:
		inner.path = step + "." + inner.path
	}
	return inner
}

func fieldOf(err error) (string, error) {
	if inner, ok := errors.AsType[*pathError](err); ok {
		return inner.path, inner.err
	}
	return "", err
}

// checkDepth refuses JSON that nests deeper than the limit.
func checkDepth(value any, left int) error {
	var children []any
	switch v := value.(type) {
	case map[string]any:
		for _, child := range v {
			children = append(children, child)
		}
	case []any:
		children = v
	default:
		return nil
	}
	if left == 0 {
		return errors.New("nests too deep")
	}
	for _, child := range children {
		if err := checkDepth(child, left-1); err != nil {
			return err
		}
	}
	return nil
}
