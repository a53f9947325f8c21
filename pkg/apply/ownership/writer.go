package ownership

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/api"
)

// Writer returns the manager of the newest entry. It ignores our own Apply entry, those of GiveUp and of writes of managedFields, and entries of
// subresources other than scale. It returns "" if there is no other entry. Among entries with the same time (in whole seconds), the last one wins.
//
// The API server keeps an entry only while its manager owns a field. So managers that only removed a field, or whose fields we have taken
// back, have no entry.
func Writer(entries []metav1.ManagedFieldsEntry) string {
	writer, newest := "", time.Time{}
	for i := range entries {
		e := &entries[i]
		if isOurs(e) || e.Manager == keeper || e.Manager == api.ManagedFieldsManager || e.Subresource != "" && e.Subresource != "scale" {
			continue
		}
		var written time.Time // entries without a time count as oldest
		if e.Time != nil {
			written = e.Time.Time
		}
		if !written.Before(newest) {
			writer, newest = e.Manager, written
		}
	}
	return writer
}

// Scaler returns the manager that last set the number of replicas through the subresource scale, and the path of that field. It returns zero
// values if the field is still ours. The API server records no time for such a write, so Writer takes it for the oldest. It records nothing
// at all for a scale to 0. The subresource writes a single field, which the definition of a custom resource names.
func Scaler(entries []metav1.ManagedFieldsEntry) (manager string, field []string) {
	var scaled *fieldpath.Set
	for i := range entries {
		e := &entries[i]
		if e.Subresource != "scale" || e.Manager == keeper {
			continue
		}
		if set, ok := readSet(e); ok && set.Size() == 1 {
			manager, scaled = e.Manager, set
		}
	}
	if scaled == nil {
		return "", nil
	}
	// Almost no object has been scaled, so our entry, which is long, is read last.
	for i := range entries {
		if e := &entries[i]; isOurs(e) {
			if set, ok := readSet(e); ok && !set.Intersection(scaled).Empty() {
				return "", nil
			}
		}
	}
	scaled.Iterate(func(path fieldpath.Path) { field = fieldNames(path) })
	if field == nil {
		return "", nil
	}
	return manager, field
}

// fieldNames returns the path as names of fields; nil if it has other elements.
func fieldNames(path fieldpath.Path) []string {
	names := make([]string, 0, len(path))
	for _, element := range path {
		if element.FieldName == nil {
			return nil
		}
		names = append(names, *element.FieldName)
	}
	return names
}
