package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
)

// ExitInterrupted is what shells have for a command that an interrupt ended.
const ExitInterrupted = 130

type upgradeWaitOptions struct {
	versionFlags
	namespace string
	goal      string
	timeout   time.Duration
	failFast  bool
	quiet     bool
	output    string
}

func newUpgradeWaitCmd(streams Streams) *cobra.Command {
	o := &upgradeWaitOptions{}
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait until the update that was asked for has got so far",
		Long: `Wait until the update that was asked for has got so far. Progress goes to stderr, the outcome to stdout.

  --for=accepted      the release is retrieved, verified and found fit, and its rollout has begun
  --for=runlevel=N    everything up to this runlevel is rolled out
  --for=completed     all of it is; if nothing is under way, that is so at once

It watches the ClusterVersion and changes nothing, and bears with API servers that are away for a while, as they are in
updates. Completed does not wait for worker nodes; 'cvo upgrade status' tells of them. For a runlevel, the ReleaseRollout
of the operator is watched, too; without one the operator itself is asked, which 'cvo status' explains.

Exit codes: 0 it has got so far; 1 something went wrong, such as that the ClusterVersion is gone; 2 the command line cannot
be understood; 3 the release was refused; 5 --timeout is over; 6 the update fails, with --fail-fast; 130 interrupted.`,
		Example: `  # Update, and go on when it is done
  cvo upgrade --to=4.15.3 && cvo upgrade wait --timeout=2h

  # Is the release signed and fit?
  cvo upgrade wait --for=accepted --timeout=10m

  # Stop waiting as soon as somebody has to look
  cvo upgrade wait --fail-fast`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.versionFlags.add(f)
	f.StringVarP(&o.namespace, "namespace", "n", envOr("CVO_NAMESPACE", api.OperatorNamespace), "`namespace` of the operator and its Lease")
	f.StringVar(&o.goal, "for", goalCompleted, "`goal`: accepted, runlevel=N or completed")
	f.DurationVar(&o.timeout, "timeout", 0, "how `long` to wait; 0 is without end")
	f.BoolVar(&o.failFast, "fail-fast", false, "stop if the update fails, which may pass by itself")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print no progress")
	addOutput(cmd, &o.output)
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(
		[]string{goalCompleted, goalAccepted, goalRunlevel}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	return cmd
}

func (o *upgradeWaitOptions) validate() (waitGoal, error) {
	goal, err := parseWaitGoal(o.goal)
	if err != nil {
		return goal, &UsageError{err}
	}
	if o.timeout < 0 {
		return goal, &UsageError{fmt.Errorf("--timeout %s: it is over before it begins", o.timeout)}
	}
	goal.failFast = o.failFast
	return goal, checkOutput(&o.output)
}

// errWaitOver is why a wait with a timeout ends.
var errWaitOver = errors.New("the time is over")

func (o *upgradeWaitOptions) run(ctx context.Context, streams Streams) error {
	goal, err := o.validate()
	if err != nil {
		return err
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	cfg.UserAgent = "cvo-upgrade-wait"
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	c, err := o.open(cfg.UserAgent)
	if err != nil {
		return err
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errWaitOver)
		defer cancel()
	}
	// What cannot be reached at the start is a mistake sooner than an update.
	if _, err := o.readClusterVersion(ctx, c); err != nil {
		return o.finish(ctx, streams, waitVerdict{state: waitGoesOn, message: "the ClusterVersion was not read"}, err)
	}
	source := &statusSource{clock: clock.RealClock{}, cfg: cfg, namespace: o.namespace, name: o.name}
	defer source.close()
	follower := &updateFollower{config: cfg, name: o.name, account: source.rollout, print: func(line string) {
		if !o.quiet {
			fmt.Fprintln(streams.Err, oneLine(line))
		}
	}}
	last, err := follower.follow(ctx, goal)
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

// The outcomes beside those of waitState.
const (
	outcomeTimeout     = "timeout"
	outcomeInterrupted = "interrupted"
	outcomeError       = "error"
)

// finish prints the outcome and makes an exit code of it.
func (o *upgradeWaitOptions) finish(ctx context.Context, streams Streams, last waitVerdict, err error) error {
	report := waitReport{For: o.goal, Outcome: string(last.state), Version: last.version, Image: last.image, Message: last.message}
	var result error
	switch {
	case errors.Is(context.Cause(ctx), errWaitOver) && last.state == waitGoesOn:
		report.Outcome = outcomeTimeout
		result = &StateError{Code: ExitUpdating, Err: fmt.Errorf("not %s within %s: %s", o.goal, o.timeout, last.message)}
	case ctx.Err() != nil && last.state == waitGoesOn:
		report.Outcome = outcomeInterrupted
		result = &StateError{Code: ExitInterrupted, Err: fmt.Errorf("interrupted before %s: %s", o.goal, last.message)}
	case err != nil:
		report.Outcome, report.Message = outcomeError, err.Error()
		result = err
	case last.state == waitRefused:
		result = &RefusedError{errors.New(last.message)}
	case last.state == waitFails:
		result = &StateError{Code: ExitAttention, Err: errors.New(last.message)}
	}
	if o.output != "" {
		if err := printStructured(streams, o.output, report); err != nil {
			return err
		}
		return result
	}
	var state *StateError
	switch {
	case result == nil:
		fmt.Fprintln(streams.Out, oneLine(last.message))
	case errors.As(result, &state):
		// main leaves states to those who print them.
		PrintError(streams.Err, state.Err)
	}
	return result
}

// Goals of a wait.
const (
	goalAccepted  = "accepted"
	goalCompleted = "completed"
	goalRunlevel  = "runlevel="
)

// waitGoal is what is waited for.
type waitGoal struct {
	// completed and accepted are what --for says; with neither it is a runlevel.
	completed, accepted bool
	runlevel            int
	failFast            bool
}

// maxRunlevel is the highest that the name of a file can have.
const maxRunlevel = 9999

func parseWaitGoal(text string) (waitGoal, error) {
	switch number, isRunlevel := strings.CutPrefix(text, goalRunlevel); {
	case text == goalCompleted:
		return waitGoal{completed: true}, nil
	case text == goalAccepted:
		return waitGoal{accepted: true}, nil
	case isRunlevel:
		if n, err := strconv.Atoi(number); err == nil && n >= 0 && n <= maxRunlevel {
			return waitGoal{runlevel: n}, nil
		}
	}
	return waitGoal{}, fmt.Errorf("--for=%q: want accepted, completed or runlevel=N, such as runlevel=30", cmp.Or(text, "nothing"))
}
