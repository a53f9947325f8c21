// Package substitute replaces the placeholders in a component's manifests: pullspecs replace the placeholders in its image-references, and
// versions replace 0.0.1-snapshot. It takes components and the release's images, and returns the files for a cluster. It reads no images
// and selects none.
package substitute

import (
	"errors"
	"fmt"
	"path"
	"slices"

	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/internal/errorset"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Renderer replaces placeholders for images and versions, and checks the result.
type Renderer struct {
	// Version is the version of the release, without build metadata.
	Version string
	// Images are the release's images by name.
	Images map[string]imagev1.TagReference
	// Defaults are the versions that no image reports, by key.
	Defaults map[string]string
	// AllowMissing keeps placeholders for images that the release lacks. By default, they are errors.
	AllowMissing bool
	// Warnings are the warnings about all components so far.
	Warnings []string
}

// Render replaces the placeholders in a component's files and checks that each document is a manifest. It also returns the files if there
// are errors.
func (r *Renderer) Render(c input.Component) ([]input.File, error) {
	rules, err := r.rules(c)
	files, substituteErr := r.substitute(c, rules)
	errs := []error{err, substituteErr}
	for _, f := range files {
		if !manifest.IsFile(f.Name) {
			continue
		}
		manifests, err := manifest.Parse(f.Name, f.Data, manifest.Limits{})
		if err != nil {
			errs = append(errs, fmt.Errorf("component %s: %w", c.Name, err))
		}
		for _, m := range manifests {
			if left := find(m.Object.Object, rules, followed); left != "" {
				errs = append(errs, input.Mistake(path.Join(c.Name, f.Name),
					"component %s: %s: the image placeholder %q was not replaced, because no blank, quote or end of the line follows it in the file: "+
						"enclose it in double quotes, or write the value in block style", c.Name, m, left))
			} else if left := find(m.Object.Object, rules, delimited); left != "" {
				r.Warnings = append(r.Warnings, fmt.Sprintf(
					"component %s: %s: the image placeholder %q is not replaced where no blank, quote or end of the line follows it", c.Name, m, left))
			}
		}
	}
	return files, errorset.Join(errs)
}

// Substitute replaces the placeholders in a component's files, which need not be manifests. It also returns the files if there are errors.
func (r *Renderer) Substitute(c input.Component) ([]input.File, error) {
	rules, err := r.rules(c)
	files, substituteErr := r.substitute(c, rules)
	return files, errors.Join(err, substituteErr)
}

// rules returns the rules for the placeholders in a component's image-references.
func (r *Renderer) rules(c input.Component) ([]placeholder, error) {
	pullspecs := map[string]string{}
	for name, image := range r.Images {
		pullspecs[name] = image.From.Name
	}
	return placeholders(c.Name, c.References, pullspecs, r.AllowMissing)
}

func (r *Renderer) substitute(c input.Component, rules []placeholder) ([]input.File, error) {
	keyed, warnings, err := componentVersions(c.References, r.Images, r.Defaults)
	if err != nil {
		return c.Files, input.Mistake(c.Name, "component %s: %w", c.Name, err)
	}
	for _, w := range warnings {
		r.Warnings = append(r.Warnings, fmt.Sprintf("component %s: %s", c.Name, w))
	}
	files := slices.Clone(c.Files)
	var errs []error
	for i, f := range files {
		data, err := replaceVersions(replaceImages(f.Data, rules), r.Version, keyed)
		if err != nil {
			errs = append(errs, &input.ContentError{
				Path: path.Join(c.Name, f.Name), Missing: true, Err: fmt.Errorf("component %s: %s: %w", c.Name, f.Name, err),
			})
		}
		files[i].Data = data
	}
	return files, errors.Join(errs...)
}
