package gate

import (
	"fmt"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// ClusterOperator settles once the operator is Available, not Degraded, and reports every version in its manifest. A missing condition
// counts as bad. An operator without any conditions has only not reported yet, because its pod may be new: the gate waits. Order and
// reasons match OpenShift's operator. Not Available fails immediately, Degraded fails after a while, and missing versions only delay.
// During an install, Degraded is only reported and versions are not compared.
func ClusterOperator(co *configv1.ClusterOperator, want Want) Verdict {
	versions := OperandVersions(want.Manifest)
	if len(versions) == 0 {
		return failed(api.ReasonClusterOperatorNoVersions,
			"Cluster operator %s does not declare expected versions", co.Name)
	}
	if len(co.Status.Conditions) == 0 {
		return waiting(api.ReasonClusterOperatorNotAvailable, "Cluster operator %s has not reported yet", co.Name)
	}
	if status, c := condition(co, configv1.OperatorAvailable); status != configv1.ConditionTrue {
		v := failed(api.ReasonClusterOperatorNotAvailable, "Cluster operator %s is not available", co.Name)
		v.Since = since(c)
		return v
	}
	if status, c := condition(co, configv1.OperatorDegraded); status != configv1.ConditionFalse {
		v := Verdict{
			State: Failed, Patience: UntilFailed, Reason: api.ReasonClusterOperatorDegraded,
			Message: fmt.Sprintf("Cluster operator %s is degraded", co.Name), Since: since(c),
		}
		if want.Mode == release.Initializing {
			v.State, v.Patience = Settled, Report
		}
		return v
	}
	if want.Mode == release.Initializing {
		return Verdict{State: Settled}
	}
	for _, v := range versions {
		if !slices.Contains(co.Status.Versions, v) {
			return waiting(api.ReasonClusterOperatorUpdating, "Cluster operator %s is updating versions", co.Name)
		}
	}
	return Verdict{State: Settled}
}

// ProgressingSince returns the time since when a ClusterOperator reports Progressing; zero if it does not report it.
func ProgressingSince(co *configv1.ClusterOperator) time.Time {
	if status, c := condition(co, configv1.OperatorProgressing); status == configv1.ConditionTrue {
		return since(c)
	}
	return time.Time{}
}

// OperandVersions returns the status.versions in a ClusterOperator manifest, in the manifest's order.
func OperandVersions(m *manifest.Manifest) []configv1.OperandVersion {
	list, _, _ := unstructured.NestedSlice(m.Object.Object, "status", "versions")
	versions := make([]configv1.OperandVersion, 0, len(list))
	for _, item := range list {
		entry, ok := item.(map[string]any)
		if !ok {
			continue
		}
		name, _ := entry["name"].(string)
		version, _ := entry["version"].(string)
		if name != "" {
			versions = append(versions, configv1.OperandVersion{Name: name, Version: version})
		}
	}
	return versions
}

func condition(co *configv1.ClusterOperator, kind configv1.ClusterStatusConditionType) (
	configv1.ConditionStatus, *configv1.ClusterOperatorStatusCondition,
) {
	for i := range co.Status.Conditions {
		if c := &co.Status.Conditions[i]; c.Type == kind {
			return c.Status, c
		}
	}
	return configv1.ConditionUnknown, nil
}

func since(c *configv1.ClusterOperatorStatusCondition) time.Time {
	if c == nil {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}
