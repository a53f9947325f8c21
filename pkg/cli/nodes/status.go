package nodes

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/watching"
	"github.com/cluster-version/cvo/pkg/view/collect"
	"github.com/cluster-version/cvo/pkg/view/nodes"
)

type statusOptions struct {
	flags
	watch bool
}

func newStatusCmd(streams command.Streams) *cobra.Command {
	o := &statusOptions{}
	cmd := &cobra.Command{
		Use:   "status [POOL]",
		Short: "Show the pools, and the nodes that update, wait or failed",
		Long: `Show the pools, and the nodes that update, wait or failed.

The table counts the nodes of each pool: done nodes run the pool's config, updating nodes have started, degraded nodes could
not apply a config, and unavailable nodes use the slots of maxUnavailable. A node can be counted more than once. Below, the
command lists the nodes that are not done, at most 20 for each pool, with the reason why they wait or what blocks their drain,
then the nodes in no pool and those without a daemon. -o json and yaml list all nodes. If nodes wait although slots are free,
the command shows the reason of the first one, as the controller reports it. 'cvo nodes plan' shows the reason of each node.

The command lists MachineConfigPools and Nodes, and nothing else. It changes nothing.

With --watch it lists them again every few seconds until it is interrupted. A terminal shows the current text. Other output
gets a line for each change, or an object for each change with -o json or yaml.

Exit codes: 0 for every state of the nodes; 1 failure; 2 invalid command line.`,
		Example: `  # Show all pools
  cvo nodes status

  # Follow the nodes of one pool
  cvo nodes status worker --watch

  # List the nodes with a blocked drain, for a script
  cvo nodes status -o json | jq '.pools[].nodes[] | select(.phase == "Draining" and .why)'`,
		Args: command.UsageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.read(args); err != nil {
				return err
			}
			return o.run(cmd.Context(), streams)
		},
	}
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "follow the updates until interrupted")
	o.add(cmd)
	return cmd
}

func (o *statusOptions) run(ctx context.Context, streams command.Streams) error {
	c, err := o.open("cvo-nodes-status")
	if err != nil {
		return err
	}
	read := func(ctx context.Context) (*nodes.Status, error) { return o.status(ctx, c) }
	if o.watch {
		return watching.Follow(ctx, streams, read, o.changes(streams, terminal.IsTerminal(streams.Out)))
	}
	s, err := read(ctx)
	switch {
	case err != nil:
		return err
	case o.output != "":
		return printing.Structured(streams, o.output, s)
	}
	return s.Text(streams.Out)
}

func (o *statusOptions) status(ctx context.Context, c client.Reader) (*nodes.Status, error) {
	state, err := collect.Nodes(ctx, c, clock.RealClock{}.Now())
	err = o.explain(ctx, err)
	if noStage := errors.Is(err, collect.ErrAbsent) && o.pool == ""; err != nil && !noStage { // a platform without the node stage has no pools
		return nil, err
	}
	return nodes.NewStatus(state, o.pool)
}

// changes returns a function that prints a status if it differs from the one before. On a terminal it prints all of it, otherwise a line, or an
// object for scripts.
func (o *statusOptions) changes(streams command.Streams, interactive bool) func(*nodes.Status) error {
	changes := watching.Changes{Out: streams.Out, Output: o.output, Interactive: interactive}
	return func(s *nodes.Status) error {
		still := *s
		still.At = time.Time{}
		switch {
		case o.output != "":
			picture, err := watching.Structured(o.output, s)
			if err != nil {
				return err
			}
			essence, err := watching.Structured(o.output, &still)
			if err != nil {
				return err
			}
			return changes.Print(s.At, picture, essence)
		case interactive:
			var out bytes.Buffer
			if err := s.Text(&out); err != nil {
				return err
			}
			return changes.Print(s.At, out.String(), out.String())
		}
		line := s.Summary() + "\n"
		return changes.Print(s.At, line, line)
	}
}
