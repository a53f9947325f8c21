package ownership

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Writer returns the manager of the newest entry. It ignores our own Apply entry, the entry of GiveUp, and entries of subresources other
// than scale. It returns "" if there is no other entry. Among entries with the same time (in whole seconds), the last one wins.
//
// The API server keeps an entry only while its manager owns a field. So managers that only removed a field, or whose fields we have taken
// back, have no entry.
func Writer(entries []metav1.ManagedFieldsEntry) string {
	writer, newest := "", time.Time{}
	for i := range entries {
		e := &entries[i]
		if isOurs(e) || e.Manager == keeper || e.Subresource != "" && e.Subresource != "scale" {
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
