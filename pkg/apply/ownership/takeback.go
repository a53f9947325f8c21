package ownership

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Discarded reports whether the manager before-first-apply shares a field with our entry. If an object has no managedFields, the server
// assigns all its fields to that manager when an apply starts new ones. After TakeBack, the two share none.
func Discarded(gvk schema.GroupVersionKind, entries []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
		if e.Manager != BeforeFirstApply {
			return false
		}
		set, ok := readSet(&e)
		own, _ := ourSet(entries, gvk)
		return ok && !set.Intersection(own).Empty()
	})
}

// TakeBack takes the fields of our entry away from before-first-apply, so that a later apply can remove them. It makes those fields of
// before-first-apply ours for which lost returns true; then more is true, and the next apply removes them. changed is false if
// before-first-apply has no such field.
func TakeBack(gvk schema.GroupVersionKind, entries []metav1.ManagedFieldsEntry, lost func(fieldpath.Path) bool,
) (next []metav1.ManagedFieldsEntry, more, changed bool) {
	own, version := ourSet(entries, gvk)
	all := own
	kept := make([]metav1.ManagedFieldsEntry, 0, len(entries))
	for _, e := range entries {
		set, ok := readSet(&e)
		if !ok || e.Manager != BeforeFirstApply {
			kept = append(kept, e)
			continue
		}
		taken := fieldpath.NewSet()
		set.Iterate(func(path fieldpath.Path) {
			if lost(path) {
				all, more = all.Union(fieldpath.NewSet(path)), true
				taken.Insert(slices.Clone(path))
			}
		})
		rest := withoutEmpty(set, set.Difference(own).Difference(taken))
		if changed = changed || rest.Size() < set.Size(); rest.Empty() {
			continue
		}
		if !setFields(&e, rest) {
			return entries, false, false
		}
		kept = append(kept, e)
	}
	if !changed {
		return entries, false, false
	}
	next, ok := withOurs(kept, version, all)
	return next, more && ok, ok
}

// withoutEmpty returns rest without the maps and lists that have members in set, but none in rest.
func withoutEmpty(set, rest *fieldpath.Set) *fieldpath.Set {
	for {
		empty := fieldpath.NewSet()
		rest.Iterate(func(path fieldpath.Path) {
			if !below(set, path).Empty() && below(rest, path).Empty() {
				empty.Insert(slices.Clone(path))
			}
		})
		if empty.Empty() {
			return rest
		}
		rest = rest.Difference(empty)
	}
}

// WithChildren returns a function that also reports fields below those that lost reports, except in metadata.
func WithChildren(lost func(fieldpath.Path) bool) func(fieldpath.Path) bool {
	return func(path fieldpath.Path) bool {
		if name := path[0].FieldName; name != nil && *name == "metadata" {
			return lost(path)
		}
		for n := len(path); n > 1; n-- {
			if lost(path[:n]) {
				return true
			}
		}
		return false
	}
}

// Contains reports whether the field at path is or contains the one at inner.
func Contains(path, inner fieldpath.Path) bool {
	return len(path) <= len(inner) && path.Equals(inner[:len(path)])
}
