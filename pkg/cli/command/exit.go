package command

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cluster-version/cvo/internal/printable"
)

// Exit codes. An error is one line on stderr that starts with `error:`. With `-o json`, commands that oc does not have print it as one JSON
// object on stderr, with the fields `error` and `exitCode`. Scripts may depend on both.
const (
	// ExitSucceeded means that the command succeeded, or there was nothing to do.
	ExitSucceeded = 0
	// ExitFailed means that the command failed: the API server, a registry or a file did not work.
	ExitFailed = 1
	// ExitUsage means that the command line is invalid.
	ExitUsage = 2
	// ExitRefused means that the command worked and its answer is no. A release is unsigned, an update is not recommended, or a check found
	// errors.
	ExitRefused = 3
	// ExitPartial means that the operator, or another source, could not be reached. The output is incomplete.
	ExitPartial = 4
	// ExitUpdating means that the cluster is updating, or a timeout passed while it was.
	ExitUpdating = 5
	// ExitAttention means that a problem blocks the cluster.
	ExitAttention = 6
	// ExitInterrupted means that the command was interrupted. Shells use the same code.
	ExitInterrupted = 130
)

// RefusedError marks a deliberate refusal.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

// PartialError is the reason why a result comes from a less complete source.
type PartialError struct{ Err error }

func (e *PartialError) Error() string { return e.Err.Error() }
func (e *PartialError) Unwrap() error { return e.Err }

// StateError reports the state of a cluster as one of the exit codes above. The output already shows the state.
type StateError struct {
	Code int
	Err  error
}

func (e *StateError) Error() string { return e.Err.Error() }
func (e *StateError) Unwrap() error { return e.Err }

// UsageError marks an invalid command line.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// ExitCode returns the exit code of the process for the error of a command.
func ExitCode(err error) int {
	var usage *UsageError
	var refused *RefusedError
	var partial *PartialError
	var state *StateError
	switch {
	case err == nil:
		return ExitSucceeded
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

// IsPrinted reports whether an error is printed: it is not nil, and the output does not show it already.
func IsPrinted(err error) bool {
	var state *StateError
	return err != nil && !errors.As(err, &state)
}

// PrintError prints an error as kubectl and oc do. It prints nothing for a StateError, because the output already shows the state.
func PrintError(w io.Writer, err error) {
	if !IsPrinted(err) {
		return
	}
	text := strings.TrimRight(printable.Lines(err.Error()), "\n")
	if !strings.HasPrefix(text, "error: ") {
		text = "error: " + text
	}
	fmt.Fprintln(w, text)
}

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// ErrTimeout means that a wait has reached its timeout.
var ErrTimeout = errors.New("the timeout has passed")
