package releasestatus

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
)

// saveResult is the result of the last save of the inventory, for condition InventorySaved of the ReleaseStatus. The zero value means that
// this process has not saved yet.
type saveResult struct {
	known bool
	// failure is the error text, "" for success. since is the time of the first save with this result.
	failure string
	since   metav1.Time
}

// maxConditionMessage bounds the message, because its error may quote a server's answer.
const maxConditionMessage = 4096

// InventorySaved stores the result of saving the inventory. It reports whether the result differs from the previous one and must be
// recorded.
func (r *Record) InventorySaved(err error) (changed bool) {
	next := saveResult{known: true, since: metav1.NewTime(r.clock.Now()).Rfc3339Copy()}
	if err != nil {
		next.failure = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	changed = !r.saved.known || r.saved.failure != next.failure
	if changed {
		r.saved = next
	}
	return changed
}

// conditions returns the conditions of a ReleaseStatus with the result of the last save. If no save has ever failed, the condition is
// omitted.
func (r saveResult) conditions(found []metav1.Condition) []metav1.Condition {
	if !r.known || r.failure == "" && meta.FindStatusCondition(found, api.ConditionInventorySaved) == nil {
		return found
	}
	next := slices.Clone(found)
	meta.SetStatusCondition(&next, r.condition())
	return next
}

func (r saveResult) condition() metav1.Condition {
	c := metav1.Condition{
		Type: api.ConditionInventorySaved, Status: metav1.ConditionTrue, Reason: api.ReasonSaved,
		Message: "The record of the applied objects is saved.", LastTransitionTime: r.since,
	}
	if r.failure != "" {
		c.Status, c.Reason = metav1.ConditionFalse, api.ReasonSaveFailed
		c.Message = printable.Excerpt("The record of the applied objects is not saved; after a restart, the operator will apply unchanged objects again: "+r.failure, maxConditionMessage)
	}
	return c
}
