package input

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/pkg/release"
)

var versionKeyPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*[a-z0-9]$`)

// ParseComponentVersions parses "k=v,k2=v2", the format of the label io.openshift.build.versions and the flag --component-versions. Keys
// are two or more characters from a-z, 0-9 and inner dashes. Values are semantic versions, whose build metadata is dropped. Empty text
// results in no versions.
func ParseComponentVersions(text string) (map[string]string, error) {
	versions := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok || !versionKeyPattern.MatchString(key) {
			return nil, fmt.Errorf("component version %q is not key=version (a key has at least two characters: a-z, 0-9 and inner dashes)", pair)
		}
		v, err := release.ParseVersion(value)
		if err != nil {
			return nil, fmt.Errorf("component version %q: %w", pair, err)
		}
		if _, twice := versions[key]; twice {
			return nil, fmt.Errorf("duplicate component version %q", key)
		}
		v.Build = nil
		versions[key] = v.String()
	}
	return versions, nil
}

// FormatPairs is the inverse of ParseComponentVersions and ParseDisplayNames. It sorts the pairs.
func FormatPairs(values map[string]string) string {
	pairs := make([]string, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, key+"="+values[key])
	}
	return strings.Join(pairs, ",")
}

// displayName matches valid display names.
var displayName = regexp.MustCompile(`^[A-Za-z0-9:(). -]+$`)

// ParseDisplayNames parses "k=text,k2=text", the format of the label io.openshift.build.version-display-names and the flag
// --component-versions-display-names. Text is ASCII letters, digits, spaces and -:().
func ParseDisplayNames(text string) (map[string]string, error) {
	names := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok || !versionKeyPattern.MatchString(key) || !displayName.MatchString(value) {
			return nil, fmt.Errorf("display name %q is not key=name (a key has at least two characters: a-z, 0-9 and inner dashes; a name has letters, digits, spaces and -:(.))", pair)
		}
		if _, twice := names[key]; twice {
			return nil, fmt.Errorf("duplicate display name for %q", key)
		}
		names[key] = value
	}
	return names, nil
}
