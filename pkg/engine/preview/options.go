package preview

import (
	"context"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/engine/cluster"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/release"
)

// ReadOptions returns the options with which an operator in the given namespace would apply a release, without the inventory of earlier
// releases. It returns an error if it cannot read the cluster's configuration.
func ReadOptions(ctx context.Context, reader client.Reader, cv *configv1.ClusterVersion, namespace string) (Options, error) {
	values, err := cluster.ReadValues(ctx, reader, cv, namespace)
	if err != nil {
		return Options{}, err
	}
	options := Options{Values: values, Mode: release.Initializing, Pruning: inventory.PruningOf(cv)}
	completed := func(e configv1.UpdateHistory) bool { return e.State == configv1.CompletedUpdate }
	if slices.ContainsFunc(cv.Status.History, completed) {
		options.Mode = release.Updating
	}
	return options, nil
}
