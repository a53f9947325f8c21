package request

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/precondition"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// rollbackCheck is the name of the operator's own rollback check.
const rollbackCheck = "ClusterVersionRollback"

// Rollback requests the newest release before the current one that has completed.
type Rollback struct {
	AllowWithWarnings bool
	// Operator is the image of the release whose operator runs; empty if unknown.
	Operator string
}

// Plan implements Plan.
func (o *Rollback) Plan(cv *configv1.ClusterVersion, r *Request) error {
	r.Action, r.failure = "rollback", "Unable to rollback"
	desired := cv.Status.Desired
	r.From = endOfRelease(desired)
	current, err := release.ParseVersion(desired.Version)
	if err != nil {
		return refuse("invalid ClusterVersion status.desired.version %q: %w", desired.Version, err)
	}
	previous := precondition.PreviousCompleted(cv.Status)
	if previous == nil {
		return refuse("no previous completed version found in ClusterVersion's status.history besides the current %s (%s)%s",
			desired.Version, desired.Image, alternative(cv, current))
	}
	version, err := release.ParseVersion(previous.Version)
	switch {
	case err != nil:
		return refuse("previous version %q invalid SemVer: %w", previous.Version, err)
	case version.GTE(current):
		return refuse("previous version %s (%s) is greater than or equal to current version %s (%s).  "+
			"Use 'cvo upgrade --to-image' to update, and not this rollback command", previous.Version, previous.Image, desired.Version, desired.Image)
	}
	if err := operatorAllowsRollback(cv, previous.Version); err != nil {
		return refuse("%w%s%s", err, alternative(cv, current), o.withdrawal(cv))
	}
	if err := o.guard(cv, r); err != nil {
		return err
	}
	r.update(cv, configv1.Update{Version: previous.Version, Image: previous.Image})
	r.Message = "Requested rollback from " + desired.Version + " to " + previous.Version
	return nil
}

// alternative returns the advice to request the previous release, if the operator allows a rollback to it although it has not completed;
// empty for no advice.
func alternative(cv *configv1.ClusterVersion, current semver.Version) string {
	previous := precondition.Previous(cv.Status)
	if previous == nil || previous.State == configv1.CompletedUpdate || !reported.HasCompleted(cv.Status.History) || operatorAllowsRollback(cv, previous.Version) != nil {
		return "" // an install has no release to go back to
	}
	if version, err := release.ParseVersion(previous.Version); err != nil || version.GTE(current) {
		return ""
	}
	return fmt.Sprintf("\n\nThe cluster allows a rollback to %s, which it has not completed: %s", previous.Version, toImage(cv, previous.Image))
}

// withdrawal returns the advice to cancel the running update, if the earlier operator still runs and so returns to its release; empty for
// no advice.
func (o *Rollback) withdrawal(cv *configv1.ClusterVersion) string {
	desired := cv.Status.Desired
	if updatingTo(cv) == "" || reported.Requested(cv) == nil || o.Operator == "" || release.SameImage(o.Operator, desired.Image) {
		return ""
	}
	return fmt.Sprintf("\n\nThe operator of %s does not run yet, so you can cancel the update: cvo upgrade --clear", desired.Version)
}

// operatorAllowsRollback runs the operator's check before the request is sent.
func operatorAllowsRollback(cv *configv1.ClusterVersion, version string) error {
	checks := slices.DeleteFunc(precondition.All(), func(c precondition.Check) bool { return c.Name != rollbackCheck })
	for _, objection := range precondition.Blocking(precondition.Run(checks, precondition.Input{
		ClusterVersion: cv, Target: release.Release{Version: version},
	})) {
		return refuse("%s: %s", objection.Reason, objection.Message)
	}
	return nil
}

// guard rejects a rollback during an update. It does not reject a failing cluster, which may need the rollback.
func (o *Rollback) guard(cv *configv1.ClusterVersion, r *Request) error {
	c := api.FindCondition(cv.Status.Conditions, configv1.OperatorProgressing)
	switch {
	case c != nil && c.Status == configv1.ConditionFalse:
		return nil
	case c == nil && !o.AllowWithWarnings:
		return refuse("the ClusterVersion has no condition %s, so it is unknown whether an update is running: see 'kubectl describe clusterversion'; to roll back anyway, use --allow-upgrade-with-warnings", configv1.OperatorProgressing)
	case c == nil:
		r.warn("--allow-upgrade-with-warnings is bypassing: no current %s info", configv1.OperatorProgressing)
	case !o.AllowWithWarnings:
		return refuse("unable to rollback while an update is %s.\n\nIf you want to roll back anyway, use --allow-upgrade-with-warnings.", describe(c))
	default:
		r.warn("--allow-upgrade-with-warnings is bypassing: %s", describe(c))
	}
	return nil
}

// describe returns a condition's status, reason and message. Progressing often has no reason.
func describe(c *configv1.ClusterOperatorStatusCondition) string {
	parts := []string{fmt.Sprintf("%s=%s", c.Type, c.Status), c.Reason, c.Message}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}
