// Package nodes provides the command 'cvo nodes', which shows and steers the updates of nodes. Package view/nodes makes the values and texts,
// and package collect reads the cluster.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/update/request"
	"github.com/cluster-version/cvo/pkg/view/collect"
	"github.com/cluster-version/cvo/pkg/view/nodes"
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
	cmd.AddCommand(newPauseCmd(streams), newPlanCmd(streams), newReleaseCmd(streams), newResumeCmd(streams), newRetryCmd(streams), newStatusCmd(streams))
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
	cmd.ValidArgsFunction = f.complete(poolNames)
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
	return f.cluster.Connect(agent, mcfgv1.Install, operatorv1.Install, corev1.AddToScheme, policyv1.AddToScheme, api.AddToScheme)
}

// state returns a client and the current state of the nodes.
func (f *flags) state(ctx context.Context, agent string) (client.Client, nodes.Cluster, error) {
	c, err := f.open(agent)
	if err != nil {
		return nil, nodes.Cluster{}, err
	}
	state, err := collect.Nodes(ctx, c, clock.RealClock{}.Now())
	return c, state, f.explain(ctx, err)
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

// complete returns a completion of the only argument with names from the cluster, or with nothing if they cannot be read.
func (f *flags) complete(names func(context.Context, client.Reader) ([]string, error)) cobra.CompletionFunc {
	const none = cobra.ShellCompDirectiveNoFileComp
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, none
		}
		ctx, cancel := cluster.CompletionContext(cmd)
		defer cancel()
		c, err := f.open("cvo-completion")
		if err != nil {
			return nil, none
		}
		offered, err := names(ctx, c)
		if err != nil {
			return nil, none
		}
		return offered, none
	}
}

// poolNames returns the names of all pools.
func poolNames(ctx context.Context, c client.Reader) (names []string, err error) {
	var pools mcfgv1.MachineConfigPoolList
	err = c.List(ctx, &pools)
	for i := range pools.Items {
		names = append(names, pools.Items[i].Name)
	}
	return names, err
}

// dryRun is the kind of a dry run.
type dryRun string

// add adds flag --dry-run to a command that sends a request.
func (d *dryRun) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar((*string)(d), "dry-run", request.DryRunNone, "none; server: the API server checks the request and stores nothing; client: send nothing")
	f.Lookup("dry-run").NoOptDefVal = request.DryRunServer
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(request.DryRuns(), cobra.ShellCompDirectiveNoFileComp))
}

func (d dryRun) check() error {
	if !slices.Contains(request.DryRuns(), string(d)) {
		return command.Usagef("--dry-run=%s: use none, server or client", d)
	}
	return nil
}

// kind is empty for a real request.
func (d dryRun) kind() string {
	if d == request.DryRunNone {
		return ""
	}
	return string(d)
}

// patch sends a merge patch, unless the dry run is the client's.
func (d dryRun) patch(ctx context.Context, c client.Client, o client.Object, patch []byte) error {
	var options []client.PatchOption
	switch d {
	case request.DryRunClient:
		return nil
	case request.DryRunServer:
		options = append(options, client.DryRunAll)
	}
	return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), options...)
}

// print prints the message of a request.
func (d dryRun) print(out io.Writer, message string, isSent bool) error {
	message = printable.Text(message)
	switch {
	case !isSent:
	case d == request.DryRunServer:
		message += " (server dry run)"
	case d == request.DryRunClient:
		message += " (dry run)"
	}
	_, err := fmt.Fprintln(out, message)
	return err
}
