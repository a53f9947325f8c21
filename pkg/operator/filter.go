package operator

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// filterReader reads from the cluster which manifests it gets.
type filterReader struct {
	reader  client.Reader
	options Options
}

// filter follows the cluster's profile, feature set, the feature gates that are on for the version it runs, its
// capabilities and overrides. A cluster without the FeatureGate API or object has the default feature set.
func (f *filterReader) filter(ctx context.Context, cv *configv1.ClusterVersion) (manifest.Filter, error) {
	filter := manifest.Filter{Profile: f.options.Profile, ExcludeID: f.options.ExcludeID, Overrides: cv.Spec.Overrides}
	gates := &configv1.FeatureGate{}
	err := f.reader.Get(ctx, client.ObjectKey{Name: "cluster"}, gates)
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return filter, fmt.Errorf("reading FeatureGate cluster: %w", err)
	}
	filter.FeatureSet = string(gates.Spec.FeatureSet)
	filter.Gates = sets.New[string]()
	for _, details := range gates.Status.FeatureGates {
		if details.Version != cv.Status.Desired.Version {
			continue
		}
		for _, gate := range details.Enabled {
			filter.Gates.Insert(string(gate.Name))
		}
	}
	mustStay := sets.New(cv.Status.Capabilities.EnabledCapabilities...).Insert(f.options.AlwaysEnable...)
	filter.Capabilities, _ = manifest.EnabledCapabilities(cv.Spec.Capabilities, filter.Gates, mustStay)
	return filter, nil
}
