package inventory

import (
	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/inclusion/override"
)

// Pruning is an administrator's will about orphans. The release may request their deletion as well.
type Pruning struct {
	// Requested is true if the ClusterVersion requests the deletion of orphans.
	Requested bool
	overrides []configv1.ComponentOverride
}

// PruningOf returns the will in a ClusterVersion.
func PruningOf(cv *configv1.ClusterVersion) Pruning {
	return Pruning{Requested: cv.Annotations[api.PruneAnnotation] == "true", overrides: cv.Spec.Overrides}
}

// Stays returns the reason to keep an orphan although its deletion is requested; empty if there is none.
func (p Pruning) Stays(orphan Record) string {
	switch {
	case override.Excluded(orphan.ID, p.overrides):
		return override.Reason
	case orphan.CreateOnly:
		return ownership.CreateOnlyReason
	}
	return ""
}
