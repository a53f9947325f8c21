package assemble

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

var versionKeyPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*[a-z0-9]$`)

// ParseComponentVersions reads "k=v,k2=v2", the form of the label io.openshift.build.versions and of the flag
// --component-versions. Keys are two or more of a-z, 0-9 and inner dashes; values are semantic versions, and lose their
// build metadata. Empty text is no versions.
func ParseComponentVersions(text string) (map[string]string, error) {
	versions := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok || !versionKeyPattern.MatchString(key) {
			return nil, fmt.Errorf("component version %q is not key=version, where a key is a-z, 0-9 and inner dashes", pair)
		}
		v, err := semver.Parse(value)
		if err != nil {
			return nil, fmt.Errorf("component version %q: %w", pair, err)
		}
		if _, twice := versions[key]; twice {
			return nil, fmt.Errorf("component version %q is given twice", key)
		}
		versions[key] = withoutBuild(v)
	}
	return versions, nil
}

func withoutBuild(v semver.Version) string {
	v.Build = nil
	return v.String()
}

// formatComponentVersions is ParseComponentVersions backwards, sorted.
func formatComponentVersions(versions map[string]string) string {
	pairs := make([]string, 0, len(versions))
	for _, key := range slices.Sorted(maps.Keys(versions)) {
		pairs = append(pairs, key+"="+versions[key])
	}
	return strings.Join(pairs, ",")
}

// componentVersions are the versions that a component's manifests may refer to by key: those of the images it refers
// to, over the defaults. Two images that give one key different versions are an error, but for machine-os, where the
// first counts, as it does in OpenShift's client; that client also reads kubectl from the cli images alone.
func componentVersions(refs []imagev1.TagReference, images map[string]imagev1.TagReference, defaults map[string]string) (map[string]string, error) {
	versions := maps.Clone(defaults)
	if versions == nil {
		versions = map[string]string{}
	}
	from := map[string]string{}
	for _, ref := range refs {
		found, err := ParseComponentVersions(images[ref.Name].Annotations[api.ComponentVersionsLabel])
		if err != nil {
			return nil, fmt.Errorf("image %q: %s: %w", ref.Name, api.ComponentVersionsLabel, err)
		}
		for _, key := range slices.Sorted(maps.Keys(found)) {
			if key == "kubectl" && ref.Name != "cli" && ref.Name != "cli-artifacts" {
				continue
			}
			first, seen := from[key]
			switch {
			case !seen:
				from[key], versions[key] = ref.Name, found[key]
			case versions[key] != found[key] && key != "machine-os":
				return nil, fmt.Errorf("the version for %q is inconsistent across the referenced images: %s in %q, %s in %q",
					key, versions[key], first, found[key], ref.Name)
			}
		}
	}
	return versions, nil
}
