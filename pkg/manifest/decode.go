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

	"github.com/cluster-version/cvo/internal/aliases"
)

// guessBytes is how far the original operator searches for the first "{" of a JSON stream.
const guessBytes = 1024

// stream decodes all documents of a file. It detects JSON as the original's decoder does (k8s.io/apimachinery NewYAMLOrJSONDecoder),
// because the payload hash depends on it. A file that begins with "{" is a stream of JSON documents. If its first or second document is
// invalid, the rest is read as YAML.
func (p *parser) stream(data []byte) {
	rest, line := data, 0
	if startsJSON(data) {
		used, decoded, err := p.json(data)
		if err == nil {
			return
		}
		start, ok := skipSpace(data[used:])
		rest, line = data[used+start:], bytes.Count(data[:used+start], []byte("\n"))
		if !ok || decoded > 1 || !maybeYAML(rest) {
			p.begin(1 + bytes.Count(data[:used], []byte("\n")))
			p.fail("", err)
			return
		}
	}
	p.yaml(rest, line)
}

func startsJSON(data []byte) bool {
	data = data[:min(len(data), guessBytes)]
	return bytes.HasPrefix(bytes.TrimLeftFunc(data, unicode.IsSpace), []byte("{"))
}

// skipSpace returns the number of bytes up to the first line break that the original skips between JSON and YAML. ok is false if fewer than
// four bytes follow: the original reads four bytes at a time and then reports the JSON decoder's error.
func skipSpace(data []byte) (n int, ok bool) {
	for n+utf8.UTFMax <= len(data) {
		r, size := utf8.DecodeRune(data[n:])
		if !unicode.IsSpace(r) {
			return n, true
		}
		n += size
		if r == '\n' {
			return n, true
		}
	}
	return n, false
}

// maybeYAML reports whether text that is not JSON may be YAML: a separator or a flow mapping such as {a: b}.
func maybeYAML(data []byte) bool {
	for d := range documents(data) {
		if d.err != nil || blank(d.text) {
			continue
		}
		_, err := decodeYAML(d.text)
		return err == nil
	}
	return true
}

// json decodes documents from the start of data as long as they are JSON. It returns the number of bytes read and of values decoded, and an
// error if text remains.
func (p *parser) json(data []byte) (used, decoded int, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	for ; !p.full; used = int(decoder.InputOffset()) {
		var raw json.RawMessage
		switch err := decoder.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return len(data), decoded, nil
		case err != nil:
			return used, decoded, fmt.Errorf("parsing JSON: %w", err)
		}
		decoded++
		if bytes.Equal(raw, []byte("null")) {
			continue
		}
		p.begin(1 + bytes.Count(data[:int(decoder.InputOffset())-len(raw)], []byte("\n")))
		if len(raw) > p.limits.ObjectBytes {
			// A list may still be acceptable: the limit applies to each of its items.
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
	return len(data), decoded, nil
}

// yaml decodes data as YAML documents. line is the number of lines of the file before data.
func (p *parser) yaml(data []byte, line int) {
	for d := range documents(data) {
		if p.full {
			return
		}
		if d.err != nil {
			p.begin(line + d.line + 1)
			p.fail("", d.err)
			continue
		}
		if blank(d.text) {
			continue
		}
		first := line + d.line + firstLine(d.text)
		decoded, repeated, err := p.decode(d.text)
		if err != nil {
			p.begin(first)
			p.fail("", shiftLine(err, line+d.line))
			continue
		}
		if decoded == nil {
			continue
		}
		p.begin(first)
		p.note(repeated, line+d.line)
		raw, value, err := p.convert(d.text, decoded)
		if err != nil {
			field, cause := fieldOf(err)
			p.fail(field, cause)
			continue
		}
		p.add(raw, value)
	}
}

// decodeYAML decodes one document. It rejects further documents, which the library would silently drop.
func decodeYAML(data []byte) (any, error) { return decodeYAMLWith(data, false) }

func decodeYAMLWith(data []byte, strict bool) (any, error) {
	decoder := yamlv2.NewDecoder(bytes.NewReader(data))
	decoder.SetStrict(strict)
	var value, more any
	if err := decoder.Decode(&value); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, errors.New("text after the end of the document: separate documents with a --- line")
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return value, nil
}

// convert returns the object and its compact JSON. A document may be a list of many objects, so it has the size limit of a file, and each
// item has the limit of an object.
func (p *parser) convert(text []byte, decoded any) ([]byte, any, error) {
	c := converter{depth: p.limits.Depth, left: p.limits.FileBytes}
	value, err := c.convert(decoded, 0)
	if errors.Is(err, aliases.ErrTooLarge) {
		return nil, nil, aliases.ErrTooLarge
	}
	if err != nil {
		// A second conversion in the order of keys makes the reported error deterministic.
		c = converter{depth: p.limits.Depth, left: p.limits.FileBytes, sorted: true}
		_, err = c.convert(decoded, 0)
		return nil, nil, err
	}
	return encode(text, value, c.inexact)
}

// encode returns the compact JSON of a document. For values that JSON would change (integers outside the signed 64-bit range), it uses the
// slow conversion through text, as the original does for every document.
func encode(text []byte, value any, inexact bool) ([]byte, any, error) {
	if !inexact {
		raw, err := compactJSON(value)
		return raw, value, err
	}
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, nil, err
	}
	var decoded any
	if err := utiljson.Unmarshal(raw, &decoded); err != nil {
		return nil, nil, err
	}
	return raw, decoded, nil
}

// compactJSON escapes <, > and & as encoding/json does by default, because the payload hash covers the escaped text.
func compactJSON(value any) ([]byte, error) { return json.Marshal(value) }

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// shiftLine converts the library's line number in a document to the line number in the file.
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

// lineError is an error at a line of the file; its text contains the line.
type lineError struct {
	line int
	text string
}

func (e *lineError) Error() string { return e.text }

// converter converts the YAML library's values to JSON types. The result is the same as decoding with sigs.k8s.io/yaml into an unstructured
// object, without the conversion through text. It expands aliases, so it limits the total size.
type converter struct {
	depth   int
	left    int
	inexact bool
	sorted  bool
}

// spend subtracts bytes from the budget.
func (c *converter) spend(n int) error {
	c.left -= n
	if c.left < 0 {
		return aliases.ErrTooLarge
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
			return nil, errors.New("contains bytes that are not UTF-8: encode them as base64 without !!binary")
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
		return nil, fmt.Errorf("contains a %T, which JSON cannot represent", v)
	}
}

// shared returns the unique copy of a text in memory. Texts recur within a release, and even more in the two releases that an operator
// holds during an update. Sharing them saves a sixth of the memory of real releases.
func shared(text string) string { return unique.Make(text).Value() }

// float converts a number without a fraction to an integer, as JSON does.
func (c *converter) float(f float64) (any, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("is %v, which JSON cannot represent", f)
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
		return nil, fmt.Errorf("is nested deeper than %d levels", c.depth)
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
		return nil, fmt.Errorf("is nested deeper than %d levels", c.depth)
	}
	out := make(map[string]any, len(v))
	for k, item := range c.entries(v) {
		key, err := keyString(k)
		if err != nil {
			return nil, err
		}
		if _, ok := out[key]; ok {
			return nil, fmt.Errorf("has the key %q both as a string and as another type", key)
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

// entries iterates over a map, in the order of its keys if sorted is set.
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

// keyString converts a key to text as sigs.k8s.io/yaml does.
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
		return "", fmt.Errorf("has a key of type %T: JSON keys are strings", key)
	}
}

// pathError adds the path of a value to an error on the way up. It never leaves the package.
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

// checkDepth rejects JSON that is nested deeper than the limit.
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
		return errors.New("is nested too deeply")
	}
	for _, child := range children {
		if err := checkDepth(child, left-1); err != nil {
			return err
		}
	}
	return nil
}
