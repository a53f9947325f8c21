package releasestatus

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inclusion"
)

// unmatched describes the overrides that exclude no manifest of the newest recorded release; empty if there are none. known is false before
// a release is loaded.
func (c Content) unmatched() (text string, known bool) {
	switch {
	case len(c.Overrides) == 0:
		return "", true
	case c.Payload == nil:
		return "", false
	}
	manifests := slices.Clone(c.Payload.Manifests)
	for _, e := range c.Payload.Excluded {
		manifests = append(manifests, e.Manifest)
	}
	var texts []string
	for _, u := range inclusion.UnmatchedOverrides(manifests, c.Overrides) {
		texts = append(texts, u.String())
	}
	return strings.Join(texts, "; "), true
}

// overrideConditions adds condition OverridesMatch to the conditions of a ReleaseStatus. It is omitted until an override matches no object.
func (r *Record) overrideConditions(found []metav1.Condition, content Content) []metav1.Condition {
	unmatched, known := content.unmatched()
	if !known || unmatched == "" && meta.FindStatusCondition(found, api.ConditionOverridesMatch) == nil {
		return found
	}
	c := metav1.Condition{
		Type: api.ConditionOverridesMatch, Status: metav1.ConditionTrue, Reason: api.ReasonOverridesMatch,
		Message: "Every entry of spec.overrides matches an object of the release.", LastTransitionTime: metav1.NewTime(r.clock.Now()).Rfc3339Copy(),
	}
	if unmatched != "" {
		c.Status, c.Reason = metav1.ConditionFalse, api.ReasonOverrideUnmatched
		c.Message = printable.Excerpt("These entries of spec.overrides match no object of the release and have no effect: "+unmatched, maxConditionMessage)
	}
	next := slices.Clone(found)
	meta.SetStatusCondition(&next, c)
	return next
}

// UnmatchedOverrides returns the message about overrides without effect; empty if there are none.
func (r *Record) UnmatchedOverrides() string {
	status := r.Status()
	if status == nil {
		return ""
	}
	if c := meta.FindStatusCondition(status.Conditions, api.ConditionOverridesMatch); c != nil && c.Status == metav1.ConditionFalse {
		return c.Message
	}
	return ""
}
