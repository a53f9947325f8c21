package assemble

import (
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
