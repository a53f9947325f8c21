package upgrade

import (
	"context"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/registries"
	"github.com/cluster-version/cvo/pkg/cli/upgrade/diff"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/update/request"
)

type rollbackOptions struct {
	requestFlags
	request.Rollback

	registry registries.Flags
}

func newRollbackCmd(streams command.Streams) *cobra.Command {
	o := &rollbackOptions{}
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Roll back to the previous release, within one minor version",
		Long: `Request the previous release, within one minor version.

The target is the newest release in the history that has completed and is not the current one. A rollback never crosses minor
versions, because an older minor version may be unable to read data that a newer one has written. Bugs that the newer
release fixes come back. An update to a later release is often the better choice.

The command reads the previous release and refuses if the API server would reject any of its objects, as 'cvo upgrade diff'
shows them. For example, a CustomResourceDefinition must contain all versions in which the cluster stores objects. If the
release cannot be read, the command warns and sends the request. It does not check objects with --dry-run=client.

Exit codes: 0 requested; 1 failure; 2 invalid command line; 3 refused: there is no such release, an update is running, or
the API server would reject objects.`,
		Example: `  # Print the release that it would request
  cvo upgrade rollback --dry-run

  # Leave an update that is stuck
  cvo upgrade rollback --allow-upgrade-with-warnings`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			c, err := o.cluster.Open("cvo-upgrade")
			if err != nil {
				return err
			}
			o.Operator = cluster.OperatorRelease(cmd.Context(), c)
			return o.send(cmd.Context(), streams, c, o.planner(cmd.Context(), streams))
		},
	}
	cmd.Flags().BoolVar(&o.AllowWithWarnings, "allow-upgrade-with-warnings", false, "allow a rollback while an update is running, or to objects that the API server would reject")
	o.add(cmd)
	o.registry.Add(cmd.Flags())
	registries.LimitLookups(cmd.Flags())
	return cmd
}

// checkTimeout limits the time to read a release and to check its objects. A rollback is often urgent.
const checkTimeout = 2 * time.Minute

// planner returns a planner that refuses a release whose objects the API server would reject. A check takes seconds, so a plan after a
// conflict does not repeat it for the same release.
func (o *rollbackOptions) planner(ctx context.Context, streams command.Streams) request.Plan {
	rejected := map[string]string{}
	return func(cv *configv1.ClusterVersion, r *request.Request) error {
		if err := o.Plan(cv, r); err != nil || o.dryRun == request.DryRunClient {
			return err
		}
		why, ok := rejected[r.To.Image]
		if !ok {
			why = o.rejected(ctx, streams, r.To)
			rejected[r.To.Image] = why
		}
		switch {
		case why == "":
		case o.AllowWithWarnings:
			r.Warnings = append(r.Warnings, "--allow-upgrade-with-warnings is bypassing: "+why)
		default:
			return &request.Refusal{Err: fmt.Errorf("unable to rollback: %s%s", why, "\n\nIf you want to roll back anyway, use --allow-upgrade-with-warnings.")}
		}
		return nil
	}
}

// rejected describes the objects of a release that the API server would reject. It prints a warning if that is not known.
func (o *rollbackOptions) rejected(ctx context.Context, streams command.Streams, to request.End) string {
	unknown := func(reason string) string {
		streams.Warnf("cannot check whether the cluster accepts the objects of %s: %s", to.Version, reason)
		return ""
	}
	cfg, err := o.cluster.Config()
	if err != nil {
		return unknown(err.Error())
	}
	cfg.UserAgent = "cvo-upgrade-rollback"
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	report, err := diff.Completed(ctx, cfg, o.cluster, o.registry, to.Image)
	if err != nil {
		return unknown(err.Error())
	}
	if n := report.Totals.NotAsked; n > 0 {
		unknown(printable.Count(n, "manifest") + " could not be checked; 'cvo upgrade diff' lists them")
	}
	if report.Totals.Refused == 0 {
		return ""
	}
	return fmt.Sprintf("the cluster would reject %s of %s:\n\n%s", printable.Count(report.Totals.Refused, "manifest"), to.Version, preview.Refusals(report))
}
