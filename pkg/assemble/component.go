package assemble

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	imagev1 "github.com/openshift/api/image/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// referencesFile is, in a component's folder, the table of placeholders; at the top of a folder of components, the list
// of component images; in a release, the list of images that it consists of.
const referencesFile = "image-references"

// File is one file of a component or of a release.
type File struct {
	Name    string
	Data    []byte
	ModTime time.Time
}

// Component is what one component brings to a release.
type Component struct {
	// Name is that of its tag in image-references: lower-case letters, digits, dots and dashes.
	Name string
	// Files are its manifests.
	Files []File
	// References are the tags of its image-references: name is a component's, from.name the text to replace by that
	// component's pullspec.
	References []imagev1.TagReference
}

var componentName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

func checkComponentName(name string) error {
	if !componentName.MatchString(name) {
		return fmt.Errorf("component %q: a component's name consists of lower-case letters, digits, dots and dashes", name)
	}
	return nil
}

// overlay adds another component's files and references, which replace files of the same name.
func (c *Component) overlay(other Component) {
	c.References = append(c.References, other.References...)
	for _, f := range other.Files {
		c.Files = slices.DeleteFunc(c.Files, func(have File) bool { return have.Name == f.Name })
		c.Files = append(c.Files, f)
	}
}

// Folder is a folder of components: one subdirectory a component and, at the top, optionally image-references with
// the images of the components.
type Folder struct {
	Components []Component
	Images     []imagev1.TagReference
}

// ReadFolder reads a folder of components. Errors of all components are reported together.
func ReadFolder(fsys fs.FS) (Folder, error) {
	var folder Folder
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return folder, fmt.Errorf("reading the folder of components: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		info, err := fs.Stat(fsys, entry.Name())
		if err != nil || !info.IsDir() || hidden(entry.Name()) {
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
	data, err := fs.ReadFile(fsys, referencesFile)
	if err == nil {
		folder.Images, err = parseReferences(data)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	if len(folder.Components) == 0 {
		errs = append(errs, errors.New("the folder has no subdirectory: each component's manifests lie in one of their own"))
	}
	return folder, errors.Join(errs...)
}

// ReadComponent reads the files of one component: the regular files at the top of a folder, without hidden ones.
func ReadComponent(name string, fsys fs.FS) (Component, error) {
	files, err := ReadFiles(fsys)
	if err != nil {
		return Component{Name: name}, fmt.Errorf("component %s: %w", name, err)
	}
	return newComponent(name, files)
}

// newComponent takes hidden files and image-references out of a component's files.
func newComponent(name string, files []File) (Component, error) {
	c := Component{Name: name}
	if err := checkComponentName(name); err != nil {
		return c, err
	}
	for _, f := range files {
		if f.Name != referencesFile {
			if !hidden(f.Name) {
				c.Files = append(c.Files, f)
			}
			continue
		}
		var err error
		if c.References, err = parseReferences(f.Data); err != nil {
			return c, fmt.Errorf("component %s: %w", name, err)
		}
	}
	return c, nil
}

// ReadFiles reads the regular files at the top of a folder, by name. Links are followed.
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

// parseReferences reads the tags of an image-references file.
func parseReferences(data []byte) ([]imagev1.TagReference, error) {
	stream, err := decodeStream(referencesFile, data)
	if err != nil {
		return nil, err
	}
	return stream.Spec.Tags, nil
}

// decodeStream reads an ImageStream, YAML or JSON. Keys are read without regard to case, because real files write "Name"
// for "name".
func decodeStream(what string, data []byte) (*imagev1.ImageStream, error) {
	stream := &imagev1.ImageStream{}
	if err := manifest.CheckAliases(data); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", what, err)
	}
	if err := yaml.Unmarshal(data, stream); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", what, err)
	}
	if stream.Kind != "ImageStream" {
		return nil, fmt.Errorf("%s is a %q, not an ImageStream", what, stream.Kind)
	}
	return stream, nil
}

// ImageTag is the tag of a component image that nothing but the pullspec is known of.
func ImageTag(component, pullspec string) imagev1.TagReference {
	return imagev1.TagReference{Name: component, From: &corev1.ObjectReference{Kind: "DockerImage", Name: pullspec}}
}

func hidden(name string) bool { return strings.HasPrefix(name, ".") }

func sortFiles(files []File) {
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
}
