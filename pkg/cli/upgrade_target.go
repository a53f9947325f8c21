package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// recommended is the type of the condition that tells whether a conditional update is recommended for this cluster.
const recommended = "Recommended"

const forceWarning = "--force overrides cluster verification of your supplied release image and waives any update precondition failures. " +
	"Only use this if you are testing unsigned release images or you are working around a known bug in the cluster-version operator " +
	"and you have verified the authenticity of the provided image yourself."

// updateTarget is a release that the cluster could be updated to.
type updateTarget struct {
	configv1.Release
	// risk is why it is not recommended, nil if it is.
	risk *metav1.Condition
}

// notRecommended returns the conditional updates that are not recommended, or where that is not known, newest first. The
// recommended ones are among the available updates.
func notRecommended(cv *configv1.ClusterVersion) []configv1.ConditionalUpdate {
	updates := slices.Clone(cv.Status.ConditionalUpdates)
	updates = slices.DeleteFunc(updates, func(u configv1.ConditionalUpdate) bool {
		c := meta.FindStatusCondition(u.Conditions, recommended)
		return c == nil || c.Status == metav1.ConditionTrue
	})
	slices.SortStableFunc(updates, func(a, b configv1.ConditionalUpdate) int { return release.NewestFirst(a.Release, b.Release) })
	return updates
}

// checkPullspec refuses what is no pullspec of a release: a version in its place, for one, is a valid name of an image.
func checkPullspec(pullspec string, force bool) error {
	const invalid = "--to-image must be a valid image pull spec: "
	if _, err := new(registry.Access).Reference(pullspec); err != nil {
		return usageErrorf(invalid+"%w", err)
	}
	slash := strings.LastIndex(pullspec, "/")
	name := pullspec[slash+1:]
	switch {
	case slash < 0:
		return usageErrorf(invalid + "no registry or repository specified")
	case strings.Contains(name, "@"):
		return nil
	case !strings.Contains(name, ":"):
		return usageErrorf(invalid + "no tag or digest specified")
	case !force:
		return usageErrorf("--to-image must be a by-digest pull spec, unless --force is also set, because release images that are not accessed via digest " +
			"cannot be verified by the cluster.  Even when --force is set, using tags is not recommended, although we continue to allow it for backwards compatibility")
	}
	return nil
}

func byTag(pullspec string) bool { return !strings.Contains(pullspec, "@") }

// matches reports whether a release of the cluster's lists is the one asked for. With a digest it is, in whichever
// registry: a mirror has the same content, signatures included.
func (o *upgradeOptions) matches(listed configv1.Release) (bool, error) {
	switch {
	case o.to != "":
		return listed.Version == o.to, nil
	case o.toImage == "":
		return false, nil
	case listed.Image == o.toImage:
		return true, nil
	}
	if _, err := new(registry.Access).Reference(listed.Image); err != nil {
		return false, err
	}
	_, asked, _ := strings.Cut(o.toImage, "@")
	_, digest, _ := strings.Cut(listed.Image, "@")
	if _, err := release.ParseDigest(asked); err != nil {
		return false, nil //nolint:nilerr // a tag, which matches nothing else
	}
	return asked == digest, nil
}

// planUpdate is --to, --to-image and --to-latest.
func (o *upgradeOptions) planUpdate(cv *configv1.ClusterVersion, r *request) error {
	r.Action, r.unable = "update", "Unable to upgrade"
	desired := cv.Status.Desired
	r.From = endOfRelease(desired)
	if byTag(o.toImage) && o.toImage != "" {
		r.warn("Using by-tag pull specs is dangerous, and while we still allow it in combination with --force for backward compatibility, " +
			"it would be much safer to pass a by-digest pull spec instead")
	}
	target, done := o.current(cv, r)
	if done {
		return nil
	}
	if target == nil {
		var err error
		if target, err = o.choose(cv, r); err != nil || target == nil {
			return err
		}
	}
	if o.force {
		target.Force = true
		r.warn(forceWarning)
	}
	if o.preflight {
		r.preflight(cv, *target)
		return nil
	}
	if err := o.guard(cv, r); err != nil {
		return err
	}
	r.update(cv, *target)
	r.Message = "Requested update to " + target.Version
	if target.Version == "" {
		r.Message = "Requested update to release image " + target.Image
	}
	return nil
}

// current answers a request for the release that the cluster is at or moves to: nothing is to be done, unless it shall
// be forced from now on.
func (o *upgradeOptions) current(cv *configv1.ClusterVersion, r *request) (target *configv1.Update, done bool) {
	desired, asked := cv.Status.Desired, cv.Spec.DesiredUpdate
	switch {
	case o.to != "" && o.to == desired.Version:
		r.Message = "info: Cluster is already at version " + o.to
	case o.toImage != "" && o.toImage == desired.Image:
		r.Message = "info: Cluster is already at " + o.toImage
	default:
		return nil, false
	}
	sought := asked != nil && (asked.Image == desired.Image || asked.Image == "" && asked.Version == desired.Version)
	if o.force && (!sought || !asked.Force) {
		return &configv1.Update{Version: desired.Version, Image: desired.Image}, false
	}
	if asked != nil && !sought && asked.Version+asked.Image != "" {
		r.warn("spec.desiredUpdate asks for %s all the same; take that back with --clear", nameOf(asked.Version, asked.Image))
	}
	r.To = endOfRelease(desired)
	return nil, true
}

// choose finds the release asked for among those that the cluster knows. Nil without an error means that there is
// nothing newer.
func (o *upgradeOptions) choose(cv *configv1.ClusterVersion, r *request) (*configv1.Update, error) {
	var possible []updateTarget
	for _, available := range cv.Status.AvailableUpdates {
		match, err := o.matches(available)
		if err != nil {
			r.warn("unable to calculate match for the update target in available updates: %v", err)
		}
		if match {
			return o.updateTo(available), nil
		}
		possible = append(possible, updateTarget{Release: available})
	}
	for _, conditional := range notRecommended(cv) {
		risk := meta.FindStatusCondition(conditional.Conditions, recommended)
		match, err := o.matches(conditional.Release)
		if err != nil {
			r.warn("unable to calculate match for the update target in available conditional updates: %v", err)
		}
		switch {
		case match && !o.allowNotRecommended:
			return nil, refusef("the update %s is not one of the recommended updates, but is available as a conditional update. "+
				"To accept the %s=%s risk and to proceed with update use --allow-not-recommended.\n%s",
				conditional.Release.Version, recommended, risk.Status, because(risk.Reason, risk.Message))
		case match:
			r.takeRisk(conditional.Release, risk)
			return o.updateTo(conditional.Release), nil
		case o.allowNotRecommended:
			possible = append(possible, updateTarget{Release: conditional.Release, risk: risk})
		}
	}
	slices.SortStableFunc(possible, func(a, b updateTarget) int { return release.NewestFirst(a.Release, b.Release) })
	switch {
	case o.toImage != "" && o.allowExplicit:
		r.warn("The requested upgrade image is not one of the available updates. You have used --allow-explicit-upgrade for the update to proceed anyway")
		return &configv1.Update{Image: o.toImage}, nil
	case o.toLatest && len(possible) > 0:
		latest := possible[0]
		if latest.risk != nil {
			r.takeRisk(latest.Release, latest.risk)
		}
		return o.updateTo(latest.Release), nil
	}
	return nil, o.notFound(cv, r, possible)
}

// updateTo keeps the pullspec as it was asked for: it may be the one registry that the cluster reaches.
func (o *upgradeOptions) updateTo(listed configv1.Release) *configv1.Update {
	return &configv1.Update{Version: listed.Version, Image: cmp.Or(o.toImage, listed.Image)}
}

func (r *request) takeRisk(target configv1.Release, risk *metav1.Condition) {
	r.warn("with --allow-not-recommended you have accepted the risks with %s and bypassed %s=%s %s: %s",
		target.Version, recommended, risk.Status, risk.Reason, risk.Message)
}

// notFound says why there is no such release, the most likely reason first.
func (o *upgradeOptions) notFound(cv *configv1.ClusterVersion, r *request, possible []updateTarget) error {
	option, article := "--to-image", "the"
	if o.toImage != "" {
		option = "--allow-explicit-upgrade"
	}
	if o.toLatest {
		article = "an"
	}
	next := fmt.Sprintf("%s to continue with %s update", option, article)
	retrieved := api.FindCondition(cv.Status.Conditions, configv1.RetrievedUpdates)
	switch {
	case retrieved != nil && retrieved.Status != configv1.ConditionTrue:
		return refusef("cannot refresh available updates:\n%s\n\nspecify %s.", because(retrieved.Reason, retrieved.Message), next)
	case len(possible) == 0 && o.allowNotRecommended:
		return refusef("no recommended or conditional updates, specify %s or wait for new updates to be available.", next)
	case len(possible) == 0 && o.toLatest:
		if retrieved == nil {
			r.warn("The cluster has not told yet whether it could ask for updates")
		}
		r.To = r.From
		r.Message = "info: Cluster is already at the latest available version " + cv.Status.Desired.Version
		return nil
	case len(possible) == 0:
		return refusef("no recommended updates, specify %s or wait for new updates to be available.", next)
	}
	versions := make([]string, 0, len(possible))
	for _, target := range possible {
		versions = append(versions, target.Version)
	}
	return refusef("the update is not one of the possible targets: %s. specify %s.", strings.Join(versions, ", "), next)
}

// guard refuses to ask something more of a cluster that is busy or unwell.
func (o *upgradeOptions) guard(cv *configv1.ClusterVersion, r *request) error {
	found := objections(cv)
	switch {
	case found == "":
		return nil
	case !o.allowWithWarnings:
		return refusef("%s\n\nIf you want to upgrade anyway, use --allow-upgrade-with-warnings.", found)
	}
	r.warn("--allow-upgrade-with-warnings is bypassing: %s", found)
	return nil
}

// objections are those of the client; the cluster itself has more.
func objections(cv *configv1.ClusterVersion) string {
	desired := cv.Status.Desired
	rows := []struct {
		condition configv1.ClusterStatusConditionType
		says      string
	}{
		{api.Invalid, "the cluster version object is invalid, you must correct the invalid state first"},
		{api.Failing, fmt.Sprintf("the cluster is experiencing an error reconciling %q", nameOf(desired.Version, desired.Image))},
		{configv1.OperatorProgressing, "the cluster is already upgrading"},
	}
	var found []string
	for _, row := range rows {
		if c := api.FindCondition(cv.Status.Conditions, row.condition); c != nil && c.Status == configv1.ConditionTrue {
			found = append(found, fmt.Sprintf("%s:\n\n%s", row.says, because(c.Reason, c.Message)))
		}
	}
	return strings.Join(found, "\n\n")
}

// planMultiArch is --to-multi-arch.
func (o *upgradeOptions) planMultiArch(cv *configv1.ClusterVersion, r *request) error {
	r.Action, r.unable = "update", "Unable to upgrade"
	r.From = endOfRelease(cv.Status.Desired)
	asked := cv.Spec.DesiredUpdate
	if asked != nil && asked.Architecture == configv1.ClusterVersionArchitectureMulti && (asked.Force || !o.force) {
		return &RefusedError{errors.New("info: Update to multi cluster architecture has already been requested")}
	}
	if cv.Status.Desired.Version == "" {
		return refusef("the cluster does not tell its version yet, and the architecture changes at the current version: try again when status.desired has one")
	}
	if err := o.guard(cv, r); err != nil {
		return err
	}
	if o.force {
		r.warn(forceWarning)
	}
	r.update(cv, configv1.Update{Architecture: configv1.ClusterVersionArchitectureMulti, Version: cv.Status.Desired.Version, Force: o.force})
	r.Message = "Requested update to multi cluster architecture"
	return nil
}

// planClear is --clear. What is left of the request are the risks that were accepted.
func (o *upgradeOptions) planClear(cv *configv1.ClusterVersion, r *request) error {
	r.Action, r.unable = "clear", "Unable to cancel current rollout"
	asked := cv.Spec.DesiredUpdate
	if asked == nil || asked.Version == "" && asked.Image == "" && asked.Architecture == "" && !asked.Force && asked.Mode == "" && len(asked.AcceptRisks) > 0 {
		r.Message = "info: No update in progress"
		return nil
	}
	r.From = endOfUpdate(*asked)
	if len(asked.AcceptRisks) > 0 {
		r.update(cv, configv1.Update{})
	} else {
		r.spec = cv.Spec.DeepCopy()
		r.spec.DesiredUpdate = nil
		r.specPatch = map[string]any{"desiredUpdate": nil}
	}
	r.stored = func(now *configv1.ClusterVersion) error {
		r.Message = "Cancelled requested upgrade to " + nameOf(asked.Version, asked.Image)
		if desired := now.Status.Desired; equivalent(*asked, desired) {
			r.Message = "Cleared the update field, still at " + nameOf(desired.Version, desired.Image)
		}
		return nil
	}
	return nil
}

// equivalent compares images, and versions where one of the two has no image.
func equivalent(update configv1.Update, desired configv1.Release) bool {
	if update.Image != "" && desired.Image != "" {
		return update.Image == desired.Image
	}
	return update.Version != "" && update.Version == desired.Version
}
