package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/insight"
)

type upgradeStatusOptions struct {
	upgradeSource
	details string
	watch   bool
	output  string
}

func newUpgradeStatusCmd(streams Streams) *cobra.Command {
	o := &upgradeStatusOptions{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Tell how the update goes: control plane, nodes, and what needs attention",
		Long: `Tell how the update goes: control plane, nodes, and what needs attention.

It reads the ClusterVersion, ClusterOperators, MachineConfigPools, Nodes, the metadata of MachineConfigs, and the alerts
that fire, and changes nothing. The text is that of 'oc adm upgrade status'. What cannot be read is told as a warning and
in its place; the rest is shown.

'cvo status' tells what the version operator itself is doing, manifest by manifest.

With --watch it reads again every few seconds until it is interrupted: a terminal shows the text as it is now, anything
else gets a line for each change, or an object for each with -o json or yaml.

The exit code is 0 whatever the state of the update is, 4 if something could not be read.`,
		Example: `  # How does the update go?
  cvo upgrade status

  # With all nodes, all operators that update, and what to do about what needs attention
  cvo upgrade status --details=all

  # Follow it
  cvo upgrade status --watch

  # Of a cluster that is somewhere else
  cvo upgrade status --from-dir must-gather

  # Is it stalled? For a script
  cvo upgrade status -o json | jq -e '.controlPlane.assessment == "Stalled"'`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.upgradeSource.add(f)
	f.StringVar(&o.details, "details", "none", "what to print in full: "+strings.Join(upgradeStatusDetails(), ", "))
	f.BoolVarP(&o.watch, "watch", "w", false, "follow the update until interrupted")
	addOutput(cmd, &o.output)
	_ = cmd.RegisterFlagCompletionFunc("details", cobra.FixedCompletions(upgradeStatusDetails(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func upgradeStatusDetails() []string { return []string{"none", "all", "nodes", "health", "operators"} }

func (o *upgradeStatusOptions) validate() error {
	if !slices.Contains(upgradeStatusDetails(), o.details) {
		return &UsageError{fmt.Errorf("--details=%q: want one of %s", o.details, strings.Join(upgradeStatusDetails(), ", "))}
	}
	if o.watch && o.offline() {
		return &UsageError{errors.New("--watch follows a cluster, and a dump does not change: give one or the other")}
	}
	return errors.Join(o.upgradeSource.validate(), checkOutput(&o.output))
}

func (o *upgradeStatusOptions) run(ctx context.Context, streams Streams) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.watch {
		return o.follow(ctx, streams)
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
		fmt.Fprintf(streams.Err, "warning: %s: %s\n", missing.Section, oneLine(missing.Reason))
	}
	if len(failed) > 0 {
		return &PartialError{errors.New("not all could be read: see the warnings")}
	}
	return nil
}

func (o *upgradeStatusOptions) assess(ctx context.Context) (*insight.Assessment, error) {
	switch {
	case o.dump != "":
		in, err := readDump(o.dump)
		if err != nil {
			return nil, err
		}
		return insight.Assess(in)
	case o.fromDir != "":
		in, err := readMustGather(o.fromDir)
		if err != nil {
			return nil, err
		}
		return insight.Assess(in)
	}
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "cvo-upgrade-status"
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	return assessCluster(ctx, cfg, o.name)
}

func assessCluster(ctx context.Context, cfg *rest.Config, name string) (*insight.Assessment, error) {
	reader, err := newUpdateReader(cfg, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	in, err := reader.read(ctx, name)
	if err != nil {
		return nil, err
	}
	assessment, err := insight.Assess(in)
	if err != nil || !assessment.Updating {
		return assessment, err
	}
	// Alerts count from the update's start; without an update nobody has to be able to read them.
	in.Alerts, err = readAlerts(ctx, cfg)
	if err != nil {
		in.Missing = append(in.Missing, insight.Missing{Section: insight.SectionHealth, Reason: fmt.Sprintf("alerts: %v", err)})
	}
	return insight.Assess(in)
}

func (o *upgradeStatusOptions) print(streams Streams, assessment *insight.Assessment) error {
	if o.output != "" {
		return printStructured(streams, o.output, assessment)
	}
	if err := o.printText(streams.Out, func(w io.Writer) error { return assessment.Text(w, o.parts()) }); err != nil {
		return err
	}
	if !assessment.Updating && o.dump == "" {
		// The text has no place for it, and it should not go unnoticed that a cluster at rest is not well.
		for _, found := range assessment.Insights {
			if found.Level > insight.Info {
				fmt.Fprintf(streams.Err, "warning: %s\n", oneLine(found.Summary))
			}
		}
	}
	return nil
}

// parts are what is printed in full.
func (o *upgradeStatusOptions) parts() insight.Details {
	asked := func(part string) bool { return o.details == "all" || o.details == part }
	return insight.Details{Nodes: asked("nodes"), Health: asked("health"), Operators: asked("operators")}
}
