//go:build linux

package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/host"
)

// Request is what a daemon requests of the process that changes the host.
type Request struct {
	// Verb is the method of Machine to call.
	Verb Verb `json:"verb"`
	// Config is the name of the staged or current config to apply, or of the config to confirm.
	Config string `json:"config,omitempty"`
	// Actions are those of Apply.
	Actions []disruption.Action `json:"actions,omitempty"`
	// Attempt is another number for each request.
	Attempt string `json:"attempt"`
}

// Verb is a method of Machine.
type Verb string

// Verbs of a request.
const (
	VerbStage   Verb = "Stage"
	VerbApply   Verb = "Apply"
	VerbResume  Verb = "Resume"
	VerbUndo    Verb = "Undo"
	VerbConfirm Verb = "Confirm"
	VerbRelease Verb = "Release"
)

// result is the answer to a request.
type result struct {
	Request string `json:"request"`
	// Error is the text of the error; empty after a success.
	Error string `json:"error,omitempty"`
	// Is has the names in kinds of the errors that it is. Another release may have written the record: a name that this one does not know is none of its
	// kinds, so the error is a plain failure, and not that the host is busy or reboots. A failure that counts costs a wait, and one that does not a drain.
	Is []string `json:"is,omitempty"`
}

// The records of the host have different writers: the service, and the process that waits for it.
const (
	resultRecord  = "result"
	missingRecord = "missing"
)

// missing counts the services since the last result that ended without one.
type missing struct {
	// Since is the request of the last result; empty if there is none.
	Since string `json:"since"`
	Count int    `json:"count"`
}

// mostMissing is the number of services without a result from which on the cause is not a single crash.
const mostMissing = 5

// kinds are the errors that callers distinguish, with their names in the record. A record outlives an update of the stage, so a name never changes.
var kinds = []struct {
	name string
	err  error
}{
	{"Rebooting", ErrRebooting},
	{"Differs", ErrDiffers},
	{"Unusable", ErrUnusable},
	{"Busy", host.ErrBusy},
	{"Pending", host.ErrPending},
	{"Undoing", host.ErrUndoing},
	{"NotUndone", host.ErrNotUndone},
	{"NotApplied", host.ErrNotApplied},
}

// Serve executes a request and stores its result on the host. It returns an error only if it could not do that. The result of a release is that the
// host has no folder.
func (m *Machine) Serve(ctx context.Context, request string) error {
	// systemd cancels this service as soon as it requests a reboot.
	m.beforeReboot = func() error { return m.saveResult(request, ErrRebooting) }
	err := m.serve(ctx, request)
	if m.isReleased() {
		return err
	}
	return m.saveResult(request, err)
}

func (m *Machine) saveResult(request string, err error) error {
	r := result{Request: request}
	if err != nil {
		r.Error = err.Error()
		for _, kind := range kinds {
			if errors.Is(err, kind.err) {
				r.Is = append(r.Is, kind.name)
			}
		}
	}
	return m.host.SaveRecord(resultRecord, r)
}

func (m *Machine) serve(ctx context.Context, encoded string) error {
	var r Request
	if err := json.Unmarshal([]byte(encoded), &r); err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	switch r.Verb {
	case VerbStage:
		_, err := m.prepare(ctx, bootc{m})
		return err
	case VerbApply:
		found, err := m.host.Find(r.Config)
		if err != nil {
			return err
		}
		if found == (host.Config{}) {
			return fmt.Errorf("applying %s: it is neither staged nor current", r.Config)
		}
		content, err := m.host.Content(found)
		if err != nil {
			return err
		}
		return m.Apply(ctx, r.Config, content, r.Actions)
	case VerbResume:
		return m.Resume(ctx)
	case VerbUndo:
		return m.Undo(ctx)
	case VerbConfirm:
		return m.Confirm(ctx, r.Config)
	case VerbRelease:
		return m.Release(ctx)
	}
	return fmt.Errorf("the request has the unknown verb %q", r.Verb)
}

// Runner starts services of a host.
type Runner interface {
	Init
	// Run runs a command as a service that no file defines, and waits until it ends. started is false without an error if the service runs already.
	// An error of a started service means that it failed, or that its end is not known.
	Run(ctx context.Context, unit string, command []string) (started bool, err error)
}

// Remote is a machine whose host the process cannot write, except for the node stage's own folder. Each method is a service of the host that runs
// Machine.Serve. It continues when the process that waits for it ends. The config of Apply must be staged.
type Remote struct {
	*Machine
	runner  Runner
	command func() ([]string, error)
	attempt func() string
}

// NewRemote returns the remote machine of a host. command returns a command line of the host, whose program exists. The request is its last argument.
// attempt returns another text each time.
func NewRemote(h *host.Host, runner Runner, command func() ([]string, error), attempt func() string) *Remote {
	return &Remote{New(h, Options{Init: runner}), runner, command, attempt}
}

// Stage is like Machine.Stage. The content need not be staged.
func (r *Remote) Stage(ctx context.Context, content config.Content) error {
	if !r.needsBootc(content) {
		return nil
	}
	return r.request(ctx, Request{Verb: VerbStage})
}

// Apply is like Machine.Apply.
func (r *Remote) Apply(ctx context.Context, name string, _ config.Content, actions []disruption.Action) error {
	return r.request(ctx, Request{Verb: VerbApply, Config: name, Actions: actions})
}

// Resume is like Machine.Resume.
func (r *Remote) Resume(ctx context.Context) error { return r.request(ctx, Request{Verb: VerbResume}) }

// Undo is like Machine.Undo.
func (r *Remote) Undo(ctx context.Context) error { return r.request(ctx, Request{Verb: VerbUndo}) }

// Confirm is like Machine.Confirm.
func (r *Remote) Confirm(ctx context.Context, name string) error {
	return r.request(ctx, Request{Verb: VerbConfirm, Config: name})
}

// Failure is a config that a service could not apply. The zero value means that none is known.
type Failure struct {
	// Attempt is the number of the request.
	Attempt string
	Config  string
	// Text is the text of the error.
	Text string
}

// LastFailure returns the failure of the last service if it applied a config; none if it did something else, has not failed or was busy, or if that is not
// known.
func (r *Remote) LastFailure() Failure {
	var last result
	var request Request
	err := cmp.Or(r.host.ReadRecord(resultRecord, &last), json.Unmarshal([]byte(last.Request), &request))
	is := func(kind error) bool { return errors.Is(remoteError{last}, kind) }
	if err != nil || last.Error == "" || request.Verb != VerbApply || is(ErrRebooting) || is(host.ErrBusy) {
		return Failure{}
	}
	return Failure{request.Attempt, request.Config, last.Error}
}

// Release is like Machine.Release.
func (r *Remote) Release(ctx context.Context) error {
	if r.isReleased() {
		return nil
	}
	return r.request(ctx, Request{Verb: VerbRelease})
}

func (r *Remote) request(ctx context.Context, request Request) error {
	request.Attempt = r.attempt()
	encoded, err := json.Marshal(request)
	if err != nil {
		return err
	}
	command, err := r.command()
	if err != nil {
		return err
	}
	started, err := r.runner.Run(ctx, config.ApplyUnit, append(slices.Clone(command), string(encoded)))
	switch {
	case request.Verb == VerbRelease && r.isReleased():
		return nil
	case started:
	case err != nil:
		return fmt.Errorf("%s on the host: %w", request.Verb, err)
	default:
		return fmt.Errorf("%s on the host: %w", request.Verb, host.ErrBusy) // a former daemon has started it
	}
	var answer result
	resultErr := r.host.ReadRecord(resultRecord, &answer)
	switch {
	case resultErr != nil:
		return fmt.Errorf("the result of %s on the host: %w", request.Verb, resultErr)
	case answer.Request != string(encoded) && ctx.Err() != nil:
		return fmt.Errorf("%s on the host: %w: the service may still run: %w", request.Verb, host.ErrBusy, err)
	case answer.Request != string(encoded):
		return fmt.Errorf("%s on the host: %w", request.Verb, r.withoutResult(answer.Request, err))
	case answer.Error == "":
		return nil
	}
	return remoteError{answer}
}

// withoutResult returns the error of a service that left no result: it did not start, it was killed, or systemd no longer reports its end. The journal
// has what it did, so another service can continue, and the error is host.ErrBusy. It is not after mostMissing services in sequence. The number is on
// the host, so that it survives the daemon. last is the request of the last result, and end is the error that systemd has reported.
func (r *Remote) withoutResult(last string, end error) error {
	if end == nil {
		end = errors.New("systemd reports success")
	}
	var m missing
	if err := r.host.ReadRecord(missingRecord, &m); err != nil || m.Since != last {
		m = missing{Since: last} // the count restarts if it cannot be read
	}
	m.Count++
	switch err := r.host.SaveRecord(missingRecord, m); {
	case err != nil:
		return fmt.Errorf("the service left no result: %w, and that cannot be counted: %w", end, err)
	case m.Count < mostMissing:
		return fmt.Errorf("%w: the service left no result: %w", host.ErrBusy, end)
	}
	// The text has no number, because the Node shows it and each change would be a write.
	return fmt.Errorf("the service repeatedly ends without a result: %w. To find the cause, run this on the node: journalctl -u %s", end, config.ApplyUnit)
}

// remoteError is an error of the process that changes the host.
type remoteError struct{ result }

func (e remoteError) Error() string { return e.result.Error }

// Is reports whether the error was of a kind.
func (e remoteError) Is(target error) bool {
	for _, kind := range kinds {
		if errors.Is(target, kind.err) {
			return slices.Contains(e.result.Is, kind.name)
		}
	}
	return false
}
