package upgrade

import (
	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/update/request"
)

type rollbackOptions struct {
	requestFlags
	request.Rollback
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

Exit codes: 0 requested; 1 failure; 2 invalid command line; 3 refused: there is no such release, or an update is
running.`,
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
			return o.send(cmd.Context(), streams, c, o.Plan)
		},
	}
	cmd.Flags().BoolVar(&o.AllowWithWarnings, "allow-upgrade-with-warnings", false, "allow a rollback while an update is running")
	o.add(cmd)
	return cmd
}
