package assemble

import (
	"path"
	"strconv"
	"strings"
)

// defaultRunlevel is where files without a runlevel go. The help text of OpenShift's client says 70, its code and every
// release say 50.
const defaultRunlevel = "0000_50_"

// names gives the files of all components their place in one flat folder, whose lexical order is the order of the
// update.
type names struct{ taken map[string]bool }

// give keeps a name that starts with 0000_ and puts any other at runlevel 50 under its component's name. A name that is
// taken gets _2, _3, … before its extension.
func (n *names) give(component, file string) string {
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
