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
