package property

import (
	"regexp"
	"strings"
)

// knownFailure is a known limitation of the apply engine. If it occurs in a history, the history continues without that object. Remove
// repaired limitations from this list.
type knownFailure struct {
	// property and text match the violation.
	property string
	text     *regexp.Regexp
}

func knownFailures() []knownFailure {
	return []knownFailure{
		// Another writer gives up the serviceAccountName of a pod that no release sets. The API server has copied the value to the
		// deprecated field serviceAccount, which has no owner, and copies it back from there.
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

// judge removes known failures from the violations of a run. The rest of the history continues without their objects.
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

// leave removes an object from a history.
func (r *run) leave(id, why string) {
	if s := r.states[id]; s != nil && !s.left {
		s.left = true
		r.excused = append(r.excused, id+": "+why)
	}
}

// refusals assigns the errors of an engine run to objects. One kind of error is allowed: another writer may own a field that contradicts
// the manifest, or that needs a part which the manifest drops. The engine may then leave the decision to people if its error names the
// object.
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
			r.leave(id, "rejected: other writers own the conflicting fields")
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
