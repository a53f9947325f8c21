package lint

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

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

// isManifest tells whether somebody applies a file: by folder and extension, as loading a release does.
func (f *file) isManifest() bool {
	dir := path.Dir(f.name)
	if dir != payload.OperatorDir && dir != payload.ReleaseDir {
		return false
	}
	return manifest.IsFile(f.name)
}

// read parses a file and says what is wrong with it as a file.
func (c *check) read(f *file) {
	switch {
	case f.name == payload.MetadataFile, f.name == payload.ReferencesFile:
		return
	case !f.isManifest():
		f.found.file("file-ignored", f.name, 0, "%s", ignored(f.name))
		return
	}
	f.checkName()
	if bytes.HasPrefix(f.text, []byte("\xef\xbb\xbf")) {
		f.found.file("byte-order-mark", f.name, 1, "begins with a byte order mark")
	}
	if !f.checkText() || !c.render(f) {
		return
	}
	f.parsed = manifest.Examine(f.base(), f.text, c.opts.Limits)
	f.checkParsed()
	for _, m := range f.parsed.Manifests {
		f.objects = append(f.objects, &object{Manifest: m, file: f})
	}
	if len(f.parsed.Manifests) == 0 && len(f.parsed.Errors) == 0 {
		f.found.file("no-object", f.name, 0, "holds no object")
	}
	f.checkList()
	c.findImages(f)
}

func ignored(name string) string {
	if dir := path.Dir(name); dir == payload.OperatorDir || dir == payload.ReleaseDir {
		return "is never applied: only .yaml, .yml and .json files are manifests"
	}
	root, _, _ := strings.Cut(name, "/")
	return "is never applied: folders inside " + root + "/ are not read"
}

func (f *file) checkName() {
	_, component, ok := manifest.ParseName(f.base())
	switch {
	case !ok:
		f.found.file("file-name", f.name, 0, "the name is not 0000_NN_<component>_<rest>, so the file gets runlevel %d and a component of its own",
			manifest.DefaultRunlevel)
	case strings.Count(f.base(), "_") < 3:
		f.found.file("file-name", f.name, 0, "the name has no fourth part, so all of %q is taken for the component", component)
	}
}

// checkText looks at what makes a file no text.
func (f *file) checkText() bool {
	if i := bytes.IndexByte(f.text, 0); i >= 0 {
		f.found.file("not-text", f.name, f.lineAt(i), "has a NUL byte at offset %d", i)
		return false
	}
	if utf8.Valid(f.text) {
		return true
	}
	offset := 0
	for rest := f.text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 {
			break
		}
		rest, offset = rest[size:], offset+size
	}
	f.found.file("not-text", f.name, f.lineAt(offset), "is not UTF-8 text (offset %d)", offset)
	return false
}

func (f *file) lineAt(offset int) int {
	if !f.lines {
		return 0
	}
	return 1 + bytes.Count(f.text[:offset], []byte("\n"))
}

// render replaces the text of a template by what it is rendered to.
func (c *check) render(f *file) bool {
	if path.Dir(f.name) != payload.OperatorDir || !bytes.Contains(f.text, []byte("{{")) {
		return true
	}
	text, err := payload.Render(f.base(), f.text, c.opts.ReleaseImage, "", c.references.images)
	if err != nil {
		f.found.file("template", f.name, templateLine(err), "%v", err)
		return false
	}
	f.lines = bytes.Count(text, []byte("\n")) == bytes.Count(f.text, []byte("\n"))
	f.text = text
	return true
}

var templatePlace = regexp.MustCompile(`template: [^:\s]+:(\d{1,9}):`)

// templateLine reads the line from an error of text/template, which has "template: name:12:" in it.
func templateLine(err error) int {
	match := templatePlace.FindStringSubmatch(err.Error())
	if match == nil {
		return 0
	}
	line, _ := strconv.Atoi(match[1])
	return line
}

// checkParsed turns what parsing says into findings.
func (f *file) checkParsed() {
	for _, err := range f.parsed.Errors {
		rule := "invalid-object"
		switch {
		case errors.Is(err.Err, manifest.ErrTwice):
			rule = "duplicate-object"
		case errors.Is(err.Err, manifest.ErrTooLarge):
			rule = "object-size"
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
		if at := parseFieldPath(err.Field); f.lines && len(at) > 0 {
			line = f.locate(err.Document, at)
		}
		f.found.document(rule, f, line, err.Document, err.Field, message)
	}
	for _, r := range f.parsed.Repeated {
		f.found.document("duplicate-key", f, r.Line, r.Document, "",
			"the key "+quoted(r.Key)+" is in one map twice; the last one counts")
	}
}

// checkList finds lists, of which several objects share one document.
func (f *file) checkList() {
	last := 0
	for i, o := range f.objects {
		if i > 0 && o.Document == f.objects[i-1].Document && o.Document != last {
			last = o.Document
			f.found.file("list", f.name, o.line(), "document %d is a list", o.Document)
		}
	}
}
