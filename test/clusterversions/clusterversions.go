// Package clusterversions creates ClusterVersions for tests: a cluster at rest, with known updates, or with given conditions.
package clusterversions

import (
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// Digest returns a digest that repeats one character.
func Digest(char string) string { return "sha256:" + strings.Repeat(char, 64) }

// Release returns a release with this version, whose digest repeats a character.
func Release(version, char string) configv1.Release {
	return configv1.Release{Version: version, Image: "registry.example/rel@" + Digest(char)}
}

// Resting returns a cluster at 4.14.1 without failures or known updates.
func Resting() *configv1.ClusterVersion {
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
	cv.Spec.ClusterID = "c2b1d2a0-7f61-4b6e-9f30-0d5d1a3b5a6d"
	cv.Spec.Channel = "stable-4.14"
	cv.Status.Desired = Release("4.14.1", "1")
	cv.Status.Desired.Channels = []string{"candidate-4.14", "fast-4.14", "stable-4.14"}
	cv.Status.History = []configv1.UpdateHistory{
		{State: configv1.CompletedUpdate, Version: "4.14.1", Image: cv.Status.Desired.Image, StartedTime: metav1.Unix(1000, 0), CompletionTime: new(metav1.Unix(2000, 0))},
		{State: configv1.CompletedUpdate, Version: "4.14.0", Image: Release("", "0").Image, StartedTime: metav1.Unix(100, 0), CompletionTime: new(metav1.Unix(200, 0))},
	}
	Set(cv, api.Failing, configv1.ConditionFalse, "", "")
	Set(cv, configv1.OperatorProgressing, configv1.ConditionFalse, "", "Cluster version is 4.14.1")
	Set(cv, configv1.RetrievedUpdates, configv1.ConditionTrue, "", "")
	Set(cv, api.ReleaseAccepted, configv1.ConditionTrue, "PayloadLoaded", "Payload loaded")
	return cv
}

// Set sets a condition.
func Set(cv *configv1.ClusterVersion, name configv1.ClusterStatusConditionType, status configv1.ConditionStatus, reason, message string) {
	c := api.FindCondition(cv.Status.Conditions, name)
	if c == nil {
		cv.Status.Conditions = append(cv.Status.Conditions, configv1.ClusterOperatorStatusCondition{Type: name, LastTransitionTime: metav1.Unix(3000, 0)})
		c = &cv.Status.Conditions[len(cv.Status.Conditions)-1]
	}
	c.Status, c.Reason, c.Message = status, reason, message
}

// Unset removes a condition.
func Unset(cv *configv1.ClusterVersion, name configv1.ClusterStatusConditionType) {
	var kept []configv1.ClusterOperatorStatusCondition
	for _, c := range cv.Status.Conditions {
		if c.Type != name {
			kept = append(kept, c)
		}
	}
	cv.Status.Conditions = kept
}

// Conditional returns an update with two risks. One has its URL in the message, as OpenShift's operator writes it.
func Conditional(version, char string, status metav1.ConditionStatus, reason, message string) configv1.ConditionalUpdate {
	return configv1.ConditionalUpdate{
		Release: Release(version, char),
		Risks: []configv1.ConditionalUpdateRisk{
			{Name: "SlowDisks", URL: "https://issues.example/1", Message: "Slow disks get slower.", MatchingRules: []configv1.ClusterCondition{{Type: "Always"}}},
			{Name: "LostLeases", URL: "https://issues.example/2", Message: "Leases get lost.", MatchingRules: []configv1.ClusterCondition{{Type: "Always"}}},
		},
		Conditions: []metav1.Condition{{Type: api.UpdateRecommended, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Unix(3000, 0)}},
	}
}

// WithUpdates adds three recommended updates in random order, and two that are not recommended.
func WithUpdates(cv *configv1.ClusterVersion) *configv1.ClusterVersion {
	cv.Status.AvailableUpdates = []configv1.Release{Release("4.14.3", "3"), Release("4.14.10", "a"), Release("4.14.9-rc.1", "9")}
	cv.Status.ConditionalUpdates = []configv1.ConditionalUpdate{
		Conditional("4.14.4", "4", metav1.ConditionFalse, "MultipleReasons",
			"Slow disks get slower. https://issues.example/1\n\nLeases get lost. https://issues.example/2"),
		Conditional("4.14.12", "c", metav1.ConditionUnknown, "EvaluationFailed", "Could not evaluate exposure to update risk SlowDisks"),
		Conditional("4.14.3", "3", metav1.ConditionTrue, "AsExpected", "The update is recommended, because none of the conditional update risks apply to this cluster."),
	}
	return cv
}

// Mirrored returns the pullspec of a release in a mirror.
func Mirrored(char string) string { return "mirror.example:5000/copy@" + Digest(char) }
