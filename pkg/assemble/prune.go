package assemble

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	imagev1 "github.com/openshift/api/image/v1"
)

// prune tells the images that belong to a release from those that only happened to be in a list: those whose component
// brings manifests, those that a component's image-references name, and those that are to stay in any case.
func prune(images []imagev1.TagReference, components []Component, include []string) (kept []imagev1.TagReference, left []string) {
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

// templateImage is how the operator's templates name an image of the release.
var templateImage = regexp.MustCompile(`\.Images(?:\.([A-Za-z0-9_]+)|\s+"([^"]+)")`)

// pruned is prune, and keeps what the operator's own templates name. Those of a base image are read only if something
// would be left out.
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
		folders, err := imageFiles(base, operatorFolder)
		if err != nil {
			return nil, nil, fmt.Errorf("reading the base image: %w", err)
		}
		files = folders[operatorFolder]
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
