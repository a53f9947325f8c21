//go:build linux

package systemd_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/node/systemd"
	played "github.com/cluster-version/cvo/test/systemd"
)

func play(t *testing.T, o played.Options) (*systemd.Manager, *played.Systemd) {
	socket := filepath.Join(t.TempDir(), "private")
	p := played.Play(t, socket, o)
	return systemd.New(socket), p
}

func TestManagerCallsSystemd(t *testing.T) {
	m, p := play(t, played.Options{Job: func(call string, _ []string) string {
		if call == "RestartUnit broken.service replace" {
			return "failed"
		}
		return "done"
	}})
	require.NoError(t, m.ReloadUnitFiles(t.Context()))
	require.NoError(t, m.Restart(t.Context(), "a.service"))
	require.NoError(t, m.Reload(t.Context(), "crio.service"))
	require.EqualError(t, m.Restart(t.Context(), "broken.service"), `restarting unit broken.service: systemd reports the result "failed"`)
	require.NoError(t, m.Reboot(t.Context()))
	assert.Equal(t, []string{
		"Reload", "RestartUnit a.service replace", "ReloadUnit crio.service replace", "RestartUnit broken.service replace",
		"StartUnit reboot.target replace-irreversibly",
	}, p.Calls())
}

func TestHasUnitReadsTheLoadState(t *testing.T) {
	m, _ := play(t, played.Options{Units: map[string]string{"kubelet.service": "loaded", "masked.service": "masked"}})
	for unit, want := range map[string]bool{"kubelet.service": true, "masked.service": false, "crio.service": false} {
		has, err := m.HasUnit(t.Context(), unit)
		require.NoError(t, err)
		assert.Equal(t, want, has, unit)
	}
}

func TestHasFailedReadsTheActiveState(t *testing.T) {
	m, _ := play(t, played.Options{Units: map[string]string{"a.service": "failed", "b.service": "loaded"}})
	for unit, want := range map[string]bool{"a.service": true, "b.service": false, "c.service": false} {
		failed, err := m.HasFailed(t.Context(), unit)
		require.NoError(t, err)
		assert.Equal(t, want, failed, unit)
	}
	has, err := m.HasUnit(t.Context(), "a.service")
	require.NoError(t, err)
	assert.True(t, has)
}

func TestOnlyARunningUnitCanReload(t *testing.T) {
	m, _ := play(t, played.Options{Units: map[string]string{"a.service": "reloadable", "b.service": "loaded", "c.service": "failed"}})
	for unit, want := range map[string]bool{"a.service": true, "b.service": false, "c.service": false, "d.service": false} {
		can, err := m.CanReload(t.Context(), unit)
		require.NoError(t, err)
		assert.Equal(t, want, can, unit)
	}
}

func TestJobEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m, _ := play(t, played.Options{Job: func(string, []string) string { cancel(); return "" }})
	require.ErrorIs(t, m.Restart(ctx, "slow.service"), context.Canceled)
}

func TestJobEndsWithTheConnection(t *testing.T) {
	for call, do := range map[string]func(*systemd.Manager) error{
		"restarting": func(m *systemd.Manager) error { return m.Restart(t.Context(), "a.service") },
		"running": func(m *systemd.Manager) error {
			started, err := m.Run(t.Context(), "a.service", []string{"/bin/true"})
			assert.True(t, started)
			return err
		},
	} {
		var p *played.Systemd
		m, p := play(t, played.Options{Job: func(string, []string) string { p.Disconnect(); return "" }})
		require.EqualError(t, do(m), call+" unit a.service: systemd closed the connection before the end of the job")
		require.NoError(t, m.ReloadUnitFiles(t.Context()), "the next call has its own connection")
	}
}

func TestMissingSystemdIsAnError(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "private")
	_, err := systemd.New(socket).HasUnit(t.Context(), "a.service")
	require.ErrorContains(t, err, "finding unit a.service: connecting to systemd at "+socket)
}

// TestSilentSystemdIsAnError has a systemd that accepts connections and does not read them, such as one that has crashed.
func TestSilentSystemdIsAnError(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "private")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer listener.Close()
	m := systemd.New(socket)
	m.SetAnswerTimeout(time.Millisecond)
	require.EqualError(t, m.ReloadUnitFiles(t.Context()), "reloading the files of units: connecting to systemd at "+socket+": no answer after 1ms")
}

func TestCommandRunsAsATransientUnit(t *testing.T) {
	var ran []string
	m, p := play(t, played.Options{
		Units: map[string]string{"running.service": "loaded"},
		Job: func(call string, command []string) string {
			ran = command
			if call == "StartTransientUnit broken.service fail" {
				return "failed"
			}
			return "done"
		},
	})
	started, err := m.Run(t.Context(), "cvo-node-apply.service", []string{"/bin/cvo-node", "apply", "a b"})
	require.NoError(t, err)
	assert.True(t, started)
	assert.Equal(t, []string{"StartTransientUnit cvo-node-apply.service fail"}, p.Calls())
	assert.Equal(t, []string{"/bin/cvo-node", "apply", "a b"}, ran)

	started, err = m.Run(t.Context(), "running.service", []string{"/bin/cvo-node"})
	require.NoError(t, err)
	assert.False(t, started)
	started, err = m.Run(t.Context(), "broken.service", []string{"/bin/cvo-node"})
	assert.True(t, started)
	require.EqualError(t, err, `running unit broken.service: systemd reports the result "failed"`)
}
