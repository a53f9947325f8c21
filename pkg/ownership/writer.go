package ownership

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Writer returns the manager of the newest entry that is neither our own Apply entry nor of a subresource, "" if there
// is none. Of entries with the same time, which has whole seconds, the last one counts.
//
// The API server keeps an entry only while its manager owns a field: somebody who did nothing but remove a field, or
// whose fields we took back since, is not among them.
func Writer(entries []metav1.ManagedFieldsEntry) string {
	writer, newest := "", time.Time{}
	for i := range entries {
		e := &entries[i]
		if ours(e) || e.Subresource != "" {
			continue
		}
		var written time.Time // of an entry without a time, long ago
		if e.Time != nil {
			written = e.Time.Time
		}
		if !written.Before(newest) {
			writer, newest = e.Manager, written
		}
	}
	return writer
}
