package ownership

import (
	"slices"
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

// Scaler returns the manager that last set spec.replicas through the subresource scale, if the field is no longer ours; otherwise "". The API
// server records no time for such a write, so Writer takes it for the oldest. It records nothing at all for a scale to 0.
func Scaler(entries []metav1.ManagedFieldsEntry) string {
	scaler := ""
	for i := range entries {
		if e := &entries[i]; e.Subresource == "scale" && e.Manager != keeper && namesReplicas(e) {
			scaler = e.Manager
		}
	}
	// Almost no object has been scaled, so our entry, which is long, is searched last.
	if scaler != "" && slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return isOurs(&e) && namesReplicas(&e) }) {
		return ""
	}
	return scaler
}
