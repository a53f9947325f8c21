package api

import configv1 "github.com/openshift/api/config/v1"

// FindCondition returns a pointer to the condition with the given type, or nil if there is none.
func FindCondition(
	conditions []configv1.ClusterOperatorStatusCondition, kind configv1.ClusterStatusConditionType,
) *configv1.ClusterOperatorStatusCondition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

// SetCondition adds a condition or replaces the one of the same type. A condition that keeps its status keeps its transition time.
func SetCondition(conditions *[]configv1.ClusterOperatorStatusCondition, next configv1.ClusterOperatorStatusCondition) {
	current := FindCondition(*conditions, next.Type)
	if current == nil {
		*conditions = append(*conditions, next)
		return
	}
	if current.Status == next.Status {
		next.LastTransitionTime = current.LastTransitionTime
	}
	*current = next
}
