package nodes

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/node/pool"
	"github.com/cluster-version/cvo/pkg/view/nodes"
)

type retryOptions struct {
	flags
	node   string
	dryRun dryRun
}

func newRetryCmd(streams command.Streams) *cobra.Command {
	o := &retryOptions{}
	cmd := &cobra.Command{
		Use:   "retry NODE",
		Short: "Try a config again that failed on a node, or restore its content",
		Long: `Try a config again that failed on a node, or restore the content of the config on a node that differs from it.

A node that does not work with a config returns to the config before, serves with it and is degraded. It tries the failed config
again only after this command. Run it after you have removed the cause from the node; a cause in a MachineConfig is removed
there, which gives the node another config. If a config could not be applied at all, the node tries again by itself, after
delays of up to an hour, and this command ends the delay.

If a file of the config has changed on a node, the node is degraded until its content is restored. This command restores it as an
update would: with a drain and a reboot, unless a node disruption policy for the file spares them. If that fails, the node tries
again by itself. The drain begins once fewer nodes of the pool are unavailable than maxUnavailable, and in the zone than
maxUnavailablePerZone allow.

The command writes annotation ` + api.NodeRetryAnnotation + ` of the Node. Each run requests one attempt: if that fails, too,
run the command again. A node that failed kept its slot of maxUnavailable, so it is drained at once, also in a paused pool and outside the
windows of a NodeRolloutPolicy. The command lists MachineConfigPools and Nodes.

Exit codes: 0 requested; 1 failure, or the node is not degraded; 2 invalid command line.`,
		Example: `  # Show why a node is degraded, then try its config again
  cvo nodes status worker
  cvo nodes retry worker-2`,
		Args: command.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.read(nil); err != nil {
				return err
			}
			if err := o.dryRun.check(); err != nil {
				return err
			}
			o.node = args[0]
			return o.run(cmd.Context(), streams)
		},
	}
	o.dryRun.add(cmd)
	o.add(cmd)
	cmd.ValidArgsFunction = o.complete(degradedNodes)
	return cmd
}

func (o *retryOptions) run(ctx context.Context, streams command.Streams) error {
	c, cluster, err := o.state(ctx, "cvo-nodes-retry")
	if err != nil {
		return err
	}
	result, err := nodes.NewRetry(cluster, o.node)
	if err != nil {
		return err
	}
	result.DryRun = o.dryRun.kind()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{api.NodeRetryAnnotation: result.Request}}})
	if err != nil {
		return err
	}
	if err := o.dryRun.patch(ctx, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.node}}, patch); err != nil {
		return fmt.Errorf("writing annotation %s of node %s: %w", api.NodeRetryAnnotation, o.node, err)
	}
	if o.output != "" {
		return printing.Structured(streams, o.output, result)
	}
	return o.dryRun.print(streams.Out, result.Message, true)
}

// degradedNodes returns the names of all degraded nodes.
func degradedNodes(ctx context.Context, c client.Reader) (names []string, err error) {
	var list corev1.NodeList
	err = c.List(ctx, &list)
	for i := range list.Items {
		if pool.IsDegraded(&list.Items[i]) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, err
}
