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

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/internal/errorset"
)

// Error is an error in one document of a file.
type Error struct {
	// File is the base name of the file.
	File string
	// Document is the position of the document in the file, from 1; 0 for the whole file.
	Document int
	// Field is the path in the document, such as metadata.name; empty for the whole document.
	Field string
	// Line is the line of a syntax error, otherwise the first line of the document; 0 if unknown.
	Line int
	// Err is the cause.
	Err error
}

// Error returns text such as `0000_50_dns_x.yaml[2]: metadata.name: missing`.
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

// Causes of an Error that callers distinguish.
var (
	// ErrTwice means that a file contains one object twice.
	ErrTwice = errors.New("occurs twice in this file")
	// ErrName means that a request path cannot contain the name or namespace of an object.
	ErrName = errors.New("is not a valid name")
	// ErrTooLarge means that an object is larger than a cluster can store.
	ErrTooLarge = errors.New("the object is too large")
)

// Parse reads all objects of one file, in order. It accepts everything found in real releases: several YAML documents separated by lines
// that begin with "---", a byte order mark, JSON in .yaml files, documents with comments only, and status sections. It also accepts objects
// with metadata only, lists (replaced by their items) and repeated keys (the last one wins, as in the original). It does not validate
// specs. Every object needs a kind, an apiVersion and a metadata.name, and may occur once per file. Annotations and labels must be strings.
// The original loads objects without apiVersion, which no API server accepts. If one annotation is not a string, it ignores all annotations
// of the object. Here, both are errors.
//
// Parse returns all errors of the file, up to a hundred, joined and sorted. Each is an *Error that names the document and the field.
func Parse(file string, data []byte, limits Limits) ([]*Manifest, error) {
	p := parser{file: path.Base(file), limits: limits.WithDefaults(), seen: map[ID]int{}}
	p.runlevel, p.component = Place(p.file)
	if err := checkBytes(data, p.limits); err != nil {
		return nil, &Error{File: p.file, Err: err}
	}
	p.stream(data)
	if err := errorset.Join(p.errs); err != nil {
		return nil, err
	}
	return p.manifests, nil
}

func checkBytes(data []byte, limits Limits) error {
	if len(data) > limits.FileBytes {
		return fmt.Errorf("the file has %d bytes, the limit is %d: split it", len(data), limits.FileBytes)
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return fmt.Errorf("NUL byte at offset %d: manifests must be UTF-8 text", i)
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

// maxErrors limits the number of errors reported for one file.
const maxErrors = 100

// parser collects the objects and the errors of one file.
type parser struct {
	file      string
	runlevel  int
	component string
	limits    Limits

	document  int
	line      int  // the first line of the document
	full      bool // the rest of the file is ignored
	manifests []*Manifest
	errs      []error
	seen      map[ID]int

	// strict records repeated keys. lines are the first lines of the documents.
	strict   bool
	repeated []RepeatedKey
	lines    []int
}

// begin starts a document at a line of the file.
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
		p.errs = append(p.errs, &Error{File: p.file, Err: fmt.Errorf("more than %d errors: the rest of the file was not checked", maxErrors)})
	}
}

// add adds one decoded document. It replaces a list with its items.
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

// listItems reports whether an object is a list in kubectl's form: a kind that ends in List, items, and no name.
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

// addItems adds a list's items. Items of a typed list (such as RoleList) may omit kind and apiVersion, which the list implies.
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

// checkIdentity checks only the fields that identify an object or decide its inclusion. Annotations of a wrong type are errors, because
// ignoring them would silently exclude the object.
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
			fail(field, "must be a string, not a %s", describe(value))
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
		fail("metadata.generateName", "not allowed, because the objects of a release are applied repeatedly: use metadata.name")
	} else {
		checkPathSegment(requireString(meta, "name", "metadata.name"), "metadata.name", fail)
	}
	if ns, ok := meta["namespace"]; ok && ns != nil {
		text, ok := ns.(string)
		if !ok {
			fail("metadata.namespace", "must be a string, not a %s", describe(ns))
		}
		checkPathSegment(text, "metadata.namespace", fail)
	}
	for _, key := range []string{"annotations", "labels"} {
		checkStringMap(meta[key], "metadata."+key, fail)
	}
	return errs
}

// checkPathSegment checks a name that requests contain in their paths. No API server has an object with another name, and the name "../a"
// would lead a request to another object.
func checkPathSegment(name, field string, fail func(field, format string, args ...any)) {
	for _, problem := range content.IsPathSegmentName(name) {
		fail(field, "%q %w: %s", name, ErrName, problem)
	}
}

func checkStringMap(value any, field string, fail func(field, format string, args ...any)) {
	if value == nil {
		return
	}
	entries, ok := value.(map[string]any)
	if !ok {
		fail(field, "must be an object, not a %s", describe(value))
		return
	}
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		if _, ok := entries[k].(string); !ok {
			fail(fmt.Sprintf("%s[%s]", field, k), "must be a string, not a %s: quote it", describe(entries[k]))
		}
	}
}

// describe returns the JSON type of a decoded value.
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
