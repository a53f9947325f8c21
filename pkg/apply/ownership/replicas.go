package ownership

import (
	"bytes"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// keeper is the manager that owns the number of replicas after GiveUp, until a client scales the workload.
const keeper = "kept-scale"

// GiveUp moves the field at path from our entry and the entries of former managers to a separate entry. Without an owner, the field would
// disappear together with its parent. It returns false if none of them has the field, or if another manager has it too, so that the field
// stays anyway.
func GiveUp(entries []metav1.ManagedFieldsEntry, path fieldpath.Path) (next []metav1.ManagedFieldsEntry, changed bool) {
	next = slices.Clone(entries)
	var kept metav1.ManagedFieldsEntry
	for i := range next {
		e := &next[i]
		set, ok := readSet(e)
		if !ok || !set.Has(path) {
			continue
		}
		if !isOurs(e) && !IsFormerManager(e) {
			return entries, false
		}
		kept = *e
		if !setFields(e, set.Difference(fieldpath.NewSet(path))) {
			return entries, false
		}
		changed = true
	}
	if !changed {
		return entries, false
	}
	kept.Manager, kept.Operation, kept.Subresource = keeper, metav1.ManagedFieldsOperationUpdate, "scale"
	changed = setFields(&kept, fieldpath.NewSet(path))
	return append(next, kept), changed
}

// MayOwnReplicas reports whether GiveUp may have to remove a field with the name replicas. It does not parse the entries, so that it can be
// called for each watched object.
func MayOwnReplicas(entries []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
		return (isOurs(&e) || IsFormerManager(&e)) && namesReplicas(&e)
	})
}

// namesReplicas reports whether an entry has a field with the name replicas. It does not parse the entry.
func namesReplicas(e *metav1.ManagedFieldsEntry) bool {
	return e.FieldsV1 != nil && bytes.Contains(e.FieldsV1.GetRawBytes(), []byte(`"f:replicas"`))
}
