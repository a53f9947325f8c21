// Package report provides the subcommands of 'cvo upgrade' that only read: history, recommend and status. They read a cluster, a dump or a
// must-gather. Packages insight and recommend assess the data.
package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/watching"
	"github.com/cluster-version/cvo/pkg/view/collect"
	"github.com/cluster-version/cvo/pkg/view/insight"
)

type statusOptions struct {
	source
	details string
	watch   bool
	output  string
}

// NewStatus returns the command 'cvo upgrade status'.
func NewStatus(streams command.Streams) *cobra.Command {
	o := &statusOptions{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the update's progress: control plane, nodes, and problems",
		Long: `Show the update's progress: control plane, nodes, and problems that need attention.

The command reads the ClusterVersion, ClusterOperators, MachineConfigPools, Nodes, the metadata of MachineConfigs, and
firing alerts. It changes nothing. The text output matches 'oc adm upgrade status', with two differences. An update is
completed only when the ClusterVersion reports it. The update health also has a rejected release, a pause, a deletion
of the ClusterVersion, and an operator that does not run. While no update is running, problems go to stderr. If the
command cannot read something, it prints a warning, marks the gap, and shows the rest.

'cvo status' shows what the version operator itself is doing, manifest by manifest.

With --watch the command reads the cluster again every few seconds until it is interrupted. A terminal shows the current text. Other
output gets a line for each change, or an object for each change with -o json or yaml.

The exit code is 0 for every state of the update, and 4 if the command could not read something.`,
		Example: `  # Show the progress
  cvo upgrade status

  # Include all nodes, all updating operators, and advice for each problem
  cvo upgrade status --details=all

  # Follow the update
  cvo upgrade status --watch

  # Read a must-gather dump of another cluster
  cvo upgrade status --from-dir must-gather

  # Check whether the update is stalled, for a script
  cvo upgrade status -o json | jq -e '.controlPlane.assessment == "Stalled"'`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.source.add(f)
	f.StringVar(&o.details, "details", "none", "details to print: "+strings.Join(upgradeStatusDetails(), ", "))
	f.BoolVarP(&o.watch, "watch", "w", false, "follow the update until interrupted")
	printing.AddFlag(cmd, &o.output)
	_ = cmd.RegisterFlagCompletionFunc("details", cobra.FixedCompletions(upgradeStatusDetails(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func upgradeStatusDetails() []string { return []string{"none", "all", "nodes", "health", "operators"} }

func (o *statusOptions) validate() error {
	if !slices.Contains(upgradeStatusDetails(), o.details) {
		return &command.UsageError{Err: fmt.Errorf("--details=%q: use one of %s", o.details, strings.Join(upgradeStatusDetails(), ", "))}
	}
	if o.watch && o.offline() {
		return &command.UsageError{Err: errors.New("--watch requires a cluster, because a dump does not change: omit --watch or the dump")}
	}
	return errors.Join(o.source.validate(), printing.Check(&o.output))
}

func (o *statusOptions) run(ctx context.Context, streams command.Streams) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.watch {
		return watching.Follow(ctx, streams, o.assess, o.changes(streams, terminal.IsTerminal(streams.Out)))
	}
	assessment, err := o.assess(ctx)
	if err != nil {
		return err
	}
	if err := o.print(streams, assessment); err != nil {
		return err
	}
	failed := slices.DeleteFunc(slices.Clone(assessment.Missing), func(m insight.Missing) bool { return m.Absent })
	for _, missing := range failed {
		streams.Warnf("%s: %s", missing.Section, missing.Reason)
	}
	if len(failed) > 0 {
		return &command.PartialError{Err: errors.New("incomplete: see the warnings")}
	}
	return nil
}

func (o *statusOptions) assess(ctx context.Context) (*insight.Assessment, error) {
	switch {
	case o.dump != "":
		in, err := collect.Dump(o.dump)
		if err != nil {
			return nil, err
		}
		return insight.Assess(in)
	case o.fromDir != "":
		in, err := collect.MustGather(o.fromDir)
		if err != nil {
			return nil, err
		}
		return insight.Assess(in)
	}
	cfg, err := o.ConfigFor("cvo-upgrade-status")
	if err != nil {
		return nil, err
	}
	assessment, err := collect.Assess(ctx, cfg, cluster.OperatorDeployment().Namespace, o.Name)
	if errors.Is(err, collect.ErrNoClusterVersion) {
		return nil, o.NoVersion()
	}
	return assessment, err
}

func (o *statusOptions) print(streams command.Streams, assessment *insight.Assessment) error {
	if o.output != "" {
		return printing.Structured(streams, o.output, assessment)
	}
	if err := o.printText(streams.Out, func(w io.Writer) error { return assessment.Text(w, o.parts()) }); err != nil {
		return err
	}
	if !assessment.Updating && o.dump == "" {
		// The text has no place for problems of a cluster that is not updating, but the user should notice them.
		for _, found := range assessment.Insights {
			if found.Level > insight.Info {
				streams.Warnf("%s: %s", found.Summary, found.Description)
			}
		}
	}
	return nil
}

// parts returns the sections to print in full.
func (o *statusOptions) parts() insight.Details {
	asked := func(part string) bool { return o.details == "all" || o.details == part }
	return insight.Details{Nodes: asked("nodes"), Health: asked("health"), Operators: asked("operators")}
}
