package ownership

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Writer returns the manager of the newest entry that is neither our own Apply entry nor of a subresource, "" if there
// is none. Of entries with the same time, which has whole seconds, the last one counts.
//
// The API server keeps an entry only while its manager owns a field: somebody who did nothing but remove a field, or
// whose fields we took back since, is not among them.
func Writer(entries []metav1.ManagedFieldsEntry) string {
	var newest *metav1.ManagedFieldsEntry
	for i := range entries {
		e := &entries[i]
		if ours(e) || e.Subresource != "" {
			continue
		}
		if newest == nil || !e.Time.Before(newest.Time) {
			newest = e
		}
	}
	if newest == nil {
		return ""
	}
	return newest.Manager
}
