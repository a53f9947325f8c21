package assemble

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/layer"
	"github.com/cluster-version/cvo/pkg/payload"
)

// prune separates a release's images from unrelated images. It keeps the images of components with manifests, images in a component's
// image-references, and the images in include.
func prune(images []imagev1.TagReference, components []input.Component, include []string) (kept []imagev1.TagReference, left []string) {
	stays := map[string]bool{}
	for _, name := range include {
		stays[name] = true
	}
	for _, c := range components {
		stays[c.Name] = stays[c.Name] || len(c.Files) > 0
		for _, ref := range c.References {
			stays[ref.Name] = true
		}
	}
	for _, image := range images {
		if stays[image.Name] {
			kept = append(kept, image)
		} else {
			left = append(left, image.Name)
		}
	}
	slices.SortFunc(kept, func(a, b imagev1.TagReference) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(left)
	return kept, left
}

// templateImage matches references to the release's images in the operator's templates.
var templateImage = regexp.MustCompile(`\.Images(?:\.([A-Za-z0-9_]+)|\s+"([^"]+)")`)

// pruned returns the result of prune, but keeps images in the operator's own templates. It reads the templates in a base image only if
// images would be omitted.
func (o *Options) pruned() (kept []imagev1.TagReference, left []string, err error) {
	kept, left = prune(o.Images, o.Components, o.Include)
	if len(left) == 0 {
		return kept, left, nil
	}
	files := o.Operator
	base := o.Base
	if len(o.Platforms) > 0 {
		base = o.Platforms[0].Base
	}
	if base != nil {
		var err error
		if files, err = layer.Files(base, payload.OperatorDir); err != nil {
			return nil, nil, fmt.Errorf("reading the base image: %w", err)
		}
	}
	include := slices.Clone(o.Include)
	for _, c := range o.Components {
		if c.Name == OperatorComponent {
			files = slices.Concat(files, c.Files)
		}
	}
	for _, f := range files {
		for _, match := range templateImage.FindAllSubmatch(f.Data, -1) {
			include = append(include, string(match[1])+string(match[2]))
		}
	}
	kept, left = prune(o.Images, o.Components, include)
	return kept, left, nil
}
