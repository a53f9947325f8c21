package manifest

import (
	"path"
	"regexp"
	"strconv"
	"strings"
)

// DefaultRunlevel is the runlevel of files without one in their names. Assembling a release uses the same number.
const DefaultRunlevel = 50

var (
	namePattern = regexp.MustCompile(`^0000_(\d{1,6})_([a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*)_`)
	// Real releases contain a file without a fourth part. Its component is everything after the runlevel.
	shortNamePattern = regexp.MustCompile(`^0000_(\d{1,6})_([a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*)(?:\.[a-zA-Z0-9]+)*$`)
)

// IsFile reports whether a file of this name in a release contains manifests.
func IsFile(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// ParseName returns the runlevel and the component from a manifest's file name, 0000_<runlevel>_<component>_<rest>. Without a third
// underscore, the component is everything between the runlevel and the extension. ok is false for all other names. For these, Parse uses
// DefaultRunlevel, and the name without extension as the component, as assembling a release does.
func ParseName(file string) (runlevel int, component string, ok bool) {
	match := namePattern.FindStringSubmatch(file)
	if match == nil {
		match = shortNamePattern.FindStringSubmatch(file)
	}
	if match == nil {
		return 0, "", false
	}
	runlevel, err := strconv.Atoi(match[1])
	if err != nil {
		return 0, "", false
	}
	return runlevel, match[2], true
}

// Place returns the runlevel and the component of a file's manifests. It is ParseName with the fallback for other names.
func Place(file string) (runlevel int, component string) {
	if runlevel, component, ok := ParseName(file); ok {
		return runlevel, component
	}
	return DefaultRunlevel, strings.TrimSuffix(file, path.Ext(file))
}
