package clusterversions

import (
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
)

// Start is the time at which Condition sets conditions.
var Start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// VersionedRelease returns a release with this version and its own digest.
func VersionedRelease(version string) configv1.Release {
	return configv1.Release{Version: version, Image: "registry.example/release@sha256:" + version}
}

// Condition returns a condition that changed at Start.
func Condition(kind configv1.ClusterStatusConditionType, status configv1.ConditionStatus, reason, message string) configv1.ClusterOperatorStatusCondition {
	return configv1.ClusterOperatorStatusCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(Start)}
}

// Rollout returns an empty ReleaseRollout.
func Rollout() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind))
	return object
}
