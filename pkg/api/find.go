package api

import configv1 "github.com/openshift/api/config/v1"

// FindCondition returns the condition of that type, to be read or changed, or nil.
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
