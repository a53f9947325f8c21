package ownership

import (
	"bytes"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/api"
)

// IsFormerManager reports whether an entry belongs to a manager that wrote the manifests of a release by update, before server-side apply existed.
// The list is closed: OpenShift's operator, which uses our name, and cluster-bootstrap, which creates the manifests that the first control
// plane of an OpenShift cluster needs.
//
// "before-first-apply" is not in the list, although it may own their fields. The API server invents this manager when an object without
// managedFields is applied, and assigns all of the object's fields to it, regardless of their writers. Adopting them would remove fields of other
// writers.
func IsFormerManager(e *metav1.ManagedFieldsEntry) bool {
	return e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == "" &&
		(e.Manager == api.FieldManager || e.Manager == "cluster-bootstrap")
}

// Adopt makes the fields of former managers ours. It returns true and the entries to write, in which our Apply entry includes the fields of
// former managers and their entries are gone. The next apply then removes the fields that the manifest no longer has. Adopt follows
// client-go's util/csaupgrade, with these differences:
//
//   - If our entry already has all of their fields, it changes nothing and returns false: the next apply could not remove anything, and
//     adopting fields that a later release drops is possible then. This saves two requests for most objects.
//   - It does not adopt fields below status, because status was never part of a release.
//   - It adopts the entries of labels and annotations, but not the maps themselves. Otherwise, removing a map would remove entries without
//     an owner.
//   - From an entry of another API version, it adopts only metadata, because the meaning of a path may have changed.
//   - It does not adopt the spec of volumes and claims. The server refuses to remove fields that it or admission once set by default there,
//     so the object could never be applied again.
//
// Unreadable entries of former managers do not change. gvk is the kind of the object in the applied version.
func Adopt(gvk schema.GroupVersionKind, entries []metav1.ManagedFieldsEntry) (next []metav1.ManagedFieldsEntry, changed bool) {
	next, more, _ := absorb(gvk, entries)
	if !more {
		return entries, false
	}
	return next, true
}

// Absorb is Adopt for an object that the server rejects. It also drops the entries of former managers if our entry has all of their fields,
// because an apply removes only fields that no other entry has.
func Absorb(gvk schema.GroupVersionKind, entries []metav1.ManagedFieldsEntry) (next []metav1.ManagedFieldsEntry, changed bool) {
	next, _, found := absorb(gvk, entries)
	if !found {
		return entries, false
	}
	return next, true
}

// absorb moves the fields of former managers into our entry and returns the resulting entries. more reports whether our entry gained
// fields, found whether former managers had entries.
func absorb(gvk schema.GroupVersionKind, entries []metav1.ManagedFieldsEntry) (next []metav1.ManagedFieldsEntry, more, found bool) {
	if !slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return IsFormerManager(&e) }) {
		return entries, false, false
	}
	own, version := ourSet(entries, gvk)
	all := own
	kept := make([]metav1.ManagedFieldsEntry, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		fields, ok := readSet(e)
		if !ok || !IsFormerManager(e) {
			kept = append(kept, *e)
			continue
		}
		found = true
		fields = adoptable(gvk, fields, e.APIVersion == version)
		more = more || exceeds(fields, own)
		all = all.Union(fields)
	}
	if !found {
		return entries, false, false
	}
	next, ok := withOurs(kept, version, all)
	return next, more && ok, ok
}

// Take gives us sole ownership of the fields at and below the paths, regardless of their owners. Our Apply entry gains the paths and other
// entries lose them, so the next apply removes the fields that it does not set. Take returns false if we are the sole owner already.
// Unreadable entries do not change.
func Take(gvk schema.GroupVersionKind, entries []metav1.ManagedFieldsEntry, paths []fieldpath.Path,
) (next []metav1.ManagedFieldsEntry, changed bool) {
	own, version := ourSet(entries, gvk)
	taken := fieldpath.NewSet(paths...)
	changed = !taken.Difference(own).Empty()
	kept := make([]metav1.ManagedFieldsEntry, 0, len(entries))
	for _, e := range entries {
		fields, ok := readSet(&e)
		if !ok || isOurs(&e) {
			kept = append(kept, e)
			continue
		}
		remaining := fields.RecursiveDifference(taken)
		if remaining.Size() == fields.Size() {
			kept = append(kept, e)
			continue
		}
		changed = true
		if !remaining.Empty() && setFields(&e, remaining) {
			kept = append(kept, e)
		}
	}
	if !changed {
		return entries, false
	}
	return withOurs(kept, version, own.Union(taken))
}

// Restore returns the entries with our Apply entry from before.
func Restore(entries, before []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	isOurs := func(e metav1.ManagedFieldsEntry) bool { return isOurs(&e) }
	next := slices.DeleteFunc(slices.Clone(entries), isOurs)
	if i := slices.IndexFunc(before, isOurs); i >= 0 {
		next = append(next, before[i])
	}
	return next
}

// Holders returns the names of the managers, except us and former managers, that own the field at path or a field below it, sorted. It
// ignores unreadable entries.
func Holders(entries []metav1.ManagedFieldsEntry, path fieldpath.Path) []string {
	var managers []string
	for i := range entries {
		e := &entries[i]
		if isOurs(e) || IsFormerManager(e) || e.Manager == api.ManagedFieldsManager {
			continue
		}
		if set, ok := readSet(e); ok && (Reaches(set, path) || hasAtom(set, path)) {
			managers = append(managers, e.Manager)
		}
	}
	slices.Sort(managers)
	return slices.Compact(managers)
}

// Split returns the fields of our Apply entry and those of all other readable entries.
func Split(entries []metav1.ManagedFieldsEntry) (own, others *fieldpath.Set) {
	own, others = fieldpath.NewSet(), fieldpath.NewSet()
	for i := range entries {
		set, ok := readSet(&entries[i])
		switch {
		case ok && isOurs(&entries[i]):
			own = own.Union(set)
		case ok:
			others = others.Union(set)
		}
	}
	return own, others
}

// Reaches reports whether set contains the field at path or a field below it.
func Reaches(set *fieldpath.Set, path fieldpath.Path) bool {
	return set.Has(path) || !below(set, path).Empty()
}

// Whole reports whether set contains the field at path but no field below it.
func Whole(set *fieldpath.Set, path fieldpath.Path) bool {
	return set.Has(path) && below(set, path).Empty()
}

// StatusWritten reports whether an object's status may have been written, according to the entries. If the object's managedFields were
// stripped, the next apply starts new entries, so a writer cannot be excluded.
func StatusWritten(entries []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
		if e.Subresource == "status" || e.Manager == BeforeFirstApply {
			return true
		}
		set, ok := readSet(&e)
		return ok && !below(set, fieldpath.MakePathOrDie("status")).Empty()
	})
}

// BeforeFirstApply is the manager to which the API server assigns the fields of an object without managedFields.
const BeforeFirstApply = "before-first-apply"

// ourSet returns the fields of our Apply entry and the API version in which they are written.
func ourSet(entries []metav1.ManagedFieldsEntry, gvk schema.GroupVersionKind) (own *fieldpath.Set, version string) {
	for i := range entries {
		if e := &entries[i]; isOurs(e) {
			if set, ok := readSet(e); ok {
				return set, e.APIVersion
			}
		}
	}
	return fieldpath.NewSet(), gvk.GroupVersion().String()
}

// withOurs returns the entries with set as the fields of our Apply entry.
func withOurs(entries []metav1.ManagedFieldsEntry, version string, set *fieldpath.Set) ([]metav1.ManagedFieldsEntry, bool) {
	next := slices.Clone(entries)
	i := slices.IndexFunc(next, func(e metav1.ManagedFieldsEntry) bool { return isOurs(&e) })
	if i < 0 {
		next = append(next, metav1.ManagedFieldsEntry{
			Manager: api.FieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: version, FieldsType: "FieldsV1",
		})
		i = len(next) - 1
	}
	if !setFields(&next[i], set) {
		return entries, false
	}
	return next, true
}

// adoptable returns the part of a former manager's fields that becomes ours.
func adoptable(gvk schema.GroupVersionKind, set *fieldpath.Set, sameVersion bool) *fieldpath.Set {
	frozen := gvk.Group == "" && strings.HasPrefix(gvk.Kind, "PersistentVolume")
	part := fieldpath.NewSet()
	for path := range set.All() {
		if path[0].FieldName == nil {
			continue
		}
		switch root := *path[0].FieldName; {
		case root == "metadata" && len(path) < 3:
		case root == "metadata", sameVersion && root != "status" && (root != "spec" || !frozen):
			part.Insert(path)
		}
	}
	return part
}

// exceeds reports whether set contains a field that own lacks. A map or list with entries of ours does not count, because it exists because
// of us anyway.
func exceeds(set, own *fieldpath.Set) bool {
	found := false
	set.Difference(own).Iterate(func(path fieldpath.Path) { // iterating over All() must not stop early
		found = found || below(own, path).Empty()
	})
	return found
}

// below returns the part of set below path.
func below(set *fieldpath.Set, path fieldpath.Path) *fieldpath.Set {
	for _, element := range path {
		set = set.WithPrefix(element)
	}
	return set
}

// hasAtom reports whether set contains a field above path as a whole, because the schema declares it atomic.
func hasAtom(set *fieldpath.Set, path fieldpath.Path) bool {
	for n := 1; n < len(path); n++ {
		if set.Has(path[:n]) && below(set, path[:n]).Empty() {
			return true
		}
	}
	return false
}

// readSet returns the fields of an entry, or false if they are missing or unreadable.
func readSet(e *metav1.ManagedFieldsEntry) (*fieldpath.Set, bool) {
	if e.FieldsV1 == nil {
		return nil, false
	}
	set := fieldpath.NewSet()
	if err := set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err != nil {
		return nil, false
	}
	return set, true
}

// setFields replaces the fields of an entry.
func setFields(e *metav1.ManagedFieldsEntry, set *fieldpath.Set) bool {
	data, err := set.ToJSON()
	if err != nil { // a set that was decoded can be encoded
		return false
	}
	e.FieldsV1 = &metav1.FieldsV1{}
	e.FieldsV1.SetRawBytes(data)
	return true
}
