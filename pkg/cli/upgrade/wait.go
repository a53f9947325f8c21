package upgrade

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/leader"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/update/follow"
)

type waitOptions struct {
	cluster.VersionFlags
	namespace string
	goal      string
	timeout   time.Duration
	failFast  bool
	quiet     bool
	output    string
}

func newWaitCmd(streams command.Streams) *cobra.Command {
	o := &waitOptions{}
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait for an update to reach a goal",
		Long: `Wait for the requested update to reach a goal. Progress goes to stderr, the outcome to stdout.

  --for=accepted      the operator has retrieved, verified and accepted the release, and has started its rollout
  --for=runlevel=N    everything up to this runlevel is rolled out
  --for=completed     the whole release is rolled out; without a running update, the command returns at once

The command watches the ClusterVersion and changes nothing. It retries while API servers are unavailable, as they are
during updates. Completed does not include worker nodes; see 'cvo upgrade status'. For a runlevel, the command also
watches the operator's ReleaseRollout. Without one, it queries the operator itself, as described in 'cvo status --help'.

The operator checks a rejected release again after at most ` + accept.MaxPause.String() + `, for example after it was signed. So a rejection ends
the command at once only if it is new, permanent (a broken release, or another version), or with --fail-fast. A rejection
from before the command started ends it after ` + accept.RecheckWithin.String() + `, which includes the duration of a check, or at --timeout.

Exit codes: 0 goal reached; 1 failure, such as a deleted ClusterVersion; 2 invalid command line; 3 the operator rejected the
release; 5 timeout (--timeout); 6 the update is failing, with --fail-fast; 130 interrupted.`,
		Example: `  # Update, and wait until it is complete
  cvo upgrade --to=4.15.3 && cvo upgrade wait --timeout=2h

  # Wait until the operator has verified and accepted the release
  cvo upgrade wait --for=accepted --timeout=10m

  # Stop waiting as soon as the update fails
  cvo upgrade wait --fail-fast`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.VersionFlags.Add(f)
	f.StringVarP(&o.namespace, "namespace", "n", command.EnvOr("CVO_NAMESPACE", api.OperatorNamespace), "`namespace` of the operator and its Lease")
	f.StringVar(&o.goal, "for", follow.GoalCompleted, "`goal`: accepted, runlevel=N or completed")
	f.DurationVar(&o.timeout, "timeout", 0, "`time` to wait; 0 waits forever")
	f.BoolVar(&o.failFast, "fail-fast", false, "stop when the update is failing, or was rejected before, although the cause may be transient")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not show progress")
	printing.AddFlag(cmd, &o.output)
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(
		[]string{follow.GoalCompleted, follow.GoalAccepted, follow.GoalRunlevel}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	return cmd
}

func (o *waitOptions) validate() (follow.Goal, error) {
	goal, err := follow.ParseGoal(o.goal)
	if err != nil {
		return goal, command.Usagef("--for=%w", err)
	}
	if o.timeout < 0 {
		return goal, &command.UsageError{Err: fmt.Errorf("--timeout %s: use a positive duration", o.timeout)}
	}
	goal.FailFast = o.failFast
	return goal, printing.Check(&o.output)
}

func (o *waitOptions) run(ctx context.Context, streams command.Streams) error {
	goal, err := o.validate()
	if err != nil {
		return err
	}
	cfg, err := o.ConfigFor("cvo-upgrade-wait")
	if err != nil {
		return err
	}
	c, err := o.Open(cfg.UserAgent)
	if err != nil {
		return err
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, command.ErrTimeout)
		defer cancel()
	}
	// A cluster that is unreachable at the start is more likely a mistake than an effect of the update.
	if _, err := o.ReadClusterVersion(ctx, c); err != nil {
		return o.finish(ctx, streams, follow.Verdict{State: follow.Waiting, Message: "the ClusterVersion could not be read"}, err)
	}
	leader.WarnVacant(ctx, streams, cfg, o.namespace, o.Name)
	source := &leader.Connection{Clock: clock.RealClock{}, Config: cfg, Namespace: o.namespace, Name: o.Name}
	defer source.Close()
	follower := &follow.Follower{Clock: clock.RealClock{}, Patience: accept.RecheckWithin, Config: cfg, Name: o.Name, Progress: source.Progress, Print: func(line string) {
		if !o.quiet {
			fmt.Fprintln(streams.Err, terminal.OneLine(line))
		}
	}}
	last, err := follower.Wait(ctx, goal)
	return o.finish(ctx, streams, last, err)
}

// waitReport is the outcome for scripts.
type waitReport struct {
	For     string `json:"for"`
	Outcome string `json:"outcome"`
	Version string `json:"version,omitempty"`
	Image   string `json:"image,omitempty"`
	Message string `json:"message"`
}

// Outcomes in addition to the values of State.
const (
	outcomeTimeout     = "timeout"
	outcomeInterrupted = "interrupted"
	outcomeError       = "error"
)

// finish prints the outcome and returns the error with the exit code.
func (o *waitOptions) finish(ctx context.Context, streams command.Streams, last follow.Verdict, err error) error {
	report := waitReport{For: o.goal, Outcome: string(last.State), Version: last.Version, Image: last.Image, Message: last.Message}
	timeout := errors.Is(context.Cause(ctx), command.ErrTimeout)
	var result error
	switch {
	case timeout && last.State == follow.Waiting:
		report.Outcome = outcomeTimeout
		result = &command.StateError{Code: command.ExitUpdating, Err: fmt.Errorf("not %s within %s: %s", o.goal, o.timeout, last.Message)}
	case ctx.Err() != nil && !timeout && err != nil:
		report.Outcome = outcomeInterrupted
		result = &command.StateError{Code: command.ExitInterrupted, Err: fmt.Errorf("interrupted before %s: %s", o.goal, last.Message)}
	case last.State == follow.Refused:
		result = &command.RefusedError{Err: errors.New(last.Message)}
	case err != nil:
		report.Outcome, report.Message = outcomeError, err.Error()
		result = err
	case last.State == follow.Failing:
		result = &command.StateError{Code: command.ExitAttention, Err: errors.New(last.Message)}
	}
	if o.output != "" {
		if err := printing.Structured(streams, o.output, report); err != nil {
			return err
		}
		return result
	}
	var state *command.StateError
	switch {
	case result == nil:
		fmt.Fprintln(streams.Out, terminal.OneLine(last.Message))
	case errors.As(result, &state):
		// main does not print these errors, so the command prints them.
		command.PrintError(streams.Err, state.Err)
	}
	return result
}
