package trial

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/overlay"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

// Contested returns an error about the values that contradict the manifest and that it may not remove, or nil if there are none.
func Contested(refused error, values []overlay.Value) error {
	var fields, names []string
	for _, v := range values {
		if !v.Removable() {
			fields, names = append(fields, v.Field()), append(names, v.String())
		}
	}
	if names == nil {
		return nil
	}
	return &failure.Diagnosis{
		Cause: "the existing object cannot be changed to this one", Fields: fields, Text: failure.Summary(refused), Err: refused,
		Remedy: "remove " + strings.Join(names, "; ") + " from the object, because it contradicts the manifest, or add it to the manifest",
	}
}

// Limits of others: the values that it returns, and the paths that it examines for that.
const (
	maxOthers   = 16
	maxExamined = 64
)

// others returns the first values outside metadata and status that other writers have set and the body lacks, including items of lists and
// sets. If some are inside a rejected field, it returns only these.
func others(refused error, body map[string]any, live *unstructured.Unstructured) []overlay.Value {
	found := fieldpath.NewSet()
	_, fields := ownership.Split(live.GetManagedFields())
	for path := range fields.All() {
		if name := path[0].FieldName; name == nil || *name == "metadata" || *name == "status" { // an entry of a client may begin with a key
			continue
		}
		n := 1
		for n < len(path) && overlay.Has(body, path[:n]) {
			n++
		}
		if !overlay.Has(body, path[:n]) {
			found.Insert(slices.Clone(path[:n]))
		}
	}
	var inside, all []overlay.Value
	rejected := failure.Causes(refused)
	for path := range found.All() {
		v := overlay.Value{Path: slices.Clone(path)}
		all = append(all, v)
		if slices.ContainsFunc(rejected, func(c failure.Cause) bool { return isWithin(v.Field(), c.Field) }) {
			inside = append(inside, v)
		}
	}
	if found := owned(inside, live); found != nil {
		return found
	}
	return owned(all, live)
}

// isWithin reports whether a field is another field or a part of it.
func isWithin(field, outer string) bool {
	rest, ok := strings.CutPrefix(field, outer)
	return ok && outer != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// owned returns the first values that have owners, with their owners.
func owned(values []overlay.Value, live *unstructured.Unstructured) (found []overlay.Value) {
	for _, v := range values[:min(len(values), maxExamined)] {
		if v.Owners = ownership.Holders(live.GetManagedFields(), v.Path); len(v.Owners) > 0 { // not a former manager's
			if found = append(found, v); len(found) == maxOthers {
				break
			}
		}
	}
	return found
}
