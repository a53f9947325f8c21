package ownership

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// OtherVersion returns the API version of an entry that was not written in the given version, or "" if there is none.
func OtherVersion(entries []metav1.ManagedFieldsEntry, version string) string {
	for i := range entries {
		if entries[i].APIVersion != version {
			return entries[i].APIVersion
		}
	}
	return ""
}

// AppliedIn reports whether our last apply used an API version.
func AppliedIn(entries []metav1.ManagedFieldsEntry, version schema.GroupVersion) bool {
	return slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return isOurs(&e) && e.APIVersion == version.String() })
}

// Move returns the entries as if those in API version from, or all if that is empty, had been written in version. It unites entries that then
// belong to the same manager, operation and subresource. The caller must know that paths have the same meaning in all versions: the server
// converts objects of a CustomResourceDefinition without a conversion webhook by changing only apiVersion.
func Move(entries []metav1.ManagedFieldsEntry, from, version string) []metav1.ManagedFieldsEntry {
	next := make([]metav1.ManagedFieldsEntry, 0, len(entries))
	for _, e := range entries {
		if from == "" || e.APIVersion == from {
			e.APIVersion = version
		}
		same := func(other metav1.ManagedFieldsEntry) bool {
			return other.APIVersion == e.APIVersion && other.Manager == e.Manager && other.Operation == e.Operation && other.Subresource == e.Subresource
		}
		if i := slices.IndexFunc(next, same); i >= 0 {
			next[i] = unite(next[i], e)
		} else {
			next = append(next, e)
		}
	}
	return next
}

// unite returns an entry with the fields of both and the later time. Unreadable fields are dropped, because the server cannot read them
// either.
func unite(a, b metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
	fields, ok := readSet(&a)
	more, also := readSet(&b)
	if b.Time != nil && (a.Time == nil || a.Time.Before(b.Time)) {
		a.Time = b.Time
	}
	switch {
	case !ok:
		a.FieldsV1 = b.FieldsV1
	case also:
		setFields(&a, fields.Union(more))
	}
	a.FieldsType = cmp.Or(a.FieldsType, b.FieldsType)
	return a
}
