package assemble

import (
	"path"
	"strconv"
	"strings"
)

// defaultRunlevel is the prefix for files without a runlevel. The help text of OpenShift's client says 70, but its code and all releases
// use 50.
const defaultRunlevel = "0000_50_"

// names assigns unique names to the files of all components in one flat folder. The lexical order of names is the order of the update.
type names struct{ taken map[string]bool }

// unique returns a unique name for a file. It keeps a name that starts with 0000_, and prefixes other names with runlevel 50 and the
// component's name. It adds _2, _3, … before the extension of a duplicate.
func (n *names) unique(component, file string) string {
	if n.taken == nil {
		n.taken = map[string]bool{}
	}
	if !strings.HasPrefix(file, "0000_") {
		file = defaultRunlevel + component + "_" + file
	}
	name, ext := file, path.Ext(file)
	for i := 2; n.taken[name]; i++ {
		name = strings.TrimSuffix(file, ext) + "_" + strconv.Itoa(i) + ext
	}
	n.taken[name] = true
	return name
}
