package cli

import (
	"slices"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/precondition"
	"github.com/cluster-version/cvo/pkg/release"
)

// rollbackCheck is the operator's own check of a way back.
const rollbackCheck = "ClusterVersionRollback"

type upgradeRollbackOptions struct {
	requestFlags
	allowWithWarnings bool
}

func newUpgradeRollbackCmd(streams Streams) *cobra.Command {
	o := &upgradeRollbackOptions{}
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Ask for the release that the cluster came from, within one minor version",
		Long: `Ask for the release that the cluster came from, within one minor version.

The way back is only to the newest entry of the history that is another release, and not across minor versions: what a
newer minor version has written, an older one may not read. The mistakes that the newer release repairs come back. Often
the better way is forward.

Exit codes: 0 asked for; 1 something went wrong; 2 the command line cannot be understood; 3 refused: there is no such way,
or an update is under way.`,
		Example: `  # Where would it go?
  cvo upgrade rollback --dry-run

  # Back, out of an update that does not get on
  cvo upgrade rollback --allow-upgrade-with-warnings`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), streams, o.plan)
		},
	}
	cmd.Flags().BoolVar(&o.allowWithWarnings, "allow-upgrade-with-warnings", false, "also while the cluster is being updated")
	o.add(cmd)
	return cmd
}

func (o *upgradeRollbackOptions) plan(cv *configv1.ClusterVersion, r *request) error {
	r.Action, r.unable = "rollback", "Unable to rollback"
	desired := cv.Status.Desired
	r.From = endOfRelease(desired)
	current, err := semver.Parse(desired.Version)
	if err != nil {
		return refusef("invalid ClusterVersion status.desired.version %q: %w", desired.Version, err)
	}
	i := slices.IndexFunc(cv.Status.History, func(e configv1.UpdateHistory) bool {
		return e.Version != desired.Version || e.Image != desired.Image
	})
	if i < 0 {
		return refusef("no previous version found in ClusterVersion's status.history besides the current %s (%s)", desired.Version, desired.Image)
	}
	previous := cv.Status.History[i]
	version, err := semver.Parse(previous.Version)
	switch {
	case err != nil:
		return refusef("previous version %q invalid SemVer: %w", previous.Version, err)
	case version.GTE(current):
		return refusef("previous version %s (%s) is greater than or equal to current version %s (%s).  "+
			"Use 'cvo upgrade --to-image' to update, and not this rollback command", previous.Version, previous.Image, desired.Version, desired.Image)
	}
	if err := operatorAllowsRollback(cv, previous.Version); err != nil {
		return err
	}
	if err := o.guard(cv, r); err != nil {
		return err
	}
	if previous.State != configv1.CompletedUpdate {
		r.warn("The cluster never got to the end of the update to %s", previous.Version)
	}
	r.update(cv, configv1.Update{Version: previous.Version, Image: previous.Image})
	r.Message = "Requested rollback from " + desired.Version + " to " + previous.Version
	return nil
}

// operatorAllowsRollback asks beforehand what the operator would ask.
func operatorAllowsRollback(cv *configv1.ClusterVersion, version string) error {
	checks := slices.DeleteFunc(precondition.All(), func(c precondition.Check) bool { return c.Name != rollbackCheck })
	for _, objection := range precondition.Blocking(precondition.Run(checks, precondition.Input{
		ClusterVersion: cv, Target: release.Release{Version: version},
	})) {
		return refusef("%s: %s", objection.Reason, objection.Message)
	}
	return nil
}

// guard is for a cluster that is being updated; one that is not well may need the way back.
func (o *upgradeRollbackOptions) guard(cv *configv1.ClusterVersion, r *request) error {
	c := api.FindCondition(cv.Status.Conditions, configv1.OperatorProgressing)
	switch {
	case c != nil && c.Status == configv1.ConditionFalse:
		return nil
	case c == nil && !o.allowWithWarnings:
		return refusef("no current %s info, see `oc describe clusterversion` for more details; to go back anyway, use --allow-upgrade-with-warnings", configv1.OperatorProgressing)
	case c == nil:
		r.warn("--allow-upgrade-with-warnings is bypassing: no current %s info", configv1.OperatorProgressing)
	case !o.allowWithWarnings:
		return refusef("unable to rollback while an update is %s=%s: %s: %s.\n\nIf you want to go back anyway, use --allow-upgrade-with-warnings.", c.Type, c.Status, c.Reason, c.Message)
	default:
		r.warn("--allow-upgrade-with-warnings is bypassing: %s=%s: %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return nil
}
