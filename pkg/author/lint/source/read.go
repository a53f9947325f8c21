package source

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/author/lint/finding"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// Parsed is a parsed file of the release. It is not safe for concurrent use.
type Parsed struct {
	Name string
	// Text is the parsed text. For a template, it is the rendered text.
	Text []byte
	// Objects are the objects in the file, in order.
	Objects []*Object
	// Readable is set for a manifest file whose text is valid and, for a template, has been rendered.
	Readable bool
	Found    finding.List

	// origin is the path of the author's file; empty if there is none.
	origin string
	// lines is set if the line numbers in Text match the file's.
	lines  bool
	parsed manifest.Examined
}

func (f *Parsed) base() string { return path.Base(f.Name) }

// lineOf returns the first line of a document.
func (f *Parsed) lineOf(document int) int {
	if document < 1 || document > len(f.parsed.Lines) || !f.lines {
		return 0
	}
	return f.parsed.Lines[document-1]
}

// object returns the object in a document; nil if the document has no object or several.
func (f *Parsed) object(document int) *Object {
	var only *Object
	for _, o := range f.Objects {
		if o.Document != document {
			continue
		}
		if only != nil {
			return nil
		}
		only = o
	}
	return only
}

// FindAt adds a finding at an offset in the text.
func (f *Parsed) FindAt(rule string, offset int, format string, args ...any) {
	f.find(rule, f.lineAt(offset), f.documentAt(offset), "", fmt.Sprintf(format, args...))
}

// find adds a finding about a location in a document.
func (f *Parsed) find(rule string, line, document int, field, message string) {
	if !f.lines {
		line = 0
	}
	f.Found.Add(rule, f.Name, func() finding.Finding {
		found := finding.Finding{Line: line, Document: document, Field: field, Message: message}
		if o := f.object(document); o != nil {
			id := o.ID()
			found.Object, found.Unused = &id, o.reach.Never()
		}
		return found
	})
}

func readFile(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	content.Grow(int(min(info.Size(), maxFileBytes)) + bytes.MinRead)
	_, err = content.ReadFrom(io.LimitReader(f, maxFileBytes))
	return content.Bytes(), err
}

// isManifest reports whether a file is applied. Like the loader of releases, it checks the folder and the extension.
func (f *Parsed) isManifest() bool {
	dir := path.Dir(f.Name)
	if dir != payload.OperatorDir && dir != payload.ReleaseDir {
		return false
	}
	return manifest.IsFile(f.Name)
}

// read parses a file and adds findings about the file itself.
func (r *Release) read(f *Parsed) {
	switch {
	case f.Name == payload.MetadataFile, f.Name == payload.ReferencesFile:
		return
	case !f.isManifest():
		f.Found.File("file-ignored", f.Name, 0, "%s", ignored(f.Name))
		return
	}
	if !utf8.ValidString(f.Name) {
		f.Found.Add("file-name", f.Name, func() finding.Finding {
			return finding.Finding{Severity: finding.Error, Message: fmt.Sprintf("the name %q is not UTF-8 text: a cluster rejects the whole release", f.base())}
		})
		return
	}
	f.checkName()
	if bytes.HasPrefix(f.Text, []byte("\xef\xbb\xbf")) {
		f.Found.File("byte-order-mark", f.Name, 1, "starts with a byte order mark")
	}
	if !f.checkText() || !r.render(f) {
		return
	}
	f.Readable = true
	f.parsed = manifest.Examine(f.base(), f.Text)
	f.checkParsed()
	for _, m := range f.parsed.Manifests {
		f.Objects = append(f.Objects, &Object{Manifest: m, In: f, reach: inclusion.ReachOf(m)})
	}
	if len(f.parsed.Manifests) == 0 && len(f.parsed.Errors) == 0 {
		f.Found.File("no-object", f.Name, 0, "contains no object")
	}
	f.checkList()
}

func ignored(name string) string {
	if dir := path.Dir(name); dir == payload.OperatorDir || dir == payload.ReleaseDir {
		return "is never applied: only .yaml, .yml and .json files are manifests"
	}
	root, _, _ := strings.Cut(name, "/")
	return "is never applied: folders inside " + root + "/ are not read"
}

func (f *Parsed) checkName() {
	find := func(format string, args ...any) { f.Found.File("file-name", f.Name, 0, format, args...) }
	name := f.base()
	_, component, ok := manifest.ParseName(name)
	digits, _, _ := strings.Cut(strings.TrimPrefix(name, "0000_"), "_")
	switch {
	case !ok:
		find("the name is not 0000_NN_<component>_<rest>, so the file has runlevel %d and is a separate component", manifest.DefaultRunlevel)
	case len(digits) != 2:
		find("runlevel %s does not have two digits: OpenShift's operator orders files by the text of their names", digits)
	case strings.Count(name, "_") < 3:
		find("the name has no fourth part, so all of %q is the component", component)
	}
	if printable.Text(name) != name {
		find("the name %q has characters that cannot be printed", name)
	}
	if strings.HasPrefix(path.Base(cmp.Or(f.origin, name)), "-") {
		find("the name starts with a hyphen, so shell commands with the argument * read it as flags")
	}
}

// checkText adds a finding if the file is not text, and reports whether it is.
func (f *Parsed) checkText() bool {
	if i := bytes.IndexByte(f.Text, 0); i >= 0 {
		f.Found.File("not-text", f.Name, f.lineAt(i), "has a NUL byte at offset %d", i)
		return false
	}
	if utf8.Valid(f.Text) {
		return true
	}
	offset := 0
	for rest := f.Text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 {
			break
		}
		rest, offset = rest[size:], offset+size
	}
	f.Found.File("not-text", f.Name, f.lineAt(offset), "is not UTF-8 text (offset %d)", offset)
	return false
}

func (f *Parsed) lineAt(offset int) int {
	if !f.lines {
		return 0
	}
	return 1 + bytes.Count(f.Text[:offset], []byte("\n"))
}

// render replaces the text of a template with the rendered text. It returns false on errors.
func (r *Release) render(f *Parsed) bool {
	if path.Dir(f.Name) != payload.OperatorDir || !bytes.Contains(f.Text, []byte("{{")) {
		return true
	}
	text, err := payload.Render(f.base(), f.Text, r.References.Images)
	if err != nil {
		f.Found.File("template", f.Name, templateLine(err), "%v", err)
		return false
	}
	f.lines = bytes.Count(text, []byte("\n")) == bytes.Count(f.Text, []byte("\n"))
	f.Text = text
	return true
}

var templatePlace = regexp.MustCompile(`template: [^:\s]+:(\d{1,9}):`)

// templateLine returns the line in an error of text/template, such as "template: name:12:"; 0 if there is none.
func templateLine(err error) int {
	match := templatePlace.FindStringSubmatch(err.Error())
	if match == nil {
		return 0
	}
	line, _ := strconv.Atoi(match[1])
	return line
}

// checkParsed adds findings for the parser's errors.
func (f *Parsed) checkParsed() {
	for _, err := range f.parsed.Errors {
		rule := "invalid-object"
		switch {
		case errors.Is(err.Err, manifest.ErrTwice):
			rule = "duplicate-object"
		case errors.Is(err.Err, manifest.ErrTooLarge):
			rule = "object-too-large"
		case errors.Is(err.Err, manifest.ErrName):
			rule = "invalid-metadata"
		case err.Field == "metadata.generateName":
			rule = "generate-name"
		case err.Field == "" && (strings.HasPrefix(err.Err.Error(), "parsing ") || strings.HasPrefix(err.Err.Error(), "text after")):
			rule = "syntax"
		}
		message := err.Err.Error()
		if err.Field != "" {
			message = err.Field + ": " + message
		}
		line := err.Line
		if at := ParsePath(err.Field); f.lines && len(at) > 0 {
			line = f.locate(err.Document, at)
		}
		f.find(rule, line, err.Document, err.Field, message)
	}
	for _, r := range f.parsed.Repeated {
		f.find("duplicate-key", r.Line, r.Document, "",
			"duplicate key "+strconv.Quote(r.Key)+": the last one counts")
	}
}

// checkList adds findings about lists, which contain several objects in one document.
func (f *Parsed) checkList() {
	last := 0
	for i, o := range f.Objects {
		if i > 0 && o.Document == f.Objects[i-1].Document && o.Document != last {
			last = o.Document
			f.Found.File("list", f.Name, o.Line(), "document %d is a list", o.Document)
		}
	}
}

// Comment reports whether an offset is in a comment line.
func (f *Parsed) Comment(offset int) bool {
	line := f.Text[bytes.LastIndexByte(f.Text[:offset], '\n')+1:]
	return bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("#"))
}

// documentAt returns the number of the document at an offset.
func (f *Parsed) documentAt(offset int) int {
	line := 1 + bytes.Count(f.Text[:offset], []byte("\n"))
	n, exact := slices.BinarySearch(f.parsed.Lines, line)
	if exact {
		n++
	}
	return n
}
