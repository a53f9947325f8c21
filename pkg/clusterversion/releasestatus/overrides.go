package releasestatus

import (
	"context"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inclusion/override"
	"github.com/cluster-version/cvo/pkg/payload"
)

// comparison is the result of comparing overrides with a payload.
type comparison struct {
	payload   *payload.Payload
	overrides []configv1.ComponentOverride
	// at is the time of the comparison, in whole seconds.
	at metav1.Time
	// unmatched is the message about the overrides that match no object of the payload or the inventory; empty if there are none.
	unmatched string
}

// restored returns the comparison of an earlier process.
func restored(conditions []metav1.Condition) comparison {
	c := meta.FindStatusCondition(conditions, api.ConditionOverridesMatch)
	if c == nil || c.Status != metav1.ConditionFalse {
		return comparison{}
	}
	return comparison{at: c.LastTransitionTime, unmatched: c.Message}
}

// compare compares the overrides with the payload and the inventory if the overrides or the payload have changed. An override also keeps
// orphans, which only the inventory has and which it keeps while the override exists. Without a payload or an inventory, the last comparison
// stays, unless the overrides are gone.
func (r *Record) compare(ctx context.Context, content Content) {
	known := r.known().compared
	gone := len(content.Overrides) == 0 && known.unmatched != "" // since an earlier process compared them
	same := known.payload == content.Payload && slices.Equal(known.overrides, content.Overrides)
	if same && !gone || content.Payload == nil && len(content.Overrides) > 0 {
		return
	}
	c := comparison{payload: content.Payload, overrides: content.Overrides, at: metav1.NewTime(r.clock.Now()).Rfc3339Copy()}
	if c.payload != nil && len(c.overrides) > 0 {
		objects, err := content.Recorded(ctx)
		if err != nil {
			return // the rollout needs the inventory too, and reports the error
		}
		for _, m := range c.payload.Manifests {
			objects = append(objects, m.ID())
		}
		for _, e := range c.payload.Excluded {
			objects = append(objects, e.Manifest.ID())
		}
		if unmatched := override.Unmatched(objects, c.overrides); len(unmatched) > 0 {
			c.unmatched = printable.Excerpt("These entries of spec.overrides match no object of this or an earlier release and have no effect: "+
				strings.Join(unmatched, "; "), maxConditionMessage)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.compared = c
}

// overrideConditions adds condition OverridesMatch to the conditions of a ReleaseStatus. It is omitted until an override matches no object.
func (r *Record) overrideConditions(found []metav1.Condition, content Content) []metav1.Condition {
	unmatched, unknown := r.compared.unmatched, content.Payload == nil && len(content.Overrides) > 0
	if unknown || unmatched == "" && meta.FindStatusCondition(found, api.ConditionOverridesMatch) == nil {
		return found
	}
	c := metav1.Condition{
		Type: api.ConditionOverridesMatch, Status: metav1.ConditionTrue, Reason: api.ReasonOverridesMatch,
		Message: "Every entry of spec.overrides matches an object of this or an earlier release.", LastTransitionTime: r.compared.at,
	}
	if unmatched != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, api.ReasonOverrideUnmatched, unmatched
	}
	next := slices.Clone(found)
	meta.SetStatusCondition(&next, c)
	return next
}

// UnmatchedOverrides returns the message about unmatched overrides; empty if there are none. The API server may not store it.
func (r *Record) UnmatchedOverrides() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.compared.unmatched
}
