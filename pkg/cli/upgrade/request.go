package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/leader"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/update/request"
)

// refusedRequest turns a Refusal into a RefusedError, which sets the exit code.
func refusedRequest(err error) error {
	if _, ok := errors.AsType[*request.Refusal](err); ok {
		return &command.RefusedError{Err: err}
	}
	return err
}

// requestFlags are the flags of every command that changes a cluster.
type requestFlags struct {
	cluster cluster.VersionFlags
	dryRun  string
	output  string
}

func (f *requestFlags) add(cmd *cobra.Command) {
	f.cluster.Add(cmd.Flags())
	cmd.Flags().StringVar(&f.dryRun, "dry-run", request.DryRunNone,
		"none; server: the API server checks the request and stores nothing; client: send nothing. Both print the request")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = request.DryRunServer
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(request.DryRuns(), cobra.ShellCompDirectiveNoFileComp))
	printing.AddFlag(cmd, &f.output)
}

func (f *requestFlags) validate() error {
	if !slices.Contains(request.DryRuns(), f.dryRun) {
		return command.Usagef("--dry-run=%s: use none, server or client", f.dryRun)
	}
	return printing.Check(&f.output)
}

// run plans and sends a request, and prints the result.
func (f *requestFlags) run(ctx context.Context, streams command.Streams, plan request.Plan) error {
	c, err := f.cluster.Open("cvo-upgrade")
	if err != nil {
		return err
	}
	return f.send(ctx, streams, c, plan)
}

func (f *requestFlags) send(ctx context.Context, streams command.Streams, c client.Client, plan request.Plan) error {
	sender := request.Sender{
		Client: c, DryRun: f.dryRun,
		Read: func(ctx context.Context) (*configv1.ClusterVersion, error) {
			return f.cluster.ReadClusterVersion(ctx, c)
		},
		Warn: func(text string) { fmt.Fprintln(streams.Err, "warning:", printable.Lines(text)) }, // as lines, like oc
	}
	r, err := sender.Send(ctx, plan)
	if err != nil {
		return refusedRequest(err)
	}
	if err := f.print(streams, r); err != nil {
		return err
	}
	f.warnVacant(ctx, streams)
	return nil
}

// warnVacant prints a warning if a request was stored and no operator runs that could follow it. It prints nothing if it cannot know that.
func (f *requestFlags) warnVacant(ctx context.Context, streams command.Streams) {
	if f.dryRun != request.DryRunNone {
		return
	}
	if cfg, err := f.cluster.Config(); err == nil {
		leader.WarnVacant(ctx, streams, cfg, cluster.OperatorDeployment().Namespace, f.cluster.Name)
	}
}

func (f *requestFlags) print(streams command.Streams, r *request.Request) error {
	if f.output != "" {
		return printing.Structured(streams, f.output, r)
	}
	message := printable.Lines(r.Message)
	if r.Paused {
		defer fmt.Fprintln(streams.Out, "Updates are paused. Start this one with 'cvo upgrade resume'.")
	}
	if r.Patch == nil || r.DryRun == "" {
		fmt.Fprintln(streams.Out, message)
		return nil
	}
	kind := "dry run"
	if r.DryRun == request.DryRunServer {
		kind = "server dry run"
	}
	patch, err := json.Marshal(r.Patch)
	if err != nil {
		return err
	}
	fmt.Fprintf(streams.Out, "%s (%s)\nMerge patch: %s\n", message, kind, printable.Text(string(patch)))
	return nil
}
