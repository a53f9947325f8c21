// Package override matches the overrides in the ClusterVersion's spec with the objects of a release. It takes overrides and manifests, and
// returns whether an object is excluded, and texts about overrides that match no object.
package override

import (
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Reason is the reason to exclude an object of an unmanaged override.
const Reason = "spec.overrides marks it as unmanaged"

// Excluded reports whether one of the overrides excludes an object from the release.
func Excluded(id manifest.ID, overrides []configv1.ComponentOverride) bool {
	for i := range overrides {
		if excludes(&overrides[i], id) {
			return true
		}
	}
	return false
}

// excludes ignores the override's namespace for cluster-scoped objects.
func excludes(o *configv1.ComponentOverride, id manifest.ID) bool {
	return o.Unmanaged && o.Group == id.Group && o.Kind == id.Kind && o.Name == id.Name && (id.Namespace == "" || o.Namespace == id.Namespace)
}

// Unmatched describes the unmanaged overrides that match none of the objects, in the order of the spec, with the object that the
// administrator probably meant. Overrides must match exactly, so a mistyped one has no effect.
func Unmatched(objects []manifest.ID, overrides []configv1.ComponentOverride) []string {
	var unmatched []string
	for _, o := range overrides {
		matches := func(id manifest.ID) bool { return excludes(&o, id) }
		if o.Unmanaged && !slices.ContainsFunc(objects, matches) {
			unmatched = append(unmatched, describe(o, nearestObject(objects, o)))
		}
	}
	return unmatched
}

// describe returns the text for an override and its correction to the object n; zero if there is none.
func describe(o configv1.ComponentOverride, n manifest.ID) string {
	text := fmt.Sprintf("group %q, kind %q, namespace %q, name %q", o.Group, o.Kind, o.Namespace, o.Name)
	if n == (manifest.ID{}) {
		return text
	}
	var corrections []string
	correct := func(field, have, want string) {
		if have != want {
			corrections = append(corrections, fmt.Sprintf("%s %q", field, want))
		}
	}
	correct("group", o.Group, n.Group)
	correct("kind", o.Kind, n.Kind)
	if n.Namespace != "" {
		correct("namespace", o.Namespace, n.Namespace)
	}
	correct("name", o.Name, n.Name)
	return text + " (did you mean " + strings.Join(corrections, ", ") + "?)"
}

// maxTypos is the largest distance of a similar object, and the largest distance that one field adds. So one field may be entirely different,
// but not the name: at least half of its characters are right.
const maxTypos = 4

// nearestObject returns the object with the fewest differences to an override; zero if none is similar. Older documents of OpenShift write
// the group with a version, such as apps/v1.
func nearestObject(objects []manifest.ID, o configv1.ComponentOverride) manifest.ID {
	group, _, _ := strings.Cut(o.Group, "/")
	differences := func(id manifest.ID) int {
		if n := typos(o.Name, id.Name); n == maxTypos || 2*n > len(o.Name) {
			return maxTypos + 1
		}
		total := typos(strings.ToLower(o.Kind), strings.ToLower(id.Kind)) + typos(o.Name, id.Name)
		total += min(typos(group, id.Group), maxTypos-1) // a forgotten group is the likeliest mistake
		if id.Namespace != "" {
			total += typos(o.Namespace, id.Namespace)
		}
		return total
	}
	var nearest manifest.ID
	least := maxTypos + 1
	for _, id := range objects {
		n := differences(id)
		if n < least || n == least && n <= maxTypos && id.String() < nearest.String() {
			nearest, least = id, n
		}
	}
	return nearest
}

// typos returns the Levenshtein distance of two names, at most maxTypos.
func typos(a, b string) int {
	x, y := []rune(a), []rune(b)
	if abs := len(x) - len(y); abs >= maxTypos || -abs >= maxTypos {
		return maxTypos
	}
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		diagonal := row[0]
		row[0] = i + 1
		for j := range y {
			replaced := diagonal
			if x[i] != y[j] {
				replaced++
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, replaced)
		}
	}
	return min(row[len(y)], maxTypos)
}
