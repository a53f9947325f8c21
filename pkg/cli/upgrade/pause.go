package upgrade

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/update/request"
)

type pauseOptions struct {
	requestFlags
	request.Pause
}

func newPauseCmd(streams command.Streams) *cobra.Command {
	o := &pauseOptions{Pause: request.Pause{Paused: true}}
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Pause updates at the next runlevel boundary",
		Long: `Pause updates at the next runlevel boundary.

A running update finishes its current runlevel and starts no higher one. The operator keeps reconciling everything that it has
rolled out. An update requested during the pause stops before its first runlevel. A pause does not affect an install. The
command returns as soon as the API server has stored the pause. Pausing twice does not move the boundary.

The command sets spec.paused of the ReleaseRollout with the name of the ClusterVersion, and creates it if it is missing.

Exit codes: 0 paused, or paused already; 1 failure; 2 invalid command line.`,
		Example: `  # Pause the update, and record the reason
  cvo upgrade pause --reason "month-end closing until Friday"

  # Check whether the update has stopped
  kubectl get releaserollouts -o wide`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	cmd.Flags().StringVar(&o.Reason, "reason", "", "`text` that records the reason; default the reason of an earlier pause")
	o.add(cmd)
	return cmd
}

func newResumeCmd(streams command.Streams) *cobra.Command {
	o := &pauseOptions{}
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Resume paused updates",
		Long: `Resume updates that 'cvo upgrade pause' has paused.

The command returns as soon as the API server has stored the change. The update continues within a second.

Exit codes: 0 resumed, or not paused; 1 failure; 2 invalid command line.`,
		Example: `  # Resume
  cvo upgrade resume

  # Print the request without storing it
  cvo upgrade resume --dry-run`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	o.add(cmd)
	return cmd
}

func (o *pauseOptions) run(ctx context.Context, streams command.Streams) error {
	if err := o.validate(); err != nil {
		return err
	}
	if length := utf8.RuneCountInString(o.Reason); length > api.ReleaseRolloutReason {
		return command.Usagef("--reason has %d characters: use at most %d", length, api.ReleaseRolloutReason)
	}
	c, err := o.cluster.Open("cvo-upgrade-pause")
	if err != nil {
		return err
	}
	cv, err := o.cluster.ReadClusterVersion(ctx, c)
	if err != nil {
		return err
	}
	r, err := o.Send(ctx, c, cv, o.dryRun)
	if err != nil {
		return err
	}
	if err := o.print(streams, r); err != nil {
		return err
	}
	o.warnVacant(ctx, streams)
	return nil
}

func (o *pauseOptions) print(streams command.Streams, r *request.PauseResult) error {
	if o.output != "" {
		return printing.Structured(streams, o.output, r)
	}
	message := printable.Text(r.Message)
	switch {
	case r.DryRun == request.DryRunServer && r.Patch != nil:
		message += " (server dry run)"
	case r.DryRun != "" && r.Patch != nil:
		message += " (dry run)"
	}
	_, err := fmt.Fprintln(streams.Out, message)
	return err
}
