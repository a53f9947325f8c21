package manifest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Error says what is wrong with one document of a file.
type Error struct {
	// File is the base name of the file.
	File string
	// Document counts from 1; 0 means the file as a whole.
	Document int
	// Field is the path inside the document, such as metadata.name; empty for the document as a whole.
	Field string
	// Line is that of the mistake where the file does not parse, else that on which the document begins; 0 if unknown.
	Line int
	// Err is the cause.
	Err error
}

// Error reads like `0000_50_dns_x.yaml[2]: metadata.name: missing`.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Document > 0 {
		fmt.Fprintf(&b, "[%d]", e.Document)
	}
	b.WriteString(": ")
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Err.Error())
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Causes of an Error that callers tell from others.
var (
	// ErrTwice: a file brings one object twice.
	ErrTwice = errors.New("is in this file twice")
	// ErrTooLarge: an object is larger than a cluster stores.
	ErrTooLarge = errors.New("the object is too large")
)

// Parse reads all objects of one file, in order. It takes what real releases hold: several YAML documents split by
// "---" at the start of a line, a byte order mark, JSON inside .yaml files, documents of comments only, repeated keys
// (the last one wins, as in the original), lists (replaced by their items), status sections, objects of metadata alone.
// It does not validate specs. Objects have a kind, an apiVersion and a metadata.name, each once per file.
//
// All errors of the file, up to a hundred, are returned together, joined and sorted, each an *Error that names document
// and field.
func Parse(file string, data []byte, limits Limits) ([]*Manifest, error) {
	p := parser{file: path.Base(file), limits: limits.WithDefaults(), seen: map[ID]int{}}
	p.runlevel, p.component = Place(p.file)
	if err := checkBytes(data, p.limits); err != nil {
		return nil, &Error{File: p.file, Err: err}
	}
	p.stream(data)
	if err := JoinSorted(p.errs); err != nil {
		return nil, err
	}
	return p.manifests, nil
}

// JoinSorted joins errors in the order of their texts, so that a repeated failure reads the same; each text is kept
// once. It returns nil if there are none.
func JoinSorted(errs []error) error {
	errs = slices.Clone(errs)
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(slices.CompactFunc(errs, func(a, b error) bool { return a.Error() == b.Error() })...)
}

func checkBytes(data []byte, limits Limits) error {
	if len(data) > limits.FileBytes {
		return fmt.Errorf("the file has %d bytes, the limit is %d: split it", len(data), limits.FileBytes)
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return fmt.Errorf("NUL byte at offset %d: manifests are UTF-8 text", i)
	}
	if !utf8.Valid(data) {
		return fmt.Errorf("not UTF-8 text (offset %d): save it as UTF-8", invalidOffset(data))
	}
	return nil
}

func invalidOffset(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(data)
}

// maxErrors bounds what is told of one file.
const maxErrors = 100

// parser collects the objects and the errors of one file.
type parser struct {
	file      string
	runlevel  int
	component string
	limits    Limits

	document  int
	line      int  // on which the document begins
	full      bool // nothing more is looked at
	manifests []*Manifest
	errs      []error
	seen      map[ID]int

	// strict has repeated keys noted; lines are those on which the documents begin.
	strict   bool
	repeated []RepeatedKey
	lines    []int
}

// begin counts a document that begins on a line of the file.
func (p *parser) begin(line int) {
	p.document++
	p.line = line
	p.lines = append(p.lines, line)
}

func (p *parser) fail(field string, err error) {
	line := p.line
	if at, ok := errors.AsType[*lineError](err); ok {
		line = at.line
	}
	switch {
	case len(p.errs) < maxErrors:
		p.errs = append(p.errs, &Error{File: p.file, Document: p.document, Field: field, Line: line, Err: err})
	case !p.full:
		p.full = true
		p.errs = append(p.errs, &Error{File: p.file, Err: fmt.Errorf("more than %d mistakes, the rest of the file is not looked at", maxErrors)})
	}
}

// add takes one decoded document. A list becomes its items.
func (p *parser) add(raw []byte, value any) {
	object, ok := value.(map[string]any)
	if !ok {
		p.fail("", fmt.Errorf("the document is a %s, not an object", describe(value)))
		return
	}
	if items, ok := listItems(object); ok {
		p.addItems(object, items)
		return
	}
	p.addObject(raw, object)
}

func (p *parser) addObject(raw []byte, object map[string]any) {
	if len(p.manifests) >= p.limits.Documents {
		p.fail("", fmt.Errorf("more than %d objects in one file: split it", p.limits.Documents))
		p.full = true
		return
	}
	if len(raw) > p.limits.ObjectBytes {
		p.fail("", fmt.Errorf("%w: %d bytes as JSON, the limit is %d", ErrTooLarge, len(raw), p.limits.ObjectBytes))
		return
	}
	if errs := checkIdentity(object); len(errs) > 0 {
		for _, err := range errs {
			p.fail(err.Field, err.Err)
		}
		return
	}
	m := &Manifest{
		File: p.file, Document: p.document, Runlevel: p.runlevel, Component: p.component,
		Raw: raw, Content: sha256.Sum256(raw), Object: &unstructured.Unstructured{Object: object},
	}
	if first, ok := p.seen[m.ID()]; ok {
		p.fail("", fmt.Errorf("%s %w, first as document %d", m.ID(), ErrTwice, first))
		return
	}
	p.seen[m.ID()] = p.document
	p.manifests = append(p.manifests, m)
}

// listItems tells whether an object is a list as kubectl writes them: a kind that ends in List, items, and no name.
func listItems(object map[string]any) ([]any, bool) {
	kind, _ := object["kind"].(string)
	items, ok := object["items"].([]any)
	if !ok || !strings.HasSuffix(kind, "List") {
		return nil, false
	}
	meta, _ := object["metadata"].(map[string]any)
	_, named := meta["name"]
	return items, !named
}

// addItems adds a list's items. Items of a typed list (RoleList) may leave out what the list's own kind tells.
func (p *parser) addItems(list map[string]any, items []any) {
	kind := strings.TrimSuffix(list["kind"].(string), "List")
	for i, item := range items {
		if p.full {
			return
		}
		field := fmt.Sprintf("items[%d]", i)
		object, ok := item.(map[string]any)
		if !ok {
			p.fail(field, fmt.Errorf("the item is a %s, not an object", describe(item)))
			continue
		}
		if _, ok := object["kind"]; !ok && kind != "" {
			object["kind"] = kind
		}
		if _, ok := object["apiVersion"]; !ok && kind != "" {
			object["apiVersion"] = list["apiVersion"]
		}
		if nested, ok := listItems(object); ok {
			p.addItems(object, nested)
			continue
		}
		raw, err := compactJSON(object)
		if err != nil {
			p.fail(field, err)
			continue
		}
		p.addObject(raw, object)
	}
}

// checkIdentity looks only at what identifies an object and at what the inclusion rules read. Annotations of a wrong
// type matter: read leniently they would be no annotations at all, and the object would be left out in silence.
func checkIdentity(object map[string]any) []*Error {
	var errs []*Error
	fail := func(field, format string, args ...any) {
		errs = append(errs, &Error{Field: field, Err: fmt.Errorf(format, args...)})
	}
	requireString := func(parent map[string]any, key, field string) string {
		value, present := parent[key]
		s, ok := value.(string)
		switch {
		case !present || value == nil || ok && s == "":
			fail(field, "missing")
		case !ok:
			fail(field, "is a %s, not a string", describe(value))
		}
		return s
	}
	requireString(object, "kind", "kind")
	if v := requireString(object, "apiVersion", "apiVersion"); v != "" {
		if _, err := schema.ParseGroupVersion(v); err != nil {
			fail("apiVersion", "%q is not <group>/<version>", v)
		}
	}
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		fail("metadata.name", "missing")
		return errs
	}
	if meta["generateName"] != nil && meta["name"] == nil {
		fail("metadata.generateName", "not possible in a release, whose objects are applied again and again: use metadata.name")
	} else {
		requireString(meta, "name", "metadata.name")
	}
	if ns, ok := meta["namespace"]; ok && ns != nil {
		if _, ok := ns.(string); !ok {
			fail("metadata.namespace", "is a %s, not a string", describe(ns))
		}
	}
	for _, key := range []string{"annotations", "labels"} {
		checkStringMap(meta[key], "metadata."+key, fail)
	}
	return errs
}

func checkStringMap(value any, field string, fail func(field, format string, args ...any)) {
	if value == nil {
		return
	}
	entries, ok := value.(map[string]any)
	if !ok {
		fail(field, "is a %s, not an object", describe(value))
		return
	}
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		if _, ok := entries[k].(string); !ok {
			fail(fmt.Sprintf("%s[%s]", field, k), "is a %s, not a string: quote it", describe(entries[k]))
		}
	}
}

// describe names a decoded value's type as JSON knows it.
func describe(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "list"
	case map[string]any:
		return "map"
	default:
		return "number"
	}
}
