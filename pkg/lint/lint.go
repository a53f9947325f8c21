// Package lint looks for mistakes in the files of a release before a cluster does: it takes the files, by name and
// bytes, and returns findings, each with file, line and remedy. It is pure; reading images and printing are left to the
// caller, and so is the decision what a finding is worth.
package lint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// File is one file of a release.
type File struct {
	// Name is the path from the root of the release: manifests/x.yaml, release-manifests/image-references.
	Name string
	Data []byte
}

// Severity says what a finding means for the release.
type Severity string

const (
	// Error: the release cannot be applied as it stands, or not everywhere.
	Error Severity = "error"
	// Warning: it can, but hardly does what its author meant.
	Warning Severity = "warning"
	// Info: worth knowing, nothing to do.
	Info Severity = "info"
)

// rank orders severities, the worst first.
func (s Severity) rank() int { return slices.Index([]Severity{Error, Warning, Info}, s) }

// Finding is one mistake. Its JSON is for scripts: fields are added, never renamed or removed.
type Finding struct {
	Severity Severity `json:"severity"`
	// Rule is the ID of the rule, see Rules.
	Rule string `json:"rule"`
	// File is the path from the root of the release.
	File string `json:"file"`
	// Line counts from 1; 0 for the file as a whole. In a template it is that of the rendered text where rendering
	// keeps the lines, else 0.
	Line int `json:"line,omitempty"`
	// Document counts from 1; 0 for the file as a whole.
	Document int `json:"document,omitempty"`
	// Object is what the document brings, where it can be read.
	Object *manifest.ID `json:"object,omitempty"`
	// Field is the path in the object, such as spec.selector.
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	// Remedy is what the author can do.
	Remedy string `json:"remedy"`
}

// Options say what is looked for. The zero value looks for everything.
type Options struct {
	// Disable are the IDs of rules that are not wanted.
	Disable []string
	// Kubernetes is the version that the release is made for, such as 1.36; default what its image-references say of
	// themselves, and without that the newest that is known here.
	Kubernetes string
	// ReleaseImage is the pullspec that templates are given; default one that stands for any.
	ReleaseImage string
	// Limits bound each file.
	Limits manifest.Limits
}

// defaultReleaseImage stands for the release itself, whose digest is not known before it is made.
const defaultReleaseImage = "release.invalid/release@sha256:0000000000000000000000000000000000000000000000000000000000000000"

// Report is what Check found.
type Report struct {
	// Findings are sorted by file, line, rule and message.
	Findings []Finding `json:"findings"`
	// Files and Objects are how many were looked at.
	Files   int `json:"files"`
	Objects int `json:"objects"`
	// Totals count findings by severity.
	Totals Totals `json:"totals"`
}

// Totals count findings by severity.
type Totals struct {
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	Infos    int `json:"infos"`
}

// Check looks at the files of a release. The order of files does not matter; of several of one name the last counts.
func Check(files []File, opts Options) *Report {
	if opts.ReleaseImage == "" {
		opts.ReleaseImage = defaultReleaseImage
	}
	c := &check{opts: opts, served: servedKinds(), namespaces: sets.New[string]()}
	c.sort(files)
	c.readMetadata()
	c.readReferences()
	c.target()
	c.eachFile((*check).read)
	c.collect()
	c.eachFile((*check).checkObjects)
	c.checkRelease()
	return c.report()
}

// check is one run.
type check struct {
	opts   Options
	served kinds

	metadata   *payload.Metadata
	references references
	kubernetes version

	files   []*file
	objects []*object
	gates   manifest.Gates
	crds    map[groupKind][]*definition
	// namespaces are those that the release brings, knownGates the gates that its FeatureGates name.
	namespaces, knownGates sets.Set[string]

	found findings
}

// file is one file of the release while it is looked at; one goroutine at a time works on it.
type file struct {
	name string
	// text is what is parsed: of a template, what it was rendered to.
	text []byte
	// lines: line numbers of text are those of the file.
	lines   bool
	parsed  manifest.Examined
	objects []*object
	images  []mention
	found   findings
}

func (f *file) base() string { return path.Base(f.name) }

// object is one object of the release.
type object struct {
	*manifest.Manifest
	file  *file
	reach manifest.Reach
}

func (o *object) line() int { return o.file.lineOf(o.Document) }

// lineOf is the line on which a document begins.
func (f *file) lineOf(document int) int {
	if document < 1 || document > len(f.parsed.Lines) || !f.lines {
		return 0
	}
	return f.parsed.Lines[document-1]
}

// findings are what one goroutine found.
type findings struct {
	list []found
	// more counts, by rule and file, what there is beyond maxFindings.
	count map[place]int
}

type place struct{ rule, file string }

// found is a finding with the object that it is about, whose reach decides what it is worth.
type found struct {
	Finding
	object *object
}

// maxFindings bounds what one rule says of one file.
const maxFindings = 50

// add takes the first findings of a rule and a file; the others are counted.
func (fs *findings) add(rule, file string, finding func() found) {
	if fs.count == nil {
		fs.count = map[place]int{}
	}
	p := place{rule, file}
	fs.count[p]++
	if fs.count[p] > maxFindings {
		return
	}
	f := finding()
	f.Rule, f.File = rule, file
	fs.list = append(fs.list, f)
}

// file adds a finding about a file, or about a line of it.
func (fs *findings) file(rule, name string, line int, format string, args ...any) {
	fs.add(rule, name, func() found {
		return found{Finding: Finding{Line: line, Message: fmt.Sprintf(format, args...)}}
	})
}

// document adds a finding about a place in a document.
func (fs *findings) document(rule string, f *file, line, document int, field, message string) {
	if !f.lines {
		line = 0
	}
	fs.add(rule, f.name, func() found {
		return found{object: f.object(document), Finding: Finding{Line: line, Document: document, Field: field, Message: message}}
	})
}

// object is the one object of a document, nil if it brings none or several.
func (f *file) object(document int) *object {
	var only *object
	for _, o := range f.objects {
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

// object adds a finding about an object as a whole.
func (fs *findings) object(rule string, o *object, format string, args ...any) {
	fs.field(rule, o, nil, format, args...)
}

// field adds a finding about a field of an object.
func (fs *findings) field(rule string, o *object, at fieldPath, format string, args ...any) {
	fs.add(rule, o.file.name, func() found {
		id := o.ID()
		return found{object: o, Finding: Finding{
			Line: o.file.locate(o.Document, at), Document: o.Document, Object: &id,
			Field: at.String(), Message: fmt.Sprintf(format, args...),
		}}
	})
}

// rest says of each rule and file how much was only counted.
func (fs *findings) rest() []found {
	var out []found
	for p, n := range fs.count {
		if n > maxFindings {
			out = append(out, found{Finding: Finding{
				Rule: p.rule, File: p.file, Message: fmt.Sprintf("%d more findings of this rule in this file", n-maxFindings),
			}})
		}
	}
	return out
}

// sort takes the files in the order of their names.
func (c *check) sort(files []File) {
	byName := map[string]*file{}
	for _, f := range files {
		name := path.Clean(strings.TrimPrefix(f.Name, "/"))
		byName[name] = &file{name: name, text: f.Data, lines: true}
	}
	for _, f := range byName {
		c.files = append(c.files, f)
	}
	slices.SortFunc(c.files, func(a, b *file) int { return strings.Compare(a.name, b.name) })
}

// eachFile calls do for all files, some at a time.
func (c *check) eachFile(do func(*check, *file)) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, f := range c.files {
		group.Go(func() error {
			do(c, f)
			return nil
		})
	}
	_ = group.Wait() // nothing fails: mistakes are findings
}

// report sorts what was found and decides what each finding is worth.
func (c *check) report() *Report {
	all := append(slices.Clone(c.found.list), c.found.rest()...)
	for _, f := range c.files {
		all = append(append(all, f.found.list...), f.found.rest()...)
	}
	r := &Report{Files: len(c.files), Objects: len(c.objects), Findings: make([]Finding, 0, len(all))}
	rules := rulesByID()
	for _, f := range all {
		if slices.Contains(c.opts.Disable, f.Rule) {
			continue
		}
		rule := rules[f.Rule]
		if f.Severity == "" {
			f.Severity = rule.Severity
		}
		if f.Remedy == "" {
			f.Remedy = rule.Remedy
		}
		if f.object != nil && f.Object == nil {
			id := f.object.ID()
			f.Object = &id
		}
		if f.object != nil && f.Severity == Error && f.object.reach.Never() {
			f.Severity = Warning
			f.Message += "; no profile applies it"
		}
		r.Findings = append(r.Findings, f.Finding)
	}
	slices.SortFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Document, b.Document),
			cmp.Compare(a.Severity.rank(), b.Severity.rank()), strings.Compare(a.Rule, b.Rule), strings.Compare(a.Message, b.Message))
	})
	r.Findings = slices.CompactFunc(r.Findings, func(a, b Finding) bool {
		return a.File == b.File && a.Line == b.Line && a.Document == b.Document && a.Rule == b.Rule && a.Message == b.Message
	})
	for _, f := range r.Findings {
		switch f.Severity {
		case Error:
			r.Totals.Errors++
		case Warning:
			r.Totals.Warnings++
		case Info:
			r.Totals.Infos++
		}
	}
	return r
}

// maxFileBytes bounds what ReadFiles takes of one file: a byte more than parsing does, so that its limit shows.
const maxFileBytes = 8<<20 + 1

// maxFiles bounds the files of a release; real ones have about a thousand.
const maxFiles = 40_000

// ReadFiles reads the two folders of a release from the root of its image, or of a folder laid out like it, with their
// sub-folders, of whose files Check says that nobody applies them.
func ReadFiles(fsys fs.FS) ([]File, error) {
	var files []File
	for _, dir := range []string{payload.OperatorDir, payload.ReleaseDir} {
		err := fs.WalkDir(fsys, dir, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			if info, err := fs.Stat(fsys, name); err == nil && info.IsDir() {
				return nil // a link to a folder, which nobody follows
			}
			data, err := readFile(fsys, name)
			if err != nil {
				return err
			}
			if files = append(files, File{Name: name, Data: data}); len(files) > maxFiles {
				return fmt.Errorf("%s: more than %d files", dir, maxFiles)
			}
			return nil
		})
		if _, statErr := fs.Stat(fsys, dir); errors.Is(statErr, fs.ErrNotExist) {
			continue // for Check to say
		}
		if err != nil {
			return nil, fmt.Errorf("reading the release's folder %s: %w", dir, err)
		}
	}
	return files, nil
}
