package failure

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

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
	return &Diagnosis{
		Cause: "the existing object cannot be changed to this one", Fields: fields, Text: Summary(refused), Err: refused,
		Remedy: "remove " + strings.Join(names, "; ") + " from the object, because it contradicts the manifest, or add it to the manifest",
	}
}

// Others returns the values outside metadata and status that other writers have set and the body lacks, including items of lists and sets. If
// some are inside a rejected field, it returns only these.
func Others(refused error, body map[string]any, live *unstructured.Unstructured) []overlay.Value {
	found := fieldpath.NewSet()
	_, others := ownership.Split(live.GetManagedFields())
	for path := range others.All() {
		n := 1
		for n < len(path) && overlay.Has(body, path[:n]) {
			n++
		}
		if !overlay.Has(body, path[:n]) && !slices.Contains([]string{"metadata", "status"}, *path[0].FieldName) {
			found.Insert(slices.Clone(path[:n]))
		}
	}
	var all, inside []overlay.Value
	for path := range found.All() {
		v := overlay.Value{Path: slices.Clone(path), Owners: ownership.Holders(live.GetManagedFields(), path)}
		if len(v.Owners) == 0 { // a former manager's
			continue
		}
		all = append(all, v)
		if slices.ContainsFunc(Causes(refused), func(c Cause) bool { return c.Field != "" && strings.HasPrefix(v.Field(), c.Field) }) {
			inside = append(inside, v)
		}
	}
	if inside != nil {
		return inside
	}
	return all
}
