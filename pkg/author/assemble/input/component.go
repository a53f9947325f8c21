// Package input reads the inputs of a new release: components from folders, component images with manifests and versions, image streams,
// and lists of COMPONENT=PULLSPEC. It returns components, and images by digest. Package assemble builds a release from them.
package input

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	imagev1 "github.com/openshift/api/image/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/internal/aliases"
	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// ReferencesFile is the name of a file with three uses. In a component's folder, it maps placeholders to images. At the top of a folder of
// components, it lists the component images. In a release, it lists the release's images.
const ReferencesFile = "image-references"

// File is a file of a component or a release.
type File struct {
	Name    string
	Data    []byte
	ModTime time.Time
	// Origin is the path of the author's file; empty if the file is not from a folder. Added are the numbers of the lines in Data that this
	// file lacks, from 1 and sorted.
	Origin string
	Added  []int
}

// Component is the part of a release that one component contributes.
type Component struct {
	// Name is the component's tag in image-references: lower-case letters, digits, dots and dashes.
	Name string
	// Files are the component's manifests.
	Files []File
	// References are the tags in the component's image-references. Each tag's name is a component, whose pullspec replaces the text in
	// from.name.
	References []imagev1.TagReference
}

// ContentError is a mistake in the content of a folder of components.
type ContentError struct {
	// Path is the path of the file in the folder of components, or of a component's folder; empty for the whole folder.
	Path string
	// Missing is set if only an image or a version is missing, which an argument of cvo release new can add.
	Missing bool
	// Err is the mistake. Its text names the component.
	Err error
}

// Error returns the mistake's text.
func (e *ContentError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e *ContentError) Unwrap() error { return e.Err }

// Mistake returns a ContentError.
func Mistake(path, format string, args ...any) error {
	return &ContentError{Path: path, Err: fmt.Errorf(format, args...)}
}

var componentName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

// CheckName returns an error if the name of a component is invalid.
func CheckName(name string) error {
	if !componentName.MatchString(name) {
		return fmt.Errorf("component %q: the name may contain only lower-case letters, digits, dots and dashes", name)
	}
	return nil
}

// CheckImage returns an error if a component image has an invalid name or no digest.
func CheckImage(image imagev1.TagReference) error {
	if err := CheckName(image.Name); err != nil {
		return err
	}
	if image.From == nil || image.From.Kind != "DockerImage" {
		return fmt.Errorf("image %q has no pullspec", image.Name)
	}
	digest := release.Pullspec(image.From.Name).Digest()
	if digest == "" {
		return fmt.Errorf("image %q: %q has no digest: replace the tag with a digest, or add the argument %s=%s without --offline to look up the digest",
			image.Name, image.From.Name, image.Name, image.From.Name)
	}
	if _, err := release.ParseDigest(string(digest)); err != nil {
		return fmt.Errorf("image %q: %w", image.Name, err)
	}
	return nil
}

// Folder is the content of a folder of components. The folder has a subfolder for each component and, optionally, image-references with
// the component images.
type Folder struct {
	Components []Component
	Images     []imagev1.TagReference
}

// IsFolder reports whether a path is a folder of components: it is not a release, and contains manifests or folders with manifests.
func IsFolder(dir string) bool {
	for _, name := range []string{payload.ReleaseDir, payload.OperatorDir, path.Base(payload.MetadataFile), layout.MarkerFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return false
		}
	}
	for _, pattern := range []string{"*", "*/*"} {
		names, err := fs.Glob(os.DirFS(dir), pattern)
		if err == nil && slices.ContainsFunc(names, manifest.IsFile) {
			return true
		}
	}
	return false
}

// ReadFolder reads a folder of components. It reports the errors of all components together, each mistake as a ContentError. With them, it
// returns the content without mistakes.
func ReadFolder(fsys fs.FS) (Folder, error) {
	var folder Folder
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return folder, fmt.Errorf("reading the folder of components: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		if hidden(entry.Name()) {
			continue
		}
		info, err := fs.Stat(fsys, entry.Name())
		if err == nil && !info.IsDir() {
			err = checkTop(fsys, entry.Name())
		}
		if err != nil || !info.IsDir() {
			errs = append(errs, err)
			continue
		}
		sub, err := fs.Sub(fsys, entry.Name())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		component, err := ReadComponent(entry.Name(), sub)
		errs = append(errs, err)
		folder.Components = append(folder.Components, component)
	}
	data, err := fs.ReadFile(fsys, ReferencesFile)
	if err == nil {
		if folder.Images, err = parseReferences(data); err != nil {
			err = &ContentError{Path: ReferencesFile, Err: err}
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	if len(folder.Components) == 0 {
		errs = append(errs, Mistake("", "the folder has no subdirectories: put each component's manifests into a subdirectory"))
	}
	return folder, errors.Join(errs...)
}

// checkTop rejects a file beside the folders of components, if it is a manifest or belongs to a tool that renders manifests.
func checkTop(fsys fs.FS, name string) error {
	foreign, err := checkForeignIn(fsys, name)
	switch {
	case err != nil:
		return err
	case foreign != nil:
		return Mistake(name, "%w", foreign)
	case manifest.IsFile(name):
		return Mistake(name, "%s belongs to no component: move it into the subdirectory of a component", name)
	}
	return nil
}

// ReadComponent reads the regular files at the top of a component's folder. It skips hidden files. Manifests in subfolders are an error. It
// reports all mistakes, each as a ContentError. With them, it returns the component without the files of other tools.
func ReadComponent(name string, fsys fs.FS) (Component, error) {
	files, err := ReadFiles(fsys)
	if err != nil {
		return Component{Name: name}, fmt.Errorf("component %s: %w", name, err)
	}
	errs := []error{checkSubfolders(name, fsys)}
	if name != api.OperatorComponent { // its files are templates of this operator
		files = slices.DeleteFunc(files, func(f File) bool {
			if hidden(f.Name) {
				return true
			}
			err := checkForeign(f)
			if err != nil {
				errs = append(errs, Mistake(path.Join(name, f.Name), "component %s: %w", name, err))
			}
			return err != nil
		})
	}
	c, err := newComponent(name, files)
	return c, errors.Join(append(errs, err)...)
}

// checkSubfolders returns an error if a component's subfolder contains a manifest, because a release has no subfolders.
func checkSubfolders(component string, fsys fs.FS) error {
	var errs []error
	err := fs.WalkDir(fsys, ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("component %s: %w", component, err)
		case file != "." && entry.IsDir() && hidden(entry.Name()):
			return fs.SkipDir
		case path.Dir(file) == "." || entry.IsDir():
			return nil
		}
		var foreign error
		if component != api.OperatorComponent { // its files are templates of this operator
			if foreign, err = checkForeignIn(fsys, file); err != nil {
				return fmt.Errorf("component %s: %w", component, err)
			}
		}
		switch {
		case foreign != nil:
			errs = append(errs, Mistake(path.Join(component, file), "component %s: folder %s: %w", component, path.Dir(file), foreign))
		case manifest.IsFile(entry.Name()):
			errs = append(errs, Mistake(path.Join(component, file),
				"component %s: %s is in a subfolder: move it to the folder of the component, or make its folder a component", component, file))
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// newComponent returns a component with the given files. It drops hidden files and parses image-references. With an error, it returns the
// component without image-references.
func newComponent(name string, files []File) (Component, error) {
	c := Component{Name: name}
	var errs []error
	if err := CheckName(name); err != nil {
		errs = append(errs, &ContentError{Path: name, Err: err})
	}
	for _, f := range files {
		if f.Name != ReferencesFile {
			if !hidden(f.Name) {
				c.Files = append(c.Files, f)
			}
			continue
		}
		var err error
		if c.References, err = parseReferences(f.Data); err != nil {
			errs = append(errs, Mistake(path.Join(name, ReferencesFile), "component %s: %w", name, err))
		}
	}
	return c, errors.Join(errs...)
}

// ReadFiles reads the regular files at the top of a folder, sorted by name. It follows links.
func ReadFiles(fsys fs.FS) ([]File, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("reading a folder of manifests: %w", err)
	}
	var files []File
	for _, entry := range entries {
		info, err := fs.Stat(fsys, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("reading a folder of manifests: %w", err)
		}
		if !info.Mode().IsRegular() {
			continue
		}
		data, err := fs.ReadFile(fsys, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("reading a manifest: %w", err)
		}
		files = append(files, File{Name: entry.Name(), Data: data, ModTime: info.ModTime()})
	}
	return files, nil
}

// parseReferences parses an image-references file and returns its tags.
func parseReferences(data []byte) ([]imagev1.TagReference, error) {
	stream, err := decodeStream(ReferencesFile, data)
	if err != nil {
		return nil, err
	}
	return stream.Spec.Tags, nil
}

// decodeStream parses an ImageStream in YAML or JSON. It ignores the case of keys, because some real files have "Name" instead of "name".
func decodeStream(what string, data []byte) (*imagev1.ImageStream, error) {
	stream := &imagev1.ImageStream{}
	if err := aliases.Check(data); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", what, err)
	}
	if err := yaml.Unmarshal(data, stream); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", what, err)
	}
	if stream.Kind != "ImageStream" {
		return nil, fmt.Errorf("%s has kind %q instead of ImageStream", what, stream.Kind)
	}
	return stream, nil
}

// ImageTag returns the tag of a component image with only a name and a pullspec.
func ImageTag(component, pullspec string) imagev1.TagReference {
	return imagev1.TagReference{Name: component, From: &corev1.ObjectReference{Kind: "DockerImage", Name: pullspec}}
}

func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// SortFiles sorts files by name.
func SortFiles(files []File) {
	sorted.By(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
}
