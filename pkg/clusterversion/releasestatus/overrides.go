package releasestatus

import (
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
	// unmatched describes the overrides that exclude no manifest of the payload; empty if there are none.
	unmatched string
}

// with returns the comparison for a content. It compares only if the payload or the overrides have changed.
func (c comparison) with(content Content) comparison {
	if c.payload == content.Payload && slices.Equal(c.overrides, content.Overrides) {
		return c
	}
	c = comparison{payload: content.Payload, overrides: content.Overrides}
	if c.payload == nil || len(c.overrides) == 0 {
		return c
	}
	manifests := slices.Clone(c.payload.Manifests)
	for _, e := range c.payload.Excluded {
		manifests = append(manifests, e.Manifest)
	}
	c.unmatched = strings.Join(override.Unmatched(manifests, c.overrides), "; ")
	return c
}

// overrideConditions adds condition OverridesMatch to the conditions of a ReleaseStatus. It is omitted until an override matches no object.
func (r *Record) overrideConditions(found []metav1.Condition, content Content) []metav1.Condition {
	r.compared = r.compared.with(content)
	unmatched, unknown := r.compared.unmatched, content.Payload == nil && len(content.Overrides) > 0
	if unknown || unmatched == "" && meta.FindStatusCondition(found, api.ConditionOverridesMatch) == nil {
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

// UnmatchedOverrides returns the message about unmatched overrides; empty if there are none.
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
