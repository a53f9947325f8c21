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

// Former reports whether an entry is of a manager that wrote the manifests of a release by update before
// server-side apply did. The list is closed: OpenShift's operator, which has our name, and cluster-bootstrap, which
// creates the manifests that the first control plane of an OpenShift cluster needs.
//
// "before-first-apply" is not among them, though it may stand for what they wrote: the API server invents it when an
// object whose managedFields were stripped is applied, and gives it every field of the object, whoever set it. To adopt
// it would be to remove what others set.
func Former(e *metav1.ManagedFieldsEntry) bool {
	return e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == "" &&
		(e.Manager == api.FieldManager || e.Manager == "cluster-bootstrap")
}

// Adopt makes the fields of former managers ours: it returns the entries to write, in which our Apply entry has their
// fields too and theirs are gone, and true. The next apply then removes those that the manifest no longer has. It
// follows client-go's util/csaupgrade, with these differences:
//
//   - Nothing is changed (and false returned) if our entry has all of their fields: there is nothing that the next apply
//     could remove, and what a later release drops is noticed then. This spares two requests for most objects.
//   - Fields below status are not adopted: status was never part of a release.
//   - The maps of labels and annotations themselves are not adopted, only what is in them: entries that belong to nobody
//     would go with the map.
//   - Of an entry of another API version only metadata is adopted: what a path in it means may have changed since.
//   - spec of volumes and claims is not adopted. The server refuses to remove what it or admission once defaulted there,
//     so that the object could never be applied again.
//
// Entries of former managers that cannot be read are left as they are. gvk is the kind of the object, in the version that
// is applied.
func Adopt(gvk schema.GroupVersionKind, entries []metav1.ManagedFieldsEntry) (next []metav1.ManagedFieldsEntry, changed bool) {
	if !slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return Former(&e) }) {
		return entries, false
	}
	own, version := ourSet(entries, gvk)
	all, adopted := own, map[int]bool{}
	for i := range entries {
		e := &entries[i]
		if !Former(e) {
			continue
		}
		theirs, ok := readSet(e)
		if !ok {
			continue
		}
		adopted[i] = true
		theirs = adoptable(gvk, theirs, e.APIVersion == version)
		changed = changed || exceeds(theirs, own)
		all = all.Union(theirs)
	}
	if !changed {
		return entries, false
	}
	kept := make([]metav1.ManagedFieldsEntry, 0, len(entries))
	for i, e := range entries {
		if !adopted[i] {
			kept = append(kept, e)
		}
	}
	return withOurs(kept, version, all)
}

// Take makes what is at the paths, and below them, ours alone, whoever has it: our Apply entry has the paths and the others
// lose them, so that the next apply removes what it does not set. It returns false if they are ours alone already.
// Entries that cannot be read are left as they are.
func Take(gvk schema.GroupVersionKind, entries []metav1.ManagedFieldsEntry, paths []fieldpath.Path,
) (next []metav1.ManagedFieldsEntry, changed bool) {
	own, version := ourSet(entries, gvk)
	taken := fieldpath.NewSet(paths...)
	changed = !taken.Difference(own).Empty()
	kept := make([]metav1.ManagedFieldsEntry, 0, len(entries))
	for _, e := range entries {
		theirs, ok := readSet(&e)
		if !ok || ours(&e) {
			kept = append(kept, e)
			continue
		}
		left := theirs.RecursiveDifference(taken)
		if left.Size() == theirs.Size() {
			kept = append(kept, e)
			continue
		}
		changed = true
		if data, err := left.ToJSON(); err == nil && !left.Empty() { // a set that was read can be written
			e.FieldsV1 = &metav1.FieldsV1{}
			e.FieldsV1.SetRawBytes(data)
			kept = append(kept, e)
		}
	}
	if !changed {
		return entries, false
	}
	return withOurs(kept, version, own.Union(taken))
}

// Restore returns entries with our Apply entry as it was before.
func Restore(entries, before []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	isOurs := func(e metav1.ManagedFieldsEntry) bool { return ours(&e) }
	next := slices.DeleteFunc(slices.Clone(entries), isOurs)
	if i := slices.IndexFunc(before, isOurs); i >= 0 {
		next = append(next, before[i])
	}
	return next
}

// Holders returns the managers, sorted, that own the field at path or one below it: neither we nor former managers.
// Entries that cannot be read are passed over.
func Holders(entries []metav1.ManagedFieldsEntry, path fieldpath.Path) []string {
	var managers []string
	for i := range entries {
		e := &entries[i]
		if ours(e) || Former(e) {
			continue
		}
		if set, ok := readSet(e); ok && (Reaches(set, path) || hasAtom(set, path)) {
			managers = append(managers, e.Manager)
		}
	}
	slices.Sort(managers)
	return slices.Compact(managers)
}

// Split returns the fields of our Apply entry, and those of all other entries that can be read.
func Split(entries []metav1.ManagedFieldsEntry) (own, others *fieldpath.Set) {
	own, others = fieldpath.NewSet(), fieldpath.NewSet()
	for i := range entries {
		set, ok := readSet(&entries[i])
		switch {
		case ok && ours(&entries[i]):
			own = own.Union(set)
		case ok:
			others = others.Union(set)
		}
	}
	return own, others
}

// Reaches reports whether set has the field at path, or one below it.
func Reaches(set *fieldpath.Set, path fieldpath.Path) bool {
	return set.Has(path) || !below(set, path).Empty()
}

// Whole reports whether set has the field at path, and none below it.
func Whole(set *fieldpath.Set, path fieldpath.Path) bool {
	return set.Has(path) && below(set, path).Empty()
}

// StatusWritten reports whether the entries tell that anybody has written the object's status, or leave it open: those of
// an object whose managedFields were stripped begin anew with its next apply.
func StatusWritten(entries []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
		if e.Subresource == "status" || e.Manager == beforeFirstApply {
			return true
		}
		set, ok := readSet(&e)
		return ok && !below(set, fieldpath.MakePathOrDie("status")).Empty()
	})
}

// beforeFirstApply is the manager to which the API server gives the fields of an object without managedFields.
const beforeFirstApply = "before-first-apply"

// ourSet returns the fields of our Apply entry and the API version that they are written in.
func ourSet(entries []metav1.ManagedFieldsEntry, gvk schema.GroupVersionKind) (own *fieldpath.Set, version string) {
	for i := range entries {
		if e := &entries[i]; ours(e) {
			if set, ok := readSet(e); ok {
				return set, e.APIVersion
			}
		}
	}
	return fieldpath.NewSet(), gvk.GroupVersion().String()
}

// withOurs returns entries with set as that of our Apply entry.
func withOurs(entries []metav1.ManagedFieldsEntry, version string, set *fieldpath.Set) ([]metav1.ManagedFieldsEntry, bool) {
	data, err := set.ToJSON()
	if err != nil { // a set that was read can be written
		return entries, false
	}
	next := slices.Clone(entries)
	i := slices.IndexFunc(next, func(e metav1.ManagedFieldsEntry) bool { return ours(&e) })
	if i < 0 {
		next = append(next, metav1.ManagedFieldsEntry{
			Manager: api.FieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: version, FieldsType: "FieldsV1",
		})
		i = len(next) - 1
	}
	next[i].FieldsV1 = &metav1.FieldsV1{}
	next[i].FieldsV1.SetRawBytes(data)
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

// exceeds reports whether set has a field that own lacks. A map or list whose entries are ours is not one: it exists
// because of us anyway.
func exceeds(set, own *fieldpath.Set) bool {
	found := false
	set.Difference(own).Iterate(func(path fieldpath.Path) { // All() must not be left early
		found = found || below(own, path).Empty()
	})
	return found
}

// below returns what set has below path.
func below(set *fieldpath.Set, path fieldpath.Path) *fieldpath.Set {
	for _, element := range path {
		set = set.WithPrefix(element)
	}
	return set
}

// hasAtom reports whether set has something above path as a whole, because its schema has it replaced as one.
func hasAtom(set *fieldpath.Set, path fieldpath.Path) bool {
	for n := 1; n < len(path); n++ {
		if set.Has(path[:n]) && below(set, path[:n]).Empty() {
			return true
		}
	}
	return false
}

// readSet returns the fields of an entry; false if it has none that can be read.
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
