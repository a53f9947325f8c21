package request

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// preflight requests a preflight of a release. It starts with a dry run, because an API server that does not know the mode would drop it
// and store an ordinary update. The guards of updates do not apply, because no update starts. If an update is already requested, it warns
// that this request replaces it.
func (r *Request) preflight(cv *configv1.ClusterVersion, target configv1.Update) {
	r.Action, r.failure = "preflight", "Unable to request a preflight"
	name := reported.Name(target.Version, target.Image)
	if asked := reported.Requested(cv); asked != nil && (!reported.Runs(cv, asked) || !reported.Completed(cv)) {
		r.warn("This replaces the requested update to %s; the cluster continues with %s until you request the update again",
			reported.Name(asked.Version, asked.Image), reported.Name(cv.Status.Desired.Version, cv.Status.Desired.Image))
	}
	target.Mode = configv1.UpdateModePreflight
	r.update(cv, target)
	r.Message = fmt.Sprintf("Requested preflight of %s; 'cvo upgrade' shows its result", name)
	if asked := reported.RequestedPreflight(cv); asked != nil && equality.Semantic.DeepEqual(*asked, target) { // the operator sees no new request
		repeat := "run 'cvo upgrade --clear'"
		if !reported.Completed(cv) { // without a request, the cluster would go back
			repeat = "request the update to " + reported.Name(cv.Status.Desired.Version, cv.Status.Desired.Image) + " again"
		}
		r.Message = fmt.Sprintf("The preflight of %s was requested before; 'cvo upgrade' shows its result. To repeat it, first %s", name, repeat)
	}
	r.dryRunFirst = true
	tried := false
	r.checkStored = func(now *configv1.ClusterVersion) error {
		before := tried
		tried = true
		switch update := now.Spec.DesiredUpdate; {
		case update != nil && update.Mode == configv1.UpdateModePreflight:
			return nil
		case before:
			return fmt.Errorf("%s: the API server dropped spec.desiredUpdate.mode and may have started an update to %s: "+
				"cancel it with 'cvo upgrade --clear'", r.failure, name)
		}
		return refuse("%s: %s, and would start an update to %s: install the CustomResourceDefinition with feature gate ClusterUpdatePreflight, "+
			"or preview the release with 'cvo upgrade diff'", r.failure, drops("mode"), name)
	}
}

// drops returns a clause about a field of spec.desiredUpdate that the API server did not store.
func drops(field string) string {
	return "the API server drops spec.desiredUpdate." + field + ", because this cluster's CustomResourceDefinition clusterversions.config.openshift.io lacks the field"
}

// ReadPreflight returns the result of the last preflight, or nil if none is reported. An error is the reason why the result is unknown. It
// returns an error only if a preflight is requested, because most clusters do not serve the kind.
func ReadPreflight(ctx context.Context, c client.Reader, cv *configv1.ClusterVersion) (*api.Preflight, error) {
	rollout, _, err := readRollout(ctx, c, cv.Name)
	if err != nil && reported.RequestedPreflight(cv) == nil {
		err = nil
	}
	return rollout.Status.Preflight, err
}
