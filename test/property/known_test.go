package property

import (
	"regexp"
	"strings"
)

// knownFailure is a way in which applying is known to fall short. A history in which it shows goes on without its
// object. What is repaired leaves this list.
type knownFailure struct {
	// property and text are what the violation says.
	property string
	text     *regexp.Regexp
}

func knownFailures() []knownFailure {
	return []knownFailure{
		// Somebody else takes back the serviceAccountName of a pod that no release sets: the API server has copied it to the
		// deprecated field serviceAccount, which belongs to nobody, and copies it back from there.
		{foreignFields, regexp.MustCompile(`\.spec\.serviceAccount: want nothing`)},
	}
}

func (v violation) known() bool {
	for _, k := range knownFailures() {
		if k.property == v.property && k.text.MatchString(v.text) {
			return true
		}
	}
	return false
}

// judge sorts what a run has found: objects that a known failure befell are left out of the rest of the history, and
// nothing that they violate counts.
func (r *run) judge() {
	excused := map[string]bool{}
	for _, v := range r.violations {
		if v.known() {
			excused[v.object] = true
		}
	}
	var left []violation
	for _, v := range r.violations {
		if excused[v.object] {
			r.leave(v.object, "a known failure")
		} else {
			left = append(left, v)
		}
	}
	r.violations = left
}

// leave ends the part of an object in a history.
func (r *run) leave(id, why string) {
	if s := r.states[id]; s != nil && !s.left {
		s.left = true
		r.excused = append(r.excused, id+": "+why)
	}
}

// refusals sorts the errors of a run of the engine by object. One is right: where somebody else owns what cannot stand
// beside what the manifest sets, or what cannot be without what it drops, the engine may leave the decision to people,
// if its error names the object.
func (r *run) refusals(release string, err error) {
	if err == nil {
		return
	}
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for _, err := range list {
		id := r.objectIn(err.Error())
		if s := r.states[id]; s != nil && (s.contested || s.left) {
			r.leave(id, "refused: others own what is in the way")
			continue
		}
		if id == "" {
			id = "release " + release
		}
		r.fail(converges, id, "release %s: %v", release, err)
	}
}

// objectIn returns the id of the object that an error names.
func (r *run) objectIn(text string) string {
	for id, d := range r.byID {
		group, _, grouped := strings.Cut(d.kind.apiVersion, "/")
		name := d.kind.name
		if grouped {
			name += "." + group
		}
		name += " "
		if ns, ok := d.object["metadata"].(object)["namespace"].(string); ok {
			name += ns + "/"
		}
		if strings.Contains(text, name+d.name()+" ") {
			return id
		}
	}
	return ""
}
