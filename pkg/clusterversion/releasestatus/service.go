package releasestatus

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// serviceConditions adds condition OperatorUpdateService to the conditions of a ReleaseStatus. Clients cannot see the operator's flags, but
// the rules for a request depend on whether these name an update service. The condition is omitted if they always did.
func (r *Record) serviceConditions(found []metav1.Condition, named bool) []metav1.Condition {
	if named && meta.FindStatusCondition(found, api.ConditionOperatorUpdateService) == nil {
		return found
	}
	c := metav1.Condition{
		Type: api.ConditionOperatorUpdateService, Status: metav1.ConditionFalse, Reason: api.ReasonServiceUnnamed,
		Message: "The operator was started without an update service, so only spec.upstream of the ClusterVersion can name one.", LastTransitionTime: r.since,
	}
	if named {
		c.Status, c.Reason = metav1.ConditionTrue, api.ReasonServiceNamed
		c.Message = "The operator was started with an update service."
	}
	next := slices.Clone(found)
	meta.SetStatusCondition(&next, c)
	return next
}
