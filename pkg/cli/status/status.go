// Package status provides the command 'cvo status'. It shows the rollout as a tree, once or continuously, and lists orphans and signatures.
// Package tree draws the tree.
package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/internal/inputfile"
	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/leader"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/clusterversion/archive"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/view/tree"
)

type options struct {
	cluster.VersionFlags
	namespace  string
	server     string
	serverCA   string
	component  string
	output     string
	watch      bool
	all        bool
	orphans    bool
	signatures bool
}

// pollInterval is the interval at which --watch queries the operator. Usually nothing has changed.
const pollInterval = time.Second

// New returns the command 'cvo status'.
func New(streams command.Streams) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "status [--watch]",
		Short: "Show the rollout as a tree of runlevels, components and manifests",
		Long: `Show the rollout as a tree of runlevels, components and manifests, as the version operator reports it. A finished
part takes one line. For each waiting or failed part, the tree shows since when and why.

The command finds the operator by its Lease: through the API server if a pod is the leader, else at ` + leader.LocalServer + `.
The operator's certificate must match the fingerprint in the Lease, or be signed by --server-ca. The command sends no
credentials before this check. You need ClusterRole cluster-version-operator-viewer.

If the command cannot reach the operator, it shows the ClusterVersion instead and returns exit code 4.`,
		Example: `  # Show the rollout
  cvo status

  # Follow it; without a terminal, print a line for each change
  cvo status --watch

  # Show all details of one component
  cvo status --component dns

  # List objects left over from earlier releases
  cvo status --orphans

  # List the signers of the current and earlier releases
  cvo status --signatures

  # List the waiting objects, for a script
  cvo status -o json | jq '.objects[] | select(.state == "waiting")'`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.VersionFlags.Add(f)
	f.StringVarP(&o.namespace, "namespace", "n", command.EnvOr("CVO_NAMESPACE", api.OperatorNamespace), "`namespace` of the operator and its Lease")
	f.StringVar(&o.server, "server", "", "`URL` of the operator's endpoint; default from its Lease")
	f.StringVar(&o.serverCA, "server-ca", "", "`file` with the CA that signed the endpoint's certificate; default the certificate's fingerprint in the Lease")
	f.BoolVarP(&o.watch, "watch", "w", false, "follow the rollout until interrupted")
	f.BoolVar(&o.all, "all", false, "show every manifest, including finished and excluded ones")
	f.BoolVar(&o.orphans, "orphans", false, "list objects of earlier releases that the current release no longer contains")
	f.BoolVar(&o.signatures, "signatures", false, "list the signers of the releases that the cluster accepted")
	f.StringVar(&o.component, "component", "", "show only this component, in full")
	f.StringVarP(&o.output, "output", "o", printing.FormatText, "`format`: text, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(printing.Formats(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *options) validate() error {
	switch {
	case !slices.Contains(printing.Formats(), o.output):
		return &command.UsageError{Err: fmt.Errorf("unknown output %q: use one of %s", o.output, strings.Join(printing.Formats(), ", "))}
	case o.signatures && (o.orphans || o.watch || o.all || o.component != "" || o.server != "" || o.serverCA != ""):
		return &command.UsageError{Err: errors.New("--signatures reads the cluster and needs no operator: omit --orphans, --watch, --all, --component, --server and --server-ca")}
	case o.orphans && (o.watch || o.all || o.component != "" || o.server != "" || o.serverCA != ""):
		return &command.UsageError{Err: errors.New("--orphans reads the cluster and needs no operator: omit --watch, --all, --component, --server and --server-ca")}
	case o.server != "" && !strings.HasPrefix(o.server, "https://"):
		return &command.UsageError{Err: fmt.Errorf("--server %q: use a URL such as %s", o.server, leader.LocalServer)}
	}
	return nil
}

func (o *options) run(ctx context.Context, streams command.Streams) error {
	if err := o.validate(); err != nil {
		return err
	}
	cfg, err := o.ConfigFor("cvo-status")
	if err != nil {
		return err
	}
	if o.orphans {
		chosen := orphanOptions{namespace: o.namespace, owner: o.Name, output: o.output}
		reader, err := cluster.OperatorReader(cfg)
		if err != nil {
			return err
		}
		cv, err := o.ReadClusterVersion(ctx, reader)
		if _, missing := errors.AsType[*cluster.NoVersionError](err); missing {
			return err
		}
		if err != nil {
			streams.Warnf("cannot read spec.overrides, so no note names the orphans that an override keeps: %v", err)
		} else {
			chosen.pruning = inventory.PruningOf(cv)
		}
		return printOrphans(ctx, streams, cfg, chosen)
	}
	if o.signatures {
		if err := printSignatures(ctx, streams, cfg, o.Name, o.output); err != nil {
			return o.CheckVersion(ctx, cfg.UserAgent, err)
		}
		return nil
	}
	source := &leader.Connection{Clock: clock.RealClock{}, Config: cfg, Namespace: o.namespace, Name: o.Name, Server: o.server}
	if o.serverCA != "" {
		if source.Ca, err = inputfile.Read(o.serverCA); err != nil {
			return &command.UsageError{Err: fmt.Errorf("reading --server-ca: %w", err)}
		}
	}
	defer source.Close()
	view := o.view(streams)
	if o.watch {
		if err := o.CheckVersion(ctx, cfg.UserAgent, nil); err != nil {
			return err
		}
	}
	switch {
	case o.watch && o.output == printing.FormatText && view.Color:
		return o.watchScreen(ctx, streams, source, view)
	case o.watch:
		return o.watchLines(ctx, streams, source)
	}
	return o.once(ctx, streams, source, view)
}

// view returns the style for the output: the style of its terminal, or plain text.
func (o *options) view(streams command.Streams) tree.View {
	interactive := terminal.IsTerminal(streams.Out)
	return tree.View{
		All: o.all, Component: o.component,
		Color:   interactive && os.Getenv("TERM") != "dumb",
		Unicode: interactive && terminal.SupportsUTF8(os.Getenv),
	}
}

// once prints the current snapshot.
func (o *options) once(ctx context.Context, streams command.Streams, source *leader.Connection, view tree.View) error {
	snapshot, err := source.Rollout(ctx)
	if err != nil {
		return o.printClusterVersion(ctx, streams, source, err)
	}
	if err := o.checkComponent(snapshot); err != nil {
		return err
	}
	if o.output != printing.FormatText {
		return o.write(streams.Out, snapshot)
	}
	return view.Write(streams.Out, view.Lines(snapshot))
}

// checkComponent returns an error if the release of the snapshot lacks the component of --component.
func (o *options) checkComponent(snapshot *report.Snapshot) error {
	names := tree.Components(snapshot)
	if o.component == "" || len(names) == 0 || slices.Contains(names, o.component) {
		return nil
	}
	return fmt.Errorf("the release has no component %q: its components are %s", o.component, strings.Join(names, ", "))
}

// write writes a snapshot for scripts; with --component, only the objects of that component.
func (o *options) write(out io.Writer, snapshot *report.Snapshot) error {
	if o.component != "" {
		chosen := *snapshot
		chosen.Objects = tree.FilterObjects(snapshot.Objects, func(object report.Object) bool { return object.Component == o.component })
		snapshot = &chosen
	}
	switch {
	case o.output == printing.FormatJSON && o.watch:
		return printing.JSONLine(out, snapshot)
	case o.output == printing.FormatJSON:
		return printing.JSON(out, snapshot)
	case o.watch:
		if _, err := fmt.Fprintln(out, "---"); err != nil {
			return err
		}
	}
	return printing.YAML(out, snapshot)
}

// printClusterVersion prints the ClusterVersion if the operator cannot be reached or has no rollout to report yet.
func (o *options) printClusterVersion(ctx context.Context, streams command.Streams, source *leader.Connection, why error) error {
	lines, err := o.versionLines(ctx, source)
	switch _, missing := errors.AsType[*cluster.NoVersionError](err); {
	case missing && errors.Is(why, leader.ErrNoRollout):
		return fmt.Errorf("%w; an operator runs, but applies no release and repairs no object", err)
	case missing && leader.IsAfterUninstall(why):
		return fmt.Errorf("this cluster has no ClusterVersion: %w", why)
	case missing:
		return err
	}
	if o.output == printing.FormatText {
		if err == nil {
			because := "the operator could not be reached"
			if errors.Is(why, leader.ErrNoRollout) {
				because = why.Error()
			}
			err = tree.WriteLines(streams.Out, append(lines, "", "Showing the ClusterVersion only: "+because+"."))
		}
		if err != nil {
			return errors.Join(why, err)
		}
	}
	if errors.Is(why, leader.ErrNoRollout) && o.output == printing.FormatText {
		return nil // nothing else to report
	}
	return &command.PartialError{Err: why}
}

// versionLines returns lines with the ClusterVersion. If the ReleaseStatus can be read, they also say if the inventory is not saved or an
// override matches no object.
func (o *options) versionLines(ctx context.Context, source *leader.Connection) ([]string, error) {
	reader, err := cluster.OperatorReader(source.Config)
	if err != nil {
		return nil, err
	}
	cv, err := o.ReadClusterVersion(ctx, reader)
	if err != nil {
		return nil, err
	}
	lines := tree.OfClusterVersion(cv, source.Clock.Now())
	if status, err := archive.ReadReleaseStatus(ctx, reader, o.Name); err == nil && status != nil { // older operators have none
		for _, failed := range []struct{ condition, label string }{
			{api.ConditionInventorySaved, "Inventory not saved: "}, {api.ConditionOverridesMatch, "Unmatched overrides: "},
		} {
			if c := meta.FindStatusCondition(status.Status.Conditions, failed.condition); c != nil && c.Status == metav1.ConditionFalse {
				lines = append(lines, failed.label+terminal.OneLine(c.Message))
			}
		}
	}
	return lines, nil
}

// watchLines prints a line for each change, or a snapshot for each change with -o json or yaml.
func (o *options) watchLines(ctx context.Context, streams command.Streams, source *leader.Connection) error {
	var before *report.Snapshot
	warned := ""
	for {
		snapshot, err := source.Rollout(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // an interrupt is the normal end of --watch
		case err != nil:
			if text := err.Error(); text != warned {
				streams.Warnf("%s", text)
				warned = text
			}
		case snapshot != nil:
			warned = ""
			if err := o.writeChanges(streams.Out, before, snapshot); err != nil {
				return err
			}
			before = snapshot
		}
		if backoff.Sleep(ctx, pollInterval) != nil {
			return nil //nolint:nilerr // an interrupt is the normal end of --watch
		}
	}
}

func (o *options) writeChanges(out io.Writer, before, after *report.Snapshot) error {
	if o.output != printing.FormatText {
		return o.write(out, after)
	}
	if lines := tree.Changes(before, after, o.component); len(lines) > 0 {
		return tree.WriteLines(out, lines)
	}
	return nil
}
