package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/install"
)

type uninstallOptions struct {
	versionFlags
	removal install.Removal
	yes     bool
	timeout time.Duration
	quiet   bool
	output  string
}

func newUninstallCmd(streams Streams) *cobra.Command {
	o := &uninstallOptions{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the version operator from a cluster, and the platform only if asked",
		Long: `Remove the version operator from a cluster. The platform stays as it is, and nobody manages it any more.

The operator is stopped first: its Lease is taken, so that no operator writes, in the cluster or elsewhere, and its
Deployment is scaled down. Then everything that releases brought is taken out of the ClusterVersion's hands, the
ClusterVersion is deleted with its objects left behind, and after that what the operator consists of: its CRDs (not that
of ClusterOperator, by which the platform's operators report), the deletion guard, its rights, and its namespace with the
inventory. Namespaces openshift-config and openshift-config-managed stay, with the trust policy and the pull secret.

--with-platform deletes what releases brought, too. First go custom resources, while the operators run that clean up after
them, then webhooks and APIs, whose servers go next. Everything else goes in the reverse of the order in which an update
applies it, by runlevel, component and manifest, as the inventory tells; a step begins when all of the one before is gone.
Objects whose manifest nobody recorded go by their kind: workloads and others before these, CRDs and namespaces after.
Finalizers are waited for and never removed. What holds data or something that no release brought is kept, and listed: volumes and volume claims with their
namespaces, CRDs with objects of others, and the two configuration namespaces. --delete-data deletes these as well.

An uninstall that is interrupted says what it has left: the same command goes on from there at once, and 'cvo install' with
the release that the cluster had brings back what is gone. Exit codes: 0 done; 1 something went wrong; 2 the command line cannot be
understood; 3 refused, such as while a release is rolled out; 5 --timeout is over; 130 interrupted.`,
		Example: `  # What would be deleted?
  cvo uninstall --dry-run

  # Remove the operator, keep the platform
  cvo uninstall

  # Remove all of it, in a script
  cvo uninstall --with-platform --yes --timeout=30m`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.versionFlags.add(f)
	f.StringVarP(&o.removal.Namespace, "namespace", "n", envOr("CVO_NAMESPACE", api.OperatorNamespace), "`namespace` of the operator")
	f.BoolVar(&o.removal.Platform, "with-platform", false, "delete what releases brought, too")
	f.BoolVar(&o.removal.DeleteData, "delete-data", false, "with --with-platform: also volumes, volume claims, and what no release brought but would go with a CRD or a namespace")
	f.BoolVar(&o.removal.Force, "force", false, "also while a release is being rolled out")
	f.BoolVar(&o.removal.DryRun, "dry-run", false, "only list what would be deleted")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.DurationVar(&o.timeout, "timeout", 0, "how `long` to wait in all; 0 is without end")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print no progress")
	addOutput(cmd, &o.output)
	return cmd
}

func (o *uninstallOptions) run(ctx context.Context, streams Streams) error {
	switch {
	case o.removal.DeleteData && !o.removal.Platform:
		return usageErrorf("--delete-data is about the platform: add --with-platform, or leave it out")
	case o.timeout < 0:
		return usageErrorf("--timeout %s: it is over before it begins", o.timeout)
	}
	if err := checkOutput(&o.output); err != nil {
		return err
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	cfg.UserAgent = "cvo-uninstall"
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	cfg.QPS = -1 // priority and fairness on the server decides
	o.removal.Name = o.name
	if !o.yes && !o.removal.DryRun {
		if err := o.confirm(streams, cfg.Host); err != nil {
			return err
		}
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errWaitOver)
		defer cancel()
	}
	say := func(format string, args ...any) {
		if !o.quiet {
			fmt.Fprintf(streams.Err, "info: "+format+"\n", args...)
		}
	}
	results, err := install.Uninstall(ctx, clock.RealClock{}, cfg, o.removal,
		func(r install.Result) {
			if o.output == "" {
				o.print(streams.Out, r)
			}
		},
		func(text string) { say("%s", oneLine(text)) })
	if o.output != "" {
		report := map[string]any{"objects": results, "dryRun": o.removal.DryRun}
		if unfinished, ok := errors.AsType[*install.UnfinishedError](err); ok {
			report["left"] = unfinished.Left
		}
		if printErr := printStructured(streams, o.output, report); printErr != nil {
			return printErr
		}
	}
	if unfinished, ok := errors.AsType[*install.UnfinishedError](err); ok {
		o.printLeft(streams, unfinished)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errWaitOver):
		err = &StateError{Code: ExitUpdating, Err: fmt.Errorf("not done within %s: %w", o.timeout, err)}
	case ctx.Err() != nil:
		err = &StateError{Code: ExitInterrupted, Err: fmt.Errorf("interrupted: %w", err)}
	default:
		return refused(err)
	}
	if state, ok := errors.AsType[*StateError](err); ok {
		PrintError(streams.Err, state.Err) // main leaves states to those who print them
	}
	return err
}

// printLeft tells how the cluster is, and what to do about it.
func (o *uninstallOptions) printLeft(streams Streams, unfinished *install.UnfinishedError) {
	again := "cvo uninstall"
	if o.removal.Platform {
		again += " --with-platform"
	}
	fmt.Fprintf(streams.Err, "info: %s; '%s' goes on from here, and 'cvo install' brings back what is gone\n", unfinished.Left, again)
}

// print tells what became of an object, or would.
func (o *uninstallOptions) print(out io.Writer, r install.Result) {
	outcome := string(r.Outcome)
	if o.removal.DryRun && r.Outcome == install.Deleted {
		outcome = "would be deleted"
	}
	line := r.String() + " " + outcome
	if r.Message != "" {
		line += ": " + r.Message
	}
	fmt.Fprintln(out, oneLine(line))
}

// confirm asks whether that is really wanted. Where nobody can answer, --yes has to say so.
func (o *uninstallOptions) confirm(streams Streams, host string) error {
	what := "the version operator"
	if o.removal.Platform {
		what += " and the whole platform"
	}
	if file, ok := streams.In.(*os.File); !ok || !isTerminal(file) {
		return &RefusedError{fmt.Errorf("removing %s from %s takes a yes, and there is no terminal to ask: add --yes", what, host)}
	}
	fmt.Fprintf(streams.Err, "Remove %s from %s? Type yes to go on: ", what, oneLine(host))
	answer, err := bufio.NewReader(io.LimitReader(streams.In, 1<<10)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if strings.TrimSpace(answer) != "yes" {
		return &RefusedError{errors.New("nothing was removed")}
	}
	return nil
}
