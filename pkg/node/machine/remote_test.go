//go:build linux

package machine_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/pkg/node/machine"
)

// runner plays a machine that runs services. Each runs as a process of the host.
type runner struct {
	*testMachine
	// isRunning is whether the service runs already.
	isRunning bool
	// diesAt is the path at which the next service is killed; atEnd for after its result, atReboot if fails panics.
	diesAt string
	// refusal is the error of an init system that starts nothing; nil if it starts services.
	refusal error
	// failure is the error of services whose program cannot run; nil if it can.
	failure error
	// attempts is the number of requests of all daemons.
	attempts int
}

const (
	atEnd    = "the end"
	atReboot = "the reboot"
)

func (r *runner) Run(_ context.Context, unit string, command []string) (started bool, err error) {
	require.Equal(r.t, "cvo-node-apply.service", unit)
	require.Equal(r.t, []string{"/cvo-node", "apply"}, command[:2])
	if r.isRunning || r.refusal != nil {
		return false, r.refusal
	}
	if r.failure != nil {
		return true, r.failure
	}
	diesAt := r.diesAt
	r.diesAt = ""
	if diesAt != "" {
		defer func() {
			if p := recover(); p != nil {
				require.Equal(r.t, "killed", p)
			}
			started, err = true, errors.New(`systemd reports the result "failed"`)
		}()
	}
	m, _ := r.open(tree.Options{Step: func(_, path string) error {
		if path == diesAt {
			panic("killed")
		}
		return nil
	}})
	return true, m.Serve(context.WithoutCancel(r.t.Context()), command[2])
}

// remote returns the machine as the daemon sees it: it can write only the folder of the node stage.
func (r *runner) remote() (*machine.Remote, *host.Host) {
	r.t.Helper()
	require.NoError(r.t, os.MkdirAll(r.Root+config.Folder, 0o700))
	h, err := host.Open(r.Root, host.Options{Tree: tree.Options{Step: func(_, path string) error {
		if path != config.Folder && !strings.HasPrefix(path, config.Folder+"/") {
			return unix.EROFS
		}
		return nil
	}}})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { assert.NoError(r.t, h.Close()) })
	command := func() ([]string, error) { return []string{"/cvo-node", "apply"}, nil }
	return machine.NewRemote(h, r, command, func() string { r.attempts++; return strconv.Itoa(r.attempts) }), h
}

func TestServiceChangesTheHost(t *testing.T) {
	r := &runner{testMachine: play(t)}
	m, h := r.remote()
	require.NoError(t, h.Stage("new", content))
	require.ErrorIs(t, m.Apply(t.Context(), "new", content, reboot), machine.ErrRebooting)
	assert.Equal(t, after, r.files())
	r.boot()
	require.NoError(t, m.Resume(t.Context()))
	require.NoError(t, m.Confirm(t.Context(), "new"))
	state, err := h.State()
	require.NoError(t, err)
	assert.Equal(t, "new", state.Current.Name)

	require.NoError(t, h.Stage("empty", config.Content{}))
	require.ErrorIs(t, m.Apply(t.Context(), "empty", config.Content{}, reboot), machine.ErrRebooting)
	r.boot()
	require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting)
	assert.Equal(t, after, r.files())
}

func TestErrorsOfTheServiceKeepTheirKind(t *testing.T) {
	r := &runner{testMachine: play(t)}
	r.fails = func(string) error { return errors.New("exit code 1") }
	m, h := r.remote()
	require.ErrorIs(t, m.Confirm(t.Context(), "new"), host.ErrNotApplied)
	require.NoError(t, h.Stage("new", content))
	restart := []disruption.Action{{Type: operatorv1.DaemonReloadStatusAction}}
	err := m.Apply(t.Context(), "new", content, restart)
	require.ErrorIs(t, err, host.ErrNotUndone)
	require.NotErrorIs(t, err, machine.ErrRebooting)
	assert.Contains(t, err.Error(), "applying new: exit code 1")
	require.ErrorIs(t, m.Resume(t.Context()), host.ErrUndoing)
}

// TestRecordOfAnotherReleaseIsRead has results as other releases may have stored them. The names of their kinds never change.
func TestRecordOfAnotherReleaseIsRead(t *testing.T) {
	for kinds, want := range map[string]string{
		`["Busy"]`: "", `["Rebooting"]`: "", `["NotUndone"]`: "new", `["Differs", "NotUndone"]`: "new", `["Exhausted"]`: "new", `null`: "new",
	} {
		remote, h := (&runner{testMachine: play(t)}).remote()
		require.NoError(t, h.SaveRecord("result", json.RawMessage(`{"request":"{\"verb\":\"Apply\",\"config\":\"new\",\"attempt\":\"1\"}","error":"x","is":`+kinds+`}`)))
		assert.Equal(t, want, remote.LastFailure().Config, kinds)
	}
}

// TestLastFailureIsThatOfTheConfig has services whose action fails. One of them ends meanwhile, and the next one continues.
func TestLastFailureIsThatOfTheConfig(t *testing.T) {
	for _, tt := range []struct {
		ends bool
		want string
	}{{false, "new"}, {true, ""}} {
		r := &runner{testMachine: play(t)}
		remote, h := r.remote()
		require.NoError(t, h.Stage("new", content))
		ctx, cancel := context.WithCancel(t.Context())
		r.fails = func(string) error {
			if tt.ends {
				cancel()
			}
			return errors.New("exit code 1")
		}
		m, _ := r.open(tree.Options{})
		require.NoError(t, m.Serve(ctx, `{"verb":"Apply","config":"new","attempt":"1","actions":[{"type":"DaemonReload"}]}`))
		cancel()
		assert.Equal(t, tt.want, remote.LastFailure().Config)
	}
}

func TestKilledServiceIsContinued(t *testing.T) {
	r := &runner{testMachine: play(t)}
	m, h := r.remote()
	require.NoError(t, h.Stage("new", content))
	r.diesAt = "/etc/created"
	require.ErrorIs(t, m.Apply(t.Context(), "new", content, nil), host.ErrBusy, "no service has stored a result")
	assert.Equal(t, "new, -", r.files())

	r.isRunning = true
	require.ErrorIs(t, m.Resume(t.Context()), host.ErrBusy)
	r.isRunning = false
	require.NoError(t, m.Resume(t.Context()))
	assert.Equal(t, after, r.files())
	r.diesAt = config.Folder + "/state.json"
	require.ErrorIs(t, m.Confirm(t.Context(), "new"), host.ErrBusy, "the result is that of another request")
	require.NoError(t, m.Confirm(t.Context(), "new"))
}

func TestServiceThatIsKilledAfterItsResultHasAnswered(t *testing.T) {
	r := &runner{testMachine: play(t)}
	m, h := r.remote()
	require.NoError(t, h.Stage("new", content))
	r.diesAt = atEnd
	require.NoError(t, m.Apply(t.Context(), "new", content, nil))
	r.diesAt = atEnd
	require.ErrorIs(t, m.Confirm(t.Context(), "other"), host.ErrNotApplied)
}

// TestServicesThatNeverLeaveAResultAreAnError has another daemon for each service.
func TestServicesThatNeverLeaveAResultAreAnError(t *testing.T) {
	r := &runner{testMachine: play(t)}
	resume := func() error {
		m, _ := r.remote()
		return m.Resume(t.Context())
	}
	r.failure = errors.New(`running unit cvo-node-apply.service: systemd reports the result "failed"`)
	for range 4 {
		require.ErrorIs(t, resume(), host.ErrBusy)
	}
	for range 2 {
		err := resume()
		require.NotErrorIs(t, err, host.ErrBusy)
		require.EqualError(t, err, "Resume on the host: the service repeatedly ends without a result: running unit cvo-node-apply.service: "+
			`systemd reports the result "failed". To find the cause, run this on the node: journalctl -u cvo-node-apply.service`)
	}
	r.failure = nil
	require.NoError(t, resume())
	r.failure = errors.New("killed")
	require.ErrorIs(t, resume(), host.ErrBusy, "a result ends the sequence")
}

func TestEndOfTheDaemonIsNoFailureOfTheService(t *testing.T) {
	r := &runner{testMachine: play(t), failure: context.Canceled}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		m, _ := r.remote()
		require.ErrorIs(t, m.Resume(ctx), host.ErrBusy)
	}
}

// TestServiceThatTheRebootEndsHasAnswered has an init system that cancels the service once it requests the reboot.
func TestServiceThatTheRebootEndsHasAnswered(t *testing.T) {
	r := &runner{testMachine: play(t)}
	r.fails = func(call string) error {
		if call == "reboot" {
			panic("killed")
		}
		return nil
	}
	m, h := r.remote()
	require.NoError(t, h.Stage("new", content))
	r.diesAt = atReboot
	require.ErrorIs(t, m.Apply(t.Context(), "new", content, reboot), machine.ErrRebooting)
}

func TestServiceThatDoesNotStartIsAnError(t *testing.T) {
	r := &runner{testMachine: play(t), refusal: errors.New("connection refused")}
	m, _ := r.remote()
	err := m.Resume(t.Context())
	require.EqualError(t, err, "Resume on the host: connection refused")
	require.NotErrorIs(t, err, host.ErrBusy)
}

// TestReleaseLeavesNoFolder also kills the service before its first write, in its middle, and after the last one.
func TestReleaseLeavesNoFolder(t *testing.T) {
	for _, diesAt := range []string{"", config.Folder + "/state.json", config.Folder + "/content", config.Folder, atEnd} {
		t.Run(diesAt, func(t *testing.T) {
			r := &runner{testMachine: play(t)}
			m, h := r.remote()
			require.NoError(t, h.Stage("new", content))
			require.NoError(t, m.Apply(t.Context(), "new", content, nil))
			require.ErrorIs(t, m.Release(t.Context()), host.ErrPending)
			require.NoError(t, m.Confirm(t.Context(), "new"))
			r.diesAt = diesAt
			if err := m.Release(t.Context()); err != nil {
				require.ErrorIs(t, err, host.ErrBusy)
				require.NoError(t, m.Release(t.Context()))
			}
			requests := r.attempts
			require.NoError(t, m.Release(t.Context()))
			assert.Equal(t, requests, r.attempts, "a released host needs no service")
			assert.NoDirExists(t, r.Root+config.Folder)
			assert.Equal(t, after, r.files())
		})
	}
}

func TestOnlyTheStagedConfigIsApplied(t *testing.T) {
	r := &runner{testMachine: play(t)}
	m, h := r.remote()
	require.NoError(t, h.Stage("other", content))
	require.EqualError(t, m.Apply(t.Context(), "new", content, nil), "applying new: it is neither staged nor current")
	machine, _ := r.open(tree.Options{})
	require.NoError(t, machine.Serve(t.Context(), "no JSON"))
	var result struct{ Error string }
	require.NoError(t, h.ReadRecord("result", &result))
	assert.Contains(t, result.Error, "reading the request")
}
