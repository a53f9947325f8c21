// Package source reads the files of a release for linting. It takes files by name and content. It returns a Release with the parsed files,
// the metadata, and the objects with their file, line and clusters. It adds findings about the files themselves: text, syntax, names,
// release-metadata and image-references. Other packages check the objects.
package source

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/blang/semver/v4"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/author/lint/finding"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/payload"
)

// File is a file in a release.
type File struct {
	// Name is the path from the root of the release, such as manifests/x.yaml or release-manifests/image-references.
	Name string
	Data []byte
	// Origin is the path of the author's file; empty if there is none. Added are the numbers of the lines in Data that this file lacks, from 1
	// and sorted. Findings name this file and its lines.
	Origin string
	Added  []int
}

// Release is a parsed release.
type Release struct {
	// Metadata is nil if release-metadata cannot be read.
	Metadata   *payload.Metadata
	References References

	// Files are sorted by name. Objects are the objects of all files, in the same order.
	Files   []*Parsed
	Objects []*Object
	// Gates determine which clusters get an object.
	Gates inclusion.Gates
	// CRDs contains the CRDs of each kind that the release defines.
	CRDs map[schema.GroupKind][]*Definition
	// Namespaces contains the release's namespaces, KnownGates the gates in its FeatureGates.
	Namespaces, KnownGates sets.Set[string]

	// Found contains findings about the release as a whole. Findings about a file are in the file's own list.
	Found finding.List
}

// Read parses the files of a release, in any order. If several files have the same name, the last one counts.
func Read(files []File) *Release {
	r := &Release{Namespaces: sets.New[string](), KnownGates: sets.New[string](), CRDs: map[schema.GroupKind][]*Definition{}}
	r.sort(files)
	r.readMetadata()
	r.readReferences()
	r.EachFile(r.read)
	r.collect()
	return r
}

// sort stores the files, sorted by name.
func (r *Release) sort(files []File) {
	byName := map[string]*Parsed{}
	for _, f := range files {
		name := path.Clean(strings.TrimPrefix(f.Name, "/"))
		byName[name] = &Parsed{Name: name, Text: f.Data, origin: f.Origin, lines: true}
	}
	for _, f := range byName {
		r.Files = append(r.Files, f)
	}
	slices.SortFunc(r.Files, func(a, b *Parsed) int { return strings.Compare(a.Name, b.Name) })
}

// EachFile calls do for all files, in parallel.
func (r *Release) EachFile(do func(*Parsed)) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, f := range r.Files {
		group.Go(func() error {
			do(f)
			return nil
		})
	}
	_ = group.Wait() // mistakes are findings, not errors
}

// File returns the file with a name; nil if there is none.
func (r *Release) File(name string) *Parsed {
	for _, f := range r.Files {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Name describes the release by its version.
func (r *Release) Name() string {
	if r.Metadata == nil {
		return "the earlier release"
	}
	return "release " + r.Metadata.Version
}

// Major returns the release's major version; nil if it is unknown.
func (r *Release) Major() *uint64 {
	if r.Metadata == nil {
		return nil
	}
	return new(semver.MustParse(r.Metadata.Version).Major)
}

// Meet reports whether some cluster gets both objects.
func (r *Release) Meet(a, b *Object) bool { return len(r.Gates.Clusters(a.reach, b.reach)) > 0 }

// Lists returns the findings about the release and its files.
func (r *Release) Lists() []*finding.List {
	lists := []*finding.List{&r.Found}
	for _, f := range r.Files {
		lists = append(lists, &f.Found)
	}
	return lists
}

// maxFileBytes is the maximum number of bytes that ReadFiles reads of a file. It exceeds the parser's limit by one, so that the parser
// detects larger files.
const maxFileBytes = 8<<20 + 1

// maxFiles is the maximum number of files in a release. Real releases have about a thousand.
const maxFiles = 40_000

// ReadFiles reads the two folders of a release from the root of its image, or from a folder with the same structure. It includes
// subfolders, whose files are never applied, to report them as findings.
func ReadFiles(fsys fs.FS) ([]File, error) {
	var files []File
	for _, dir := range []string{payload.OperatorDir, payload.ReleaseDir} {
		err := fs.WalkDir(fsys, dir, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			if info, err := fs.Stat(fsys, name); err == nil && info.IsDir() {
				return nil // links to folders are not followed
			}
			var data []byte
			if utf8.ValidString(name) { // other files cannot be opened, which is a finding
				if data, err = readFile(fsys, name); err != nil {
					return err
				}
			}
			if files = append(files, File{Name: name, Data: data}); len(files) > maxFiles {
				return fmt.Errorf("%s: more than %d files", dir, maxFiles)
			}
			return nil
		})
		if _, statErr := fs.Stat(fsys, dir); errors.Is(statErr, fs.ErrNotExist) {
			continue // a missing folder is a finding
		}
		if err != nil {
			return nil, fmt.Errorf("reading the release's folder %s: %w", dir, err)
		}
	}
	return files, nil
}
