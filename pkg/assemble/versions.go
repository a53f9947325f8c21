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

// formatPairs is ParseComponentVersions and ParseDisplayNames backwards, sorted.
func formatPairs(values map[string]string) string {
	pairs := make([]string, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, key+"="+values[key])
	}
	return strings.Join(pairs, ",")
}

// displayName is what the display name of a component version consists of.
var displayName = regexp.MustCompile(`^[A-Za-z0-9:(). -]+$`)

// ParseDisplayNames reads "k=text,k2=text", the form of the label io.openshift.build.version-display-names and of the
// flag --component-versions-display-names. Text is letters, digits, spaces and -:(). of ASCII.
func ParseDisplayNames(text string) (map[string]string, error) {
	names := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok || !versionKeyPattern.MatchString(key) || !displayName.MatchString(value) {
			return nil, fmt.Errorf("display name %q is not key=name, where a key is a-z, 0-9 and inner dashes, and a name consists of letters, digits, spaces and any of -:(.)", pair)
		}
		if _, twice := names[key]; twice {
			return nil, fmt.Errorf("display name of %q is given twice", key)
		}
		names[key] = value
	}
	return names, nil
}

// kubectlImages are the images whose kubectl counts: others carry one for their own use.
var kubectlImages = []string{"cli", "cli-artifacts"}

// componentVersions are the versions that a component's manifests may refer to by key: those of the images it refers
// to, over the defaults. Two images that give one key different versions are an error, but for machine-os, where the
// first counts, as it does in OpenShift's client; that client also reads kubectl from the cli images alone, and warns
// of more than two of it among all images.
func componentVersions(refs []imagev1.TagReference, images map[string]imagev1.TagReference, defaults map[string]string) (versions map[string]string, warnings []string, err error) {
	versions = maps.Clone(defaults)
	if versions == nil {
		versions = map[string]string{}
	}
	from, kubectl := map[string]string{}, map[string]bool{}
	for _, ref := range refs {
		found, err := ParseComponentVersions(images[ref.Name].Annotations[api.ComponentVersionsLabel])
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
