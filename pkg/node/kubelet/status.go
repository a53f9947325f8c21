package kubelet

import (
	"slices"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Accepted is the condition that reports whether the MachineConfigs have the content of the KubeletConfig.
const Accepted mcfgv1.KubeletConfigStatusConditionType = "Accepted"

// Status returns the status of the plan's KubeletConfig after its MachineConfigs are written. Clients of OpenShift read the last condition,
// which is Success with status True, or Failure with status False.
func (p Plan) Status(now time.Time) mcfgv1.KubeletConfigStatus {
	accepted := mcfgv1.KubeletConfigCondition{Type: Accepted, Status: corev1.ConditionTrue, Reason: "AsExpected"}
	last := mcfgv1.KubeletConfigCondition{Type: mcfgv1.KubeletConfigSuccess, Status: corev1.ConditionTrue, Message: "Success"}
	if p.Err != nil {
		accepted = mcfgv1.KubeletConfigCondition{Type: Accepted, Status: corev1.ConditionFalse, Reason: "Invalid", Message: p.Err.Error()}
		last = mcfgv1.KubeletConfigCondition{Type: mcfgv1.KubeletConfigFailure, Status: corev1.ConditionFalse, Message: "Error: " + p.Err.Error()}
	}
	status := mcfgv1.KubeletConfigStatus{ObservedGeneration: p.Config.Generation, Conditions: []mcfgv1.KubeletConfigCondition{accepted, last}}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.LastTransitionTime = metav1.NewTime(now)
		if before := condition(p.Config, c.Type); before != nil && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
	}
	return status
}

func condition(config *mcfgv1.KubeletConfig, kind mcfgv1.KubeletConfigStatusConditionType) *mcfgv1.KubeletConfigCondition {
	i := slices.IndexFunc(config.Status.Conditions, func(c mcfgv1.KubeletConfigCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &config.Status.Conditions[i]
}

func isAccepted(config *mcfgv1.KubeletConfig) bool {
	c := condition(config, Accepted)
	return c != nil && c.Status == corev1.ConditionTrue
}
