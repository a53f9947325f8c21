package nodes

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/view/nodes"
)

type pauseOptions struct {
	flags
	// paused is the requested state.
	paused bool
	dryRun dryRun
}

func newPauseCmd(streams command.Streams) *cobra.Command {
	o := &pauseOptions{paused: true}
	cmd := &cobra.Command{
		Use:   "pause POOL",
		Short: "Start no updates of a pool's nodes until the pool is resumed",
		Long: `Start no updates of a pool's nodes until the pool is resumed.

A node that has started finishes. The controller still renders the pool's MachineConfigs, so after the pause the nodes are
updated to the newest config at once. The command sets spec.paused of the MachineConfigPool, and reports which config the pause
defers, the MachineConfigs that it is rendered from, and the number of nodes. It lists MachineConfigPools and Nodes.

Exit codes: 0 paused, or paused already; 1 failure; 2 invalid command line.`,
		Example: `  # Pause the workers
  cvo nodes pause worker

  # Show what a pause defers, without pausing
  cvo nodes pause worker --dry-run`,
	}
	return o.add(cmd, streams)
}

func newResumeCmd(streams command.Streams) *cobra.Command {
	o := &pauseOptions{}
	cmd := &cobra.Command{
		Use:   "resume POOL",
		Short: "Resume the updates of a paused pool's nodes",
		Long: `Resume the updates of a paused pool's nodes.

The command clears spec.paused of the MachineConfigPool, and reports the config and the number of nodes whose update starts. It
lists MachineConfigPools and Nodes. 'cvo nodes plan POOL' shows beforehand which nodes would start, and what that disrupts.

Exit codes: 0 resumed, or not paused; 1 failure; 2 invalid command line.`,
		Example: `  # Show the effect, then resume the workers
  cvo nodes plan worker
  cvo nodes resume worker`,
	}
	return o.add(cmd, streams)
}

// add adds what pause and resume have in common, and returns the command.
func (o *pauseOptions) add(cmd *cobra.Command, streams command.Streams) *cobra.Command {
	cmd.Args = command.UsageArgs(cobra.ExactArgs(1))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.read(args); err != nil {
			return err
		}
		if err := o.dryRun.check(); err != nil {
			return err
		}
		return o.run(cmd.Context(), streams)
	}
	o.dryRun.add(cmd)
	o.flags.add(cmd)
	return cmd
}

func (o *pauseOptions) run(ctx context.Context, streams command.Streams) error {
	c, cluster, err := o.state(ctx, "cvo-nodes-pause")
	if err != nil {
		return err
	}
	result, err := nodes.NewPause(cluster, o.pool, o.paused)
	if err != nil {
		return err
	}
	result.DryRun = o.dryRun.kind()
	if result.Changed {
		p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: o.pool}}
		if err := o.dryRun.patch(ctx, c, p, fmt.Appendf(nil, `{"spec":{"paused":%t}}`, o.paused)); err != nil {
			return fmt.Errorf("setting spec.paused of MachineConfigPool %s: %w", o.pool, err)
		}
	}
	if o.output != "" {
		return printing.Structured(streams, o.output, result)
	}
	return o.dryRun.print(streams.Out, result.Message, result.Changed)
}
