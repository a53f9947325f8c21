// Package nodes provides the command 'cvo nodes', which shows and steers the updates of nodes. Package view/nodes makes the values and texts,
// and package collect reads the cluster.
package nodes

import (
	"context"
	"errors"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/view/collect"
)

// New returns the command 'cvo nodes' with its subcommands. It is hidden, because no release contains the node stage yet.
func New(streams command.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Show and steer the updates of nodes",
		Long: `Show and steer the updates of nodes.

The node stage renders the MachineConfigs of each MachineConfigPool into one, and updates the pool's nodes to it, as many at
the same time as the pool's maxUnavailable and PodDisruptionBudgets allow.`,
		Hidden: true,
		Args:   command.UsageArgs(cobra.NoArgs),
		RunE:   func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPauseCmd(streams), newPlanCmd(streams), newResumeCmd(streams), newStatusCmd(streams))
	return cmd
}

// flags are the flags of every subcommand. pool is its argument.
type flags struct {
	cluster cluster.ContextFlags
	output  string
	pool    string
}

// add adds the flags, and the completion of the argument.
func (f *flags) add(cmd *cobra.Command) {
	f.cluster.Add(cmd.Flags())
	printing.AddFlag(cmd, &f.output)
	cmd.ValidArgsFunction = f.completePools
}

// read sets the pool from the arguments and checks the output format.
func (f *flags) read(args []string) error {
	if len(args) > 0 {
		f.pool = args[0]
	}
	return printing.Check(&f.output)
}

// open returns a client. agent is the user agent, which identifies the command to the API server.
func (f *flags) open(agent string) (client.Client, error) {
	cfg, err := f.cluster.Config()
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = agent
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{mcfgv1.Install, operatorv1.Install, corev1.AddToScheme, policyv1.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return c, nil
}

// explain adds the remedy to the error of a cluster without the node stage.
func (f *flags) explain(ctx context.Context, err error) error {
	if !errors.Is(err, collect.ErrAbsent) {
		return err
	}
	version := cluster.VersionFlags{ContextFlags: f.cluster, Name: api.ClusterVersionName}
	return version.CheckVersion(ctx, "cvo-nodes",
		fmt.Errorf("%w, so it has no node stage: update to a release that contains the stage, or select another cluster with --context", err))
}

// completePools offers the names of pools, or nothing if they cannot be read.
func (f *flags) completePools(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, none
	}
	ctx, cancel := cluster.CompletionContext(cmd)
	defer cancel()
	c, err := f.open("cvo-completion")
	if err != nil {
		return nil, none
	}
	var pools mcfgv1.MachineConfigPoolList
	if err := c.List(ctx, &pools); err != nil {
		return nil, none
	}
	var names []string
	for i := range pools.Items {
		names = append(names, pools.Items[i].Name)
	}
	return names, none
}
