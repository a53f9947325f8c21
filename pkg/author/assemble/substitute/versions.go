package substitute

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
)

// kubectlImages are the images that determine the version of kubectl. Other images contain a kubectl for internal use.
var kubectlImages = []string{"cli", "cli-artifacts"}

// componentVersions returns the versions that a component's manifests may refer to by key. They come from the images in refs and otherwise
// from defaults. Images with different versions for a key are an error, except for machine-os, where the first one is used. These rules
// match OpenShift's client, which also reads kubectl only from the cli images and warns if all images together have more than two versions
// of kubectl.
func componentVersions(refs []imagev1.TagReference, images map[string]imagev1.TagReference, defaults map[string]string) (versions map[string]string, warnings []string, err error) {
	versions = maps.Clone(defaults)
	if versions == nil {
		versions = map[string]string{}
	}
	from, kubectl := map[string]string{}, map[string]bool{}
	for _, ref := range refs {
		found, err := input.ParseComponentVersions(images[ref.Name].Annotations[api.ComponentVersionsLabel])
		if err != nil {
			return nil, nil, fmt.Errorf("image %q: %s: %w", ref.Name, api.ComponentVersionsLabel, err)
		}
		if v, ok := found["kubectl"]; ok {
			kubectl[v] = true
			if !slices.Contains(kubectlImages, ref.Name) {
				delete(found, "kubectl")
			}
		}
		for _, key := range slices.Sorted(maps.Keys(found)) {
			first, seen := from[key]
			switch {
			case !seen:
				from[key], versions[key] = ref.Name, found[key]
			case versions[key] != found[key] && key != "machine-os":
				return nil, nil, fmt.Errorf("the version for %q is inconsistent across the referenced images: %s in %q, %s in %q",
					key, versions[key], first, found[key], ref.Name)
			}
		}
	}
	if len(kubectl) > 2 {
		warnings = append(warnings, fmt.Sprintf("the referenced images have %d versions of kubectl: %s", len(kubectl),
			strings.Join(slices.Sorted(maps.Keys(kubectl)), ", ")))
	}
	return versions, warnings, nil
}
