package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/install/uninstall"
	"github.com/cluster-version/cvo/pkg/kube/apiserver"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

type uninstallOptions struct {
	cluster.VersionFlags
	removal uninstall.Removal
	yes     bool
	timeout time.Duration
	quiet   bool
	output  string
	// again is the command line of another run.
	again string
	// spent is the used part of timeout.
	spent time.Duration
}

// NewUninstall returns the command 'cvo uninstall'.
func NewUninstall(streams command.Streams) *cobra.Command {
	o := &uninstallOptions{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the version operator from a cluster, and optionally the platform",
		Long: `Remove the version operator from a cluster. The platform stays as it is, without an operator to manage it.

The command stops the operator first. It takes over the operator's Lease, so that no operator writes, inside or outside the
cluster, and scales down the Deployment. Then it removes the references to the ClusterVersion from all objects of releases,
and deletes the ClusterVersion but not these objects. Last, it deletes the operator's own objects: its CRDs (except
ClusterOperator, which the platform's operators use), the deletion guard, its permissions, and its namespace with the
inventory. The namespaces openshift-config and openshift-config-managed stay, with the trust policy and the pull secret.

--with-platform also deletes the objects of releases. First it deletes custom resources, while the operators that clean up
after them still run. Then it deletes webhooks and APIs, and after them their servers. It deletes everything else in the
reverse order of an update, by runlevel, component and manifest, as recorded in the inventory. Each step starts when all
objects of the previous one are gone. For objects without a recorded manifest, the kind decides: workloads and others before the
recorded objects, CRDs and namespaces after them. The command waits for finalizers and never removes them. It keeps and
lists data and objects that no release contains: volumes and volume claims with their namespaces, StatefulSets that
would delete their claims, CRDs with data or such objects and the namespaces of these objects, and the two configuration
namespaces. --delete-data deletes these as well.
All other namespaces of the platform are deleted with everything in them. Outside deleted namespaces, the command keeps
objects that have another controller, without the operator's owner reference.

A node stage is a part of the platform. Run 'cvo nodes release --all' first, so that it ends its changes of the hosts and removes
its folder. The command warns of nodes that are not released.

Before the command changes anything, it counts the objects that no release contains, in each namespace that would be
deleted. So does a dry run, which also works during a rollout, and then warns that the uninstall itself would be refused.

An interrupted uninstall lists the remaining objects. Run the same command again to continue at once, or run 'cvo install'
with the release of the cluster to restore the deleted objects.

Exit codes: 0 done; 1 failure; 2 invalid command line; 3 refused, such as during a rollout or with the wrong namespace; 5
timeout (--timeout); 130 interrupted.`,
		Example: `  # List the objects that would be deleted
  cvo uninstall --dry-run

  # Remove the operator, keep the platform
  cvo uninstall

  # Remove operator and platform, in a script
  cvo uninstall --with-platform --yes --timeout=30m`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.again = again(cmd.Flags())
			return o.run(cmd.Context(), streams)
		},
	}
	f := cmd.Flags()
	o.VersionFlags.Add(f)
	f.StringVarP(&o.removal.Namespace, "namespace", "n", command.EnvOr("CVO_NAMESPACE", api.OperatorNamespace), "`namespace` of the operator")
	f.BoolVar(&o.removal.Platform, "with-platform", false, "also delete the objects of releases")
	f.BoolVar(&o.removal.DeleteData, "delete-data", false, "with --with-platform: also delete volumes, volume claims, and the CRDs and namespaces of data and of objects that no release contains")
	f.BoolVar(&o.removal.Force, "force", false, "uninstall even during a rollout")
	f.BoolVar(&o.removal.DryRun, "dry-run", false, "only list the objects that would be deleted")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	f.DurationVar(&o.timeout, "timeout", 0, "total `time` to wait; 0 waits forever")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not show progress")
	printing.AddFlag(cmd, &o.output)
	return cmd
}

func (o *uninstallOptions) run(ctx context.Context, streams command.Streams) error {
	switch {
	case o.removal.DeleteData && !o.removal.Platform:
		return command.Usagef("--delete-data requires --with-platform: add it, or omit --delete-data")
	case o.removal.Namespace == "" || o.Name == "":
		return command.Usagef("--namespace and --name must not be empty: set them, or omit them for the default")
	case o.timeout < 0:
		return command.Usagef("--timeout %s: use a positive duration", o.timeout)
	}
	if err := printing.Check(&o.output); err != nil {
		return err
	}
	cfg, err := o.ConfigFor("cvo-uninstall")
	if err != nil {
		return err
	}
	o.removal.Name = o.Name
	say := func(format string, args ...any) {
		if !o.quiet {
			streams.Infof(format, args...)
		}
	}
	logLine := func(text string) { say("%s", text) }
	cfg = apiserver.Retrying(cfg, logLine)
	explain := func() error {
		return o.limited(ctx, streams, func(ctx context.Context) error { return o.explain(ctx, streams, cfg, logLine) })
	}
	if o.removal.Platform {
		o.warnOfNodes(ctx, streams, cfg)
	}
	switch {
	case o.removal.DryRun:
	case o.yes:
		err = explain()
	default:
		err = command.Confirm(ctx, streams, "remove "+removed(o.removal.Platform)+" from "+cfg.Host, explain)
	}
	if err != nil {
		return err
	}
	return o.limited(ctx, streams, func(ctx context.Context) error { return o.uninstall(ctx, streams, cfg, logLine) })
}

// limited calls do with a context for the rest of the timeout, and returns the error with its exit code. The time between two calls, in which
// the user answers, does not count.
func (o *uninstallOptions) limited(ctx context.Context, streams command.Streams, do func(context.Context) error) error {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout-o.spent, command.ErrTimeout)
		defer cancel()
		begun := time.Now()
		defer func() { o.spent += time.Since(begun) }()
	}
	err := do(ctx)
	var state *command.StateError
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), command.ErrTimeout):
		state = &command.StateError{Code: command.ExitUpdating, Err: fmt.Errorf("not done within %s: %w", o.timeout, err)}
	case ctx.Err() != nil:
		state = &command.StateError{Code: command.ExitInterrupted, Err: fmt.Errorf("interrupted: %w", err)}
	default:
		return refused(err)
	}
	command.PrintError(streams.Err, state.Err) // main does not print StateErrors
	return state
}

// uninstall removes the operator, or plans that, and prints the results.
func (o *uninstallOptions) uninstall(ctx context.Context, streams command.Streams, cfg *rest.Config, logLine func(string)) error {
	results, err := uninstall.Run(ctx, clock.RealClock{}, cfg, o.removal,
		func(r target.Result) {
			if o.output == "" {
				fmt.Fprintln(streams.Out, terminal.OneLine(resultText(r, o.removal.DryRun)))
			}
		},
		logLine)
	var refusal string
	if rollout, ok := errors.AsType[*uninstall.RolloutError](err); ok && o.removal.DryRun {
		refusal, err = rollout.Error(), nil
	}
	if o.output != "" {
		report := map[string]any{"objects": results, "dryRun": o.removal.DryRun}
		if refusal != "" {
			report["refusal"] = refusal
		}
		if unfinished, ok := errors.AsType[*uninstall.UnfinishedError](err); ok {
			report["left"] = unfinished.Left
		}
		if printErr := printing.Structured(streams, o.output, report); printErr != nil {
			return printErr
		}
	}
	if unfinished, ok := errors.AsType[*uninstall.UnfinishedError](err); ok {
		streams.Infof("%s; '%s' continues, and 'cvo install' restores deleted objects once no deletion is pending", unfinished.Left, o.again)
	}
	if err != nil {
		return err
	}
	if o.output == "" {
		fmt.Fprintln(streams.Out, summary(o.removal, cfg.Host, results))
	}
	if refusal != "" {
		streams.Warnf("without --dry-run, this uninstall would be refused: %s", refusal)
	}
	return nil
}

// explain warns about the namespaces that would be deleted with objects that no release contains.
func (o *uninstallOptions) explain(ctx context.Context, streams command.Streams, cfg *rest.Config, logLine func(string)) error {
	planned := o.removal
	planned.DryRun = true
	results, err := uninstall.Run(ctx, clock.RealClock{}, cfg, planned, func(target.Result) {}, logLine)
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Outcome == target.Deleted && r.Message != "" {
			streams.Warnf("%s", resultText(r, true))
		}
	}
	return nil
}

// nodesTimeout is the timeout of the request for nodes. Its result is only a warning.
const nodesTimeout = 10 * time.Second

// warnOfNodes warns that the node stage, which is a part of the platform, leaves parts of itself on the nodes that are not released.
func (o *uninstallOptions) warnOfNodes(ctx context.Context, streams command.Streams, cfg *rest.Config) {
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	var names []string
	c, err := client.New(cfg, client.Options{})
	var list corev1.NodeList
	if err != nil || c.List(ctx, &list) != nil {
		return // the uninstall needs neither, and reports a cluster that cannot be reached
	}
	for i := range list.Items {
		if n := &list.Items[i]; pool.HasReported(n) {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	streams.Warnf("uninstalling leaves changes and files of the node stage on %s (%s): run 'cvo nodes release --all' first",
		printable.Count(len(names), "node"), printable.List(names, mostNodes))
}

// mostNodes is the maximum number of nodes that a warning names.
const mostNodes = 10

// removed returns what an uninstall removes.
func removed(platform bool) string {
	if platform {
		return "the version operator and the whole platform"
	}
	return "the version operator"
}

// summary returns the outcome of a finished uninstall, or of a dry run.
func summary(removal uninstall.Removal, host string, results []target.Result) string {
	count := map[target.Outcome]int{}
	for _, r := range results {
		count[r.Outcome]++
	}
	deleted, kept := count[target.Deleted], count[target.Kept]
	switch {
	case deleted+kept == 0:
		return fmt.Sprintf("Found nothing of %s in %s.", removed(removal.Platform), host)
	case removal.DryRun:
		return fmt.Sprintf("Would remove %s from %s: objects to delete %d, to keep %d.", removed(removal.Platform), host, deleted, kept)
	}
	return fmt.Sprintf("Removed %s from %s: objects deleted %d, kept %d.", removed(removal.Platform), host, deleted, kept)
}

// again returns the command line of another run with the same cluster and scope.
func again(flags *pflag.FlagSet) string {
	words := []string{"cvo uninstall"}
	flags.VisitAll(func(f *pflag.Flag) {
		isSet := f.Value.String() != f.DefValue
		switch f.Name {
		case "yes", "quiet", "output", "timeout", "request-timeout":
			return
		case "namespace": // its default, and that of the name, may come from the environment
			isSet = f.Changed || f.Value.String() != api.OperatorNamespace
		case "name":
			isSet = f.Changed || f.Value.String() != api.ClusterVersionName
		}
		list, isList := f.Value.(pflag.SliceValue)
		switch {
		case !isSet:
		case f.Value.Type() == "bool":
			words = append(words, "--"+f.Name)
		case isList:
			for _, value := range list.GetSlice() {
				words = append(words, "--"+f.Name, command.Quote(value))
			}
		default:
			words = append(words, "--"+f.Name, command.Quote(f.Value.String()))
		}
	})
	return strings.Join(words, " ")
}

// resultText describes the result for one object, or the planned result in a dry run.
func resultText(r target.Result, isDryRun bool) string {
	outcome := string(r.Outcome)
	if isDryRun && r.Outcome == target.Deleted {
		outcome = "would be deleted"
	}
	text := r.String() + " " + outcome
	if r.Message != "" {
		text += ": " + r.Message
	}
	return text
}
