//go:build linux

package machine_test

import (
	"context"
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
	*played
	// isRunning is whether the service runs already.
	isRunning bool
	// dies ends the next service before its result.
	dies bool
}

func (r *runner) Run(_ context.Context, unit string, command []string) (started bool, err error) {
	require.Equal(r.t, "cvo-node-apply.service", unit)
	require.Equal(r.t, []string{"/cvo-node", "apply"}, command[:2])
	if r.isRunning {
		return false, nil
	}
	o := tree.Options{}
	if r.dies {
		r.dies = false
		o.Step = func(_, path string) error {
			if path == "/etc/created" {
				panic("killed")
			}
			return nil
		}
		defer func() { require.Equal(r.t, "killed", recover()) }()
	}
	m, _ := r.open(o)
	return true, m.Serve(context.WithoutCancel(r.t.Context()), command[2])
}

// remote returns the machine as the daemon sees it: it can write only the folder of the node stage.
func (r *runner) remote() (*machine.Remote, *host.Host) {
	r.t.Helper()
	require.NoError(r.t, os.MkdirAll(r.root+config.Folder, 0o700))
	h, err := host.Open(r.root, host.Options{Tree: tree.Options{Step: func(_, path string) error {
		if path != config.Folder && !strings.HasPrefix(path, config.Folder+"/") {
			return unix.EROFS
		}
		return nil
	}}})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { assert.NoError(r.t, h.Close()) })
	attempts := 0
	return machine.NewRemote(h, r, []string{"/cvo-node", "apply"}, func() string { attempts++; return strconv.Itoa(attempts) }), h
}

func TestServiceChangesTheHost(t *testing.T) {
	r := &runner{played: play(t)}
	m, h := r.remote()
	require.NoError(t, h.Stage("new", content))
	require.ErrorIs(t, m.Apply(t.Context(), "new", content, reboot), machine.ErrRebooting)
	assert.Equal(t, after, r.files())
	r.boot()
	require.NoError(t, m.Resume(t.Context()))
	require.NoError(t, m.Confirm(t.Context(), "new"))
	current, err := h.Current()
	require.NoError(t, err)
	assert.Equal(t, "new", current.Name)

	require.NoError(t, h.Stage("empty", config.Content{}))
	require.ErrorIs(t, m.Apply(t.Context(), "empty", config.Content{}, reboot), machine.ErrRebooting)
	r.boot()
	require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting)
	assert.Equal(t, after, r.files())
}

func TestErrorsOfTheServiceKeepTheirKind(t *testing.T) {
	r := &runner{played: play(t)}
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

func TestKilledServiceIsContinued(t *testing.T) {
	r := &runner{played: play(t)}
	m, h := r.remote()
	require.NoError(t, h.Stage("new", content))
	r.dies = true
	require.ErrorIs(t, m.Apply(t.Context(), "new", content, nil), host.ErrBusy)
	assert.Equal(t, "new, -", r.files())

	r.isRunning = true
	require.ErrorIs(t, m.Resume(t.Context()), host.ErrBusy)
	r.isRunning = false
	require.NoError(t, m.Resume(t.Context()))
	assert.Equal(t, after, r.files())
}

func TestOnlyTheStagedConfigIsApplied(t *testing.T) {
	r := &runner{played: play(t)}
	m, h := r.remote()
	require.NoError(t, h.Stage("other", content))
	require.EqualError(t, m.Apply(t.Context(), "new", content, nil), "applying new: other is staged")
	machine, _ := r.open(tree.Options{})
	require.NoError(t, machine.Serve(t.Context(), "no JSON"))
	result, err := h.Result()
	require.NoError(t, err)
	assert.Contains(t, string(result), "reading the request")
}
