package request

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/precondition"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

const forceWarning = "--force overrides cluster verification of your supplied release image and waives any update precondition failures. " +
	"Only use this if you are testing unsigned release images or you are working around a known bug in the cluster-version operator " +
	"and you have verified the authenticity of the provided image yourself."

// target is a release to which the cluster could be updated.
type target struct {
	configv1.Release
	// risk is the reason why the release is not recommended; nil if it is.
	risk *metav1.Condition
}

// Update requests a release. Its flags disable guards.
type Update struct {
	// Version is a version and Image a pullspec. Latest requests the latest update. If none is set, there is no target.
	Version string
	Image   string
	Latest  bool
	// Tag is the pullspec with a tag that was resolved to Image; empty if Image was not resolved.
	Tag string
	// Preflight requests a preflight instead of an update.
	Preflight bool

	// Unserved reports that the operator was started without an update service. If the ClusterVersion names neither a service nor a channel
	// either, no list of updates can contain Image, and its signature alone decides.
	Unserved bool

	Force               bool
	AllowExplicit       bool
	AllowNotRecommended bool
	AllowWithWarnings   bool
}

// matches reports whether a release in the cluster's lists is the requested one. Equal digests match in any registry, because a mirror has
// the same content, including signatures.
func (o *Update) matches(listed configv1.Release) (bool, error) {
	switch {
	case o.Version != "":
		return listed.Version == o.Version, nil
	case o.Image == "":
		return false, nil
	case listed.Image == o.Image:
		return true, nil
	}
	if _, err := new(registry.Access).Reference(listed.Image); err != nil {
		return false, err
	}
	asked, err := release.ParseDigest(string(release.Pullspec(o.Image).Digest()))
	if err != nil {
		return false, nil //nolint:nilerr // a tag, which matches only itself
	}
	return asked == release.Pullspec(listed.Image).Digest(), nil
}

// Plan implements Plan for --to, --to-image and --to-latest.
func (o *Update) Plan(cv *configv1.ClusterVersion, r *Request) error {
	r.Action, r.failure = "update", "Unable to upgrade"
	desired := cv.Status.Desired
	r.From = endOfRelease(desired)
	if o.Tag != "" && o.Force {
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
	if o.Force {
		target.Force = true
		r.warn(forceWarning)
	}
	if o.Preflight {
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

// current handles a request for the cluster's current release, or the release of its running update. There is nothing to do unless the
// request adds force, or replaces a preflight during that update.
func (o *Update) current(cv *configv1.ClusterVersion, r *Request) (target *configv1.Update, done bool) {
	desired, asked := cv.Status.Desired, cv.Spec.DesiredUpdate
	switch {
	case o.Version != "" && o.Version == desired.Version:
		r.Message = "info: Cluster is " + o.relation(cv) + " version " + o.Version
	case o.Image != "" && o.Image == desired.Image:
		r.Message = "info: Cluster is " + o.relation(cv) + " " + o.Image
	default:
		return nil, false
	}
	running := len(cv.Status.History) > 0 && !completed(cv.Status.History[0])
	if preflight := reported.RequestedPreflight(cv); preflight != nil && running && !o.Preflight {
		r.update(cv, configv1.Update{Version: desired.Version, Image: desired.Image})
		r.Message = fmt.Sprintf("Requested the running update to %s again, instead of the preflight of %s",
			reported.Name(desired.Version, desired.Image), reported.Name(preflight.Version, preflight.Image))
		return nil, true
	}
	sought := asked != nil && (asked.Image == desired.Image || asked.Image == "" && asked.Version == desired.Version)
	if o.Force && (!sought || !asked.Force) {
		return &configv1.Update{Version: desired.Version, Image: desired.Image}, false
	}
	if asked != nil && !sought && asked.Version+asked.Image != "" {
		r.warn("spec.desiredUpdate still requests %s; withdraw it with --clear", reported.Name(asked.Version, asked.Image))
	}
	if history := cv.Status.History; !o.Preflight && (len(history) == 0 || !completed(history[0])) {
		r.warn("Its rollout is not complete: 'cvo upgrade status' shows the progress")
	}
	r.To = endOfRelease(desired)
	return nil, true
}

// relation relates the cluster to its current release: it is at the release, or on the way to it. Without --preflight, oc's text applies to
// both.
func (o *Update) relation(cv *configv1.ClusterVersion) string {
	switch history := cv.Status.History; {
	case !o.Preflight:
	case !slices.ContainsFunc(history, completed):
		return "still installing"
	case !completed(history[0]):
		return "already updating to"
	}
	return "already at"
}

func completed(h configv1.UpdateHistory) bool { return h.State == configv1.CompletedUpdate }

// choose returns the requested release among those that the cluster knows. It returns nil without an error if there is no newer release.
func (o *Update) choose(cv *configv1.ClusterVersion, r *Request) (*configv1.Update, error) {
	var possible []target
	for _, available := range cv.Status.AvailableUpdates {
		match, err := o.matches(available)
		if err != nil {
			r.warn("unable to calculate match for the update target in available updates: %v", err)
		}
		if match {
			return o.updateTo(available), nil
		}
		possible = append(possible, target{Release: available})
	}
	for _, conditional := range reported.NotRecommended(cv) {
		risk := meta.FindStatusCondition(conditional.Conditions, api.UpdateRecommended)
		match, err := o.matches(conditional.Release)
		if err != nil {
			r.warn("unable to calculate match for the update target in available conditional updates: %v", err)
		}
		switch {
		case match && !o.AllowNotRecommended:
			return nil, refuse("the update %s is not one of the recommended updates, but is available as a conditional update. "+
				"To accept the %s=%s risk and to proceed with update use --allow-not-recommended.\n%s",
				conditional.Release.Version, api.UpdateRecommended, risk.Status, reported.Because(risk.Reason, risk.Message))
		case match:
			r.takeRisk(conditional.Release, risk)
			return o.updateTo(conditional.Release), nil
		case o.AllowNotRecommended:
			possible = append(possible, target{Release: conditional.Release, risk: risk})
		}
	}
	sorted.By(possible, func(a, b target) int { return release.NewestFirst(a.Release, b.Release) })
	switch {
	case o.isUnadvised(cv):
		return &configv1.Update{Image: o.Image}, nil
	case o.Image != "" && o.AllowExplicit:
		r.warn("The requested upgrade image is not one of the available updates. You have used --allow-explicit-upgrade for the update to proceed anyway")
		return &configv1.Update{Image: o.Image}, nil
	case o.Latest && len(possible) > 0:
		latest := possible[0]
		if latest.risk != nil {
			r.takeRisk(latest.Release, latest.risk)
		}
		return o.updateTo(latest.Release), nil
	}
	return nil, o.notFound(cv, r, possible)
}

// isUnadvised reports whether the cluster verifies the requested image and no update service could advise against it.
func (o *Update) isUnadvised(cv *configv1.ClusterVersion) bool {
	return o.Unserved && cv.Spec.Upstream == "" && cv.Spec.Channel == "" && !o.Force && release.Pullspec(o.Image).HasDigest()
}

// updateTo returns the request for a listed release. It keeps the requested pullspec, because the cluster may be unable to reach another
// registry.
func (o *Update) updateTo(listed configv1.Release) *configv1.Update {
	return &configv1.Update{Version: listed.Version, Image: cmp.Or(o.Image, listed.Image)}
}

// notFound returns the most likely reason why the requested release was not found.
func (o *Update) notFound(cv *configv1.ClusterVersion, r *Request, possible []target) error {
	option, article := "--to-image", "the"
	if o.Image != "" {
		option = "--allow-explicit-upgrade"
	}
	if o.Latest {
		article = "an"
	}
	next := fmt.Sprintf("%s to continue with %s update", option, article)
	retrieved := api.FindCondition(cv.Status.Conditions, configv1.RetrievedUpdates)
	switch {
	case retrieved != nil && retrieved.Status != configv1.ConditionTrue:
		return refuse("cannot refresh available updates:\n%s\n\nspecify %s.", reported.Because(retrieved.Reason, retrieved.Message), next)
	case len(possible) == 0 && o.AllowNotRecommended:
		return refuse("no recommended or conditional updates, specify %s or wait for new updates to be available.", next)
	case len(possible) == 0 && o.Latest:
		if retrieved == nil {
			r.warn("The cluster has not reported yet whether it can retrieve updates")
		}
		r.To = r.From
		r.Message = "info: Cluster is already at the latest available version " + cv.Status.Desired.Version
		return nil
	case len(possible) == 0:
		return refuse("no recommended updates, specify %s or wait for new updates to be available.", next)
	}
	versions := make([]string, 0, len(possible))
	for _, target := range possible {
		versions = append(versions, target.Version)
	}
	return refuse("the update is not one of the possible targets: %s. specify %s.", strings.Join(versions, ", "), next)
}

// guard rejects a new request while the cluster is updating or failing.
func (o *Update) guard(cv *configv1.ClusterVersion, r *Request) error {
	found := objections(cv)
	switch {
	case found == "":
		return nil
	case !o.AllowWithWarnings:
		return refuse("%s\n\nIf you want to upgrade anyway, use --allow-upgrade-with-warnings.", found)
	}
	r.warn("--allow-upgrade-with-warnings is bypassing: %s", found)
	return nil
}

// objections returns this client's reasons not to update. The cluster itself checks more.
func objections(cv *configv1.ClusterVersion) string {
	desired := cv.Status.Desired
	rows := []struct {
		condition configv1.ClusterStatusConditionType
		says      string
	}{
		{api.Invalid, "the cluster version object is invalid, you must correct the invalid state first"},
		{api.Failing, fmt.Sprintf("the cluster is experiencing an error reconciling %q", reported.Name(desired.Version, desired.Image))},
		{configv1.OperatorProgressing, "the cluster is already upgrading"},
	}
	var found []string
	for _, row := range rows {
		c := api.FindCondition(cv.Status.Conditions, row.condition)
		// Without an accepted release, another request is the remedy that the operator names, unless an update is in progress.
		isRemedy := row.condition == api.Failing && c != nil && c.Reason == api.ReasonNoAcceptedRelease
		if c != nil && c.Status == configv1.ConditionTrue && !isRemedy {
			found = append(found, fmt.Sprintf("%s:\n\n%s", row.says, reported.Because(c.Reason, c.Message)))
		}
	}
	return strings.Join(found, "\n\n")
}

// PlanMultiArch implements Plan for --to-multi-arch.
func (o *Update) PlanMultiArch(cv *configv1.ClusterVersion, r *Request) error {
	r.Action, r.failure = "update", "Unable to upgrade"
	r.From = endOfRelease(cv.Status.Desired)
	asked := cv.Spec.DesiredUpdate
	if asked != nil && asked.Architecture == configv1.ClusterVersionArchitectureMulti && (asked.Force || !o.Force) {
		return &Refusal{errors.New("info: Update to multi cluster architecture has already been requested")}
	}
	if cv.Status.Desired.Version == "" {
		return refuse("the cluster has not reported its version yet, which a change of the architecture needs: retry once status.desired contains a version")
	}
	if err := o.guard(cv, r); err != nil {
		return err
	}
	if o.Force {
		r.warn(forceWarning)
	}
	r.update(cv, configv1.Update{Architecture: configv1.ClusterVersionArchitectureMulti, Version: cv.Status.Desired.Version, Force: o.Force})
	r.Message = "Requested update to multi cluster architecture"
	return nil
}

// Clear cancels the requested update. Accepted risks are kept.
type Clear struct {
	// Operator is the image of the release whose operator runs; empty if unknown. Without a request, the cluster is at that release.
	Operator string
}

// Plan implements Plan.
func (o Clear) Plan(cv *configv1.ClusterVersion, r *Request) error {
	r.Action, r.failure = "clear", "Unable to cancel current rollout"
	asked := cv.Spec.DesiredUpdate
	if asked == nil || asked.Version == "" && asked.Image == "" && asked.Architecture == "" && !asked.Force && asked.Mode == "" && len(asked.AcceptRisks) > 0 {
		r.Message = "info: No update in progress"
		if updating := updatingTo(cv); updating != "" {
			r.Message = fmt.Sprintf("info: No update is requested, but the update to %s is in progress. To go back, run '%s'.", updating, wayBack(cv))
		}
		return nil
	}
	r.From = endOfUpdate(*asked)
	if len(asked.AcceptRisks) > 0 {
		r.update(cv, configv1.Update{})
	} else {
		r.Spec = cv.Spec.DeepCopy()
		r.Spec.DesiredUpdate = nil
		r.SpecPatch = map[string]any{"desiredUpdate": nil}
	}
	r.checkStored = func(now *configv1.ClusterVersion) error {
		r.Message, r.startsRollout = o.effect(*asked, now)
		return nil
	}
	return nil
}

// effect describes the effect of clearing a request, and reports whether the operator has a release to roll out then. Without a request,
// the cluster is at the release of its operator.
func (o Clear) effect(asked configv1.Update, cv *configv1.ClusterVersion) (message string, rollsOut bool) {
	status, desired := cv.Status, cv.Status.Desired
	current := reported.Name(desired.Version, desired.Image)
	name := reported.Name(asked.Version, asked.Image)
	cancelled := "Update to " + name + " cancelled"
	isStarted := equivalent(asked, desired) || asked.Image+asked.Version == ""
	if asked.Mode == configv1.UpdateModePreflight {
		cancelled, isStarted = "Preflight of "+name+" cancelled", false
	}
	last := reported.LastCompleted(status.History)
	isUpdating := last > 0 // otherwise the release is complete, or it is being installed
	own := release.SameImage(o.Operator, desired.Image)
	switch {
	case isStarted && last < 0 && len(status.History) > 1:
		return "Request cleared, but the cluster continues to install " + current + ", because no release has completed to which it could go back.", false
	case isStarted && !isUpdating:
		return "Cleared the update field, still at " + current, false
	case !isUpdating, own && !isStarted:
		return cancelled + "; the cluster stays at " + current, false
	case own:
		return "Request cleared, but the cluster completes the update to " + current + ", because the operator of " + current +
			" already runs. To go back, run '" + wayBack(cv) + "'.", true
	}
	before := status.History[last]
	if o.Operator == "" {
		return cancelled + "; the cluster goes back to " + reported.Name(before.Version, before.Image) + ", unless the operator of " + current + " already runs", true
	}
	for _, entry := range status.History {
		if release.SameImage(o.Operator, entry.Image) {
			before = entry
			break
		}
	}
	return cancelled + "; going back to " + reported.Name(before.Version, before.Image), true
}

// equivalent compares the images, or the versions if one side has no image.
func equivalent(update configv1.Update, desired configv1.Release) bool {
	if update.Image != "" && desired.Image != "" {
		return update.Image == desired.Image
	}
	return update.Version != "" && update.Version == desired.Version
}

// wayBack returns the command that requests the last completed release while an update is in progress. That is an update if the cluster is on
// its way to an earlier version.
func wayBack(cv *configv1.ClusterVersion) string {
	current, err := semver.Parse(cv.Status.Desired.Version)
	if previous := precondition.PreviousCompleted(cv.Status); previous != nil && err == nil {
		if before, err := semver.Parse(previous.Version); err == nil && before.GTE(current) {
			return toImage(cv, previous.Image)
		}
	}
	return "cvo upgrade rollback --allow-upgrade-with-warnings"
}

// toImage returns the command that requests an image that the cluster does not offer.
func toImage(cv *configv1.ClusterVersion, image string) string {
	command := "cvo upgrade --to-image " + image + " --allow-explicit-upgrade"
	if objections(cv) != "" {
		command += " --allow-upgrade-with-warnings"
	}
	return command
}
