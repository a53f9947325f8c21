// Package cli holds the commands of cvo, one file a verb. A command turns flags into an options struct and calls the
// packages below; it decides nothing about releases or clusters itself. Results go to Streams.Out, progress and
// warnings to Streams.Err.
//
// A command that takes a while shows its progress in one way: progressFlags adds --quiet, its start gives a progress,
// whose streams are written to from then on and whose close is deferred. Events are values: expect says how much there
// is to do, report how far one item is. A terminal gets bars, anything else a line now and then and one for each item
// that ends.
package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/operator"
)

// Streams are where a command reads and writes; tests pass buffers.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Exit codes. Scripts may rely on them.
const (
	// ExitFailed: the command tried and something went wrong.
	ExitFailed = 1
	// ExitUsage: the command line cannot be understood.
	ExitUsage = 2
	// ExitRefused: the command works as asked, and the answer is no, such as a release that nobody trusted signed.
	ExitRefused = 3
	// ExitPartial: there is an answer, but not from whom it was wanted: the operator could not be asked.
	ExitPartial = 4
	// ExitUpdating: asked for the state of the cluster, an update is under way.
	ExitUpdating = 5
	// ExitAttention: asked for the state of the cluster, something keeps it from going on.
	ExitAttention = 6
)

// RefusedError marks a deliberate no.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

// PartialError says why an answer came from somebody who knows less.
type PartialError struct{ Err error }

func (e *PartialError) Error() string { return e.Err.Error() }
func (e *PartialError) Unwrap() error { return e.Err }

// StateError is the state of a cluster as an exit code, one of the constants above. What was printed tells the state.
type StateError struct {
	Code int
	Err  error
}

func (e *StateError) Error() string { return e.Err.Error() }
func (e *StateError) Unwrap() error { return e.Err }

// UsageError marks a command line that cannot be understood.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// ExitCode maps what a command returned to the process's exit code.
func ExitCode(err error) int {
	var usage *UsageError
	var refused *RefusedError
	var partial *PartialError
	var state *StateError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		return ExitUsage
	case errors.As(err, &refused):
		return ExitRefused
	case errors.As(err, &partial):
		return ExitPartial
	case errors.As(err, &state):
		return state.Code
	}
	return ExitFailed
}

// PrintError says what went wrong as kubectl and oc do. A state is no news: what was printed has told it.
func PrintError(w io.Writer, err error) {
	var state *StateError
	if err == nil || errors.As(err, &state) {
		return
	}
	text := strings.TrimRight(printableLines(err.Error()), "\n")
	if !strings.HasPrefix(text, "error: ") {
		text = "error: " + text
	}
	fmt.Fprintln(w, text)
}

// New returns the cvo command with all its subcommands.
func New(streams Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "cvo",
		Short: "Install and update a whole Kubernetes platform from one signed release image",
		Long: `cvo installs and updates a whole Kubernetes platform from one signed release image: it pulls and verifies the
image, orders its manifests into a dependency graph, applies them runlevel by runlevel, and waits at each
runlevel for every ClusterOperator.`,
		Version:       binaryVersion(),
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			warnOfInsecurity(streams, cmd.Flags())
			if cmd.Name() != startCommand {
				// Libraries tell what commands need; a logger that nobody sets complains of that after half a minute.
				operator.SetLogger(logr.Discard())
			}
		},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &UsageError{Err: err} })
	root.AddCommand(
		newInstallCmd(streams), newPayloadCmd(streams), newReleaseCmd(streams), newStartCmd(streams), newStatusCmd(streams),
		newUninstallCmd(streams), newUpgradeCmd(streams),
	)
	completeTheRest(root)
	addCobrasOwn(root)
	return root
}

// addCobrasOwn adds the commands help and completion, which cobra would add by itself: then what they do not know would
// be no error.
func addCobrasOwn(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = usageArgs(func(_ *cobra.Command, topic []string) error {
				if _, unknown, err := root.Find(topic); err != nil || len(unknown) > 0 {
					return fmt.Errorf("unknown help topic %q for %q", strings.Join(topic, " "), root.Name())
				}
				return nil
			})
		case "completion":
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			cmd.Args = usageArgs(cobra.NoArgs)
			for _, shell := range cmd.Commands() {
				shell.Args = usageArgs(cobra.NoArgs)
			}
		}
	}
}

// usageArgs makes a positional-argument check answer with a UsageError.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &UsageError{Err: err}
		}
		return nil
	}
}
