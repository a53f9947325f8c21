package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

// preflight asks for a release to be looked at. An API server that does not know the mode would drop it, and what is left
// is an update: so it is tried first. The guards of updates do not apply, since nothing is begun; the release that is
// asked for already is told, because one request takes the place of another.
func (r *request) preflight(cv *configv1.ClusterVersion, target configv1.Update) {
	r.Action, r.unable = "preflight", "Unable to ask for a preflight"
	name := nameOf(target.Version, target.Image)
	if asked := wantedUpdate(cv); asked != nil && (!runs(cv, asked) || !completed(cv)) {
		r.warn("The request for %s is replaced; the cluster goes on with %s, and comes back to the request only when it is made again",
			nameOf(asked.Version, asked.Image), nameOf(cv.Status.Desired.Version, cv.Status.Desired.Image))
	}
	target.Mode = configv1.UpdateModePreflight
	r.update(cv, target)
	r.Message = fmt.Sprintf("Requested preflight of %s; 'cvo upgrade' tells what comes of it", name)
	r.tryFirst = true
	tried := false
	r.stored = func(now *configv1.ClusterVersion) error {
		before := tried
		tried = true
		switch update := now.Spec.DesiredUpdate; {
		case update != nil && update.Mode == configv1.UpdateModePreflight:
			return nil
		case before:
			return fmt.Errorf("%s: the API server has dropped spec.desiredUpdate.mode meanwhile, and may have begun an update to %s: "+
				"take it back with 'cvo upgrade --clear'", r.unable, name)
		}
		return refusef("%s: the API server drops spec.desiredUpdate.mode, which the CustomResourceDefinition clusterversions.config.openshift.io "+
			"of this cluster does not have, and would begin an update to %s: install the definition with feature gate ClusterUpdatePreflight, "+
			"or look at the release with 'cvo upgrade diff'", r.unable, name)
	}
}

// preflightAsked is the release that is to be looked at, nil for none.
func preflightAsked(cv *configv1.ClusterVersion) *configv1.Update {
	if asked := cv.Spec.DesiredUpdate; asked != nil && asked.Mode == configv1.UpdateModePreflight {
		return asked
	}
	return nil
}

// readPreflight returns what came of the last preflight, nil if nobody tells. An error is why that cannot be known, and
// only worth a word where one was asked for: most clusters have no such kind.
func readPreflight(ctx context.Context, c client.Reader, cv *configv1.ClusterVersion) (*api.Preflight, error) {
	rollout, _, err := readReleaseRollout(ctx, c, cv.Name)
	if err != nil && preflightAsked(cv) == nil {
		err = nil
	}
	return rollout.Status.Preflight, err
}

// preflightText tells of the preflight that is asked for, or of the last one as long as the release is another than that
// of the cluster.
func (v *upgradeOverview) preflightText(out io.Writer) {
	told := v.Preflight
	asked := v.Requested
	if asked != nil && asked.Mode != configv1.UpdateModePreflight {
		asked = nil
	}
	switch {
	case asked != nil && (told == nil || !tellsOf(*told, *asked)):
		fmt.Fprintf(out, "\nA preflight of %s is requested, and nothing is known of it yet.\n", oneLine(nameOf(asked.Version, asked.Image)))
	case told != nil && (asked != nil || told.Image != v.Desired.Image && (told.Version == "" || told.Version != v.Desired.Version)):
		fmt.Fprintf(out, "\nPreflight of %s: %s\n\n  Step: %s\n  Message: %s\n", oneLine(nameOf(told.Version, told.Image)), told.State,
			oneLine(told.Step), oneLine(cmp.Or(told.Message, "<no message>")))
	}
}

// tellsOf reports whether a preflight is the one that is asked for, as far as both name the release.
func tellsOf(told api.Preflight, asked configv1.Update) bool {
	if digest := digestOf(asked.Image); digest != "" && digestOf(told.Image) != "" {
		return digest == digestOf(told.Image)
	}
	if asked.Version != "" && told.Version != "" {
		return asked.Version == told.Version
	}
	return asked.Image == "" || asked.Image == told.Image
}
