package clusterversion

import (
	"context"

	configv1 "github.com/openshift/api/config/v1"
)

// knownUpdates are the releases that the cluster can be updated to, as far as that is known.
type knownUpdates struct{}

// lookForUpdates has the update service asked in the background, and takes over what is known.
func (c *Reconciler) lookForUpdates(_ context.Context, _ *round) error { return nil }

// setUpdates puts what is known of updates into status.
func setUpdates(status *configv1.ClusterVersionStatus, set setter, _ observed) {
	if find(status.Conditions, configv1.RetrievedUpdates) == nil {
		set(configv1.RetrievedUpdates, configv1.ConditionFalse, "NoChannel", "The update channel has not been configured.")
	}
}
