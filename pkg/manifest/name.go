package manifest

import (
	"path"
	"regexp"
	"strconv"
	"strings"
)

// DefaultRunlevel is the runlevel of a file whose name carries none: where assembling a release puts such files.
const DefaultRunlevel = 50

var (
	namePattern = regexp.MustCompile(`^0000_(\d{1,6})_([a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*)_`)
	// Real releases hold a file without a fourth part; its component is all that follows the runlevel.
	shortNamePattern = regexp.MustCompile(`^0000_(\d{1,6})_([a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*)(?:\.[a-zA-Z0-9]+)*$`)
)

// IsFile tells by its name whether a file of a release is read as manifests; all others are left out.
func IsFile(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// ParseName reads the runlevel and the component from a manifest's file name, 0000_<runlevel>_<component>_<rest>;
// without a third underscore the component is all that follows the runlevel, up to the extension. A file name of
// another form is not ok: Parse then takes DefaultRunlevel and the name without its extension as the component, which
// is what assembling a release makes of such a file.
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

// Place is ParseName with the fallback for names of another form: where a manifest of that file stands in a release.
func Place(file string) (runlevel int, component string) {
	if runlevel, component, ok := ParseName(file); ok {
		return runlevel, component
	}
	return DefaultRunlevel, strings.TrimSuffix(file, path.Ext(file))
}
