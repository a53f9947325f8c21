//go:build linux

package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/pkg/node/machine"
)

// played is a folder that plays a machine. It is its own init system.
type played struct {
	t     *testing.T
	root  string
	boots int
	calls []string
	// hasFailed is whether every unit has failed.
	hasFailed bool
	// during is called in each restart of another unit than the guard; nil for nothing.
	during func()
}

func play(t *testing.T) *played {
	p := &played{t: t, root: t.TempDir()}
	p.write("/proc/sys/kernel/random/boot_id", "0a1b")
	p.write("/etc/motd", "of the host")
	p.boot()
	return p
}

func (p *played) write(name, data string) {
	p.t.Helper()
	require.NoError(p.t, os.MkdirAll(filepath.Dir(p.root+name), 0o755))
	require.NoError(p.t, os.WriteFile(p.root+name, []byte(data), 0o600))
}

func (p *played) boot() {
	p.boots++
	p.write("/proc/1/stat", fmt.Sprintf("1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 %d 9 10", p.boots))
}

func (p *played) call(call string) error {
	p.calls = append(p.calls, call)
	if during := p.during; during != nil && call == "restart a.service" {
		p.during = nil
		during()
	}
	return nil
}

func (p *played) HasUnit(context.Context, string) (bool, error)   { return true, nil }
func (p *played) HasFailed(context.Context, string) (bool, error) { return p.hasFailed, nil }
func (p *played) CanReload(context.Context, string) (bool, error) { return true, nil }
func (p *played) ReloadUnitFiles(context.Context) error           { return nil }
func (p *played) Restart(ctx context.Context, unit string) error {
	return errors.Join(p.call("restart "+unit), ctx.Err())
}

func (p *played) Reload(_ context.Context, unit string) error { return p.call("reload " + unit) }
func (p *played) Reboot(context.Context) error                { return p.call("reboot") }
func (p *played) open(o tree.Options) (*host.Host, *machine.Machine) {
	p.t.Helper()
	o.Sync = func(*os.File) error { return nil }
	h, err := host.Open(p.root, host.Options{Tree: o})
	require.NoError(p.t, err)
	p.t.Cleanup(func() { assert.NoError(p.t, h.Close()) })
	return h, machine.New(h, machine.Options{Init: p, Guard: func(context.Context) []string { return []string{"/guard"} }})
}

// guard returns a guard as a new process.
func (p *played) guard(o tree.Options) *Guard {
	h, m := p.open(o)
	begun := time.Now()
	return New(h, m, clock.RealClock{}, func() time.Duration { return time.Since(begun) }, Options{})
}

func (p *played) motd() string {
	data, err := os.ReadFile(p.root + "/etc/motd")
	require.NoError(p.t, err)
	return string(data)
}

func (p *played) rolledBack() host.RolledBack {
	h, _ := p.open(tree.Options{})
	r, err := h.RolledBack()
	require.NoError(p.t, err)
	return r
}

const link = "/etc/systemd/system/sysinit.target.wants/" + config.GuardUnit

func (p *played) isGuarded() bool {
	_, err := os.Lstat(p.root + link)
	return err == nil
}

var (
	content = config.Content{Files: []config.File{{Path: "/etc/motd", Mode: 0o600, Data: []byte("new")}}}
	reboot  = []disruption.Action{{Type: operatorv1.RebootStatusAction}}
	restart = []disruption.Action{{Type: operatorv1.RestartStatusAction, Restart: &operatorv1.RestartService{ServiceName: "a.service"}}}
)

func TestFailedBootIsUndoneAndRebooted(t *testing.T) {
	p := play(t)
	_, m := p.open(tree.Options{})
	require.ErrorIs(t, m.Apply(t.Context(), "new", content, reboot), machine.ErrRebooting)
	p.boot()
	p.write("/etc/motd", "broken at boot")
	p.calls = nil
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ctx, shutdown := context.WithTimeout(t.Context(), 10*time.Minute+interval/2)
		defer shutdown()
		require.NoError(t, p.guard(tree.Options{}).Run(ctx))
		assert.Equal(t, 10*time.Minute+interval/2, time.Since(begun))
	})
	assert.Equal(t, []string{"reboot"}, p.calls)
	assert.Equal(t, "of the host", p.motd())
	assert.True(t, p.isGuarded(), "the undo has not ended")

	p.boot()
	synctest.Test(t, func(t *testing.T) { require.NoError(t, p.guard(tree.Options{}).Run(t.Context())) })
	assert.Equal(t, []string{"reboot"}, p.calls)
	assert.False(t, p.isGuarded())
	assert.Equal(t, host.RolledBack{Config: "new", Reason: "a check failed for 10m0s: /etc/motd: different data"}, p.rolledBack())
	require.NoError(t, m.Apply(t.Context(), "other", config.Content{}, nil), "the machine accepts another config")
}

func TestUnconfirmedChangeIsUndoneWithItsActions(t *testing.T) {
	p := play(t)
	_, m := p.open(tree.Options{})
	require.NoError(t, m.Apply(t.Context(), "new", content, restart))
	assert.Equal(t, []string{"restart " + config.GuardUnit, "restart a.service"}, p.calls)
	p.calls = nil
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		require.NoError(t, p.guard(tree.Options{}).Run(t.Context()))
		assert.Equal(t, 30*time.Minute+interval, time.Since(begun), "the guard ends after the undo")
	})
	assert.Equal(t, []string{"restart a.service"}, p.calls)
	assert.Equal(t, "of the host", p.motd())
	assert.False(t, p.isGuarded())
	assert.Contains(t, p.rolledBack().Reason, "the daemon did not confirm")
}

func TestFailedUnitUndoesItsChange(t *testing.T) {
	p := play(t)
	_, m := p.open(tree.Options{})
	unit := config.Content{Units: []config.Unit{{Name: "a.service", Contents: "[Unit]"}}}
	require.NoError(t, m.Apply(t.Context(), "new", unit, nil))
	p.hasFailed = true
	synctest.Test(t, func(t *testing.T) { require.NoError(t, p.guard(tree.Options{}).Run(t.Context())) })
	assert.Equal(t, host.RolledBack{Config: "new", Reason: "a check failed for 10m0s: unit a.service has failed"}, p.rolledBack())
}

// TestGuardLeavesAnUndoToTheProcessThatRunsItsActions has an undo of the daemon, which ends during its actions or not.
func TestGuardLeavesAnUndoToTheProcessThatRunsItsActions(t *testing.T) {
	for _, dies := range []bool{false, true} {
		p := play(t)
		_, m := p.open(tree.Options{})
		require.NoError(t, m.Apply(t.Context(), "new", content, restart))
		p.calls = nil
		g := p.guard(tree.Options{})
		ctx, end := context.WithCancel(t.Context())
		p.during = func() {
			_, err := g.look(t.Context())
			require.ErrorIs(t, err, host.ErrBusy)
			if dies {
				end()
			}
		}
		if err := m.Undo(ctx); dies {
			require.ErrorIs(t, err, context.Canceled)
			_, err := g.look(t.Context())
			require.NoError(t, err)
			assert.Equal(t, []string{"restart a.service", "restart a.service"}, p.calls)
		} else {
			require.NoError(t, err)
			assert.Equal(t, []string{"restart a.service"}, p.calls)
		}
		end()
		hasEnded, err := g.look(t.Context())
		require.NoError(t, err)
		assert.True(t, hasEnded)
		assert.Empty(t, p.rolledBack(), "the guard did not begin the undo")
	}
}

func TestGuardUndoesOnlyTheChangeThatItJudged(t *testing.T) {
	p := play(t)
	h, m := p.open(tree.Options{})
	require.NoError(t, m.Apply(t.Context(), "judged", content, restart))
	judged, _, err := h.Pending()
	require.NoError(t, err)
	require.NoError(t, m.Undo(t.Context()))
	require.NoError(t, m.Apply(t.Context(), "other", config.Content{}, restart))
	p.calls = nil
	require.ErrorIs(t, m.RollBack(t.Context(), judged, "a check failed"), host.ErrPending)
	change, pending, err := h.Pending()
	require.NoError(t, err)
	assert.True(t, pending)
	assert.Equal(t, host.Applied, change.Phase)
	assert.Empty(t, p.calls)
}

func TestGuardWaitsForTheReboot(t *testing.T) {
	p := play(t)
	_, m := p.open(tree.Options{})
	require.ErrorIs(t, m.Apply(t.Context(), "new", content, reboot), machine.ErrRebooting)
	synctest.Test(t, func(t *testing.T) {
		ctx, shutdown := context.WithTimeout(t.Context(), time.Hour)
		defer shutdown()
		require.NoError(t, p.guard(tree.Options{}).Run(ctx))
	})
	assert.Equal(t, "new", p.motd())
}

func TestGuardIsEnabledFromTheFirstWriteToTheConfirmation(t *testing.T) {
	p := play(t)
	seen := false
	h, m := p.open(tree.Options{Step: func(_, path string) error {
		if path == "/etc/motd" && !seen {
			seen = true
			assert.True(t, p.isGuarded())
			assert.Equal(t, []string{"restart " + config.GuardUnit}, p.calls)
		}
		return nil
	}})
	require.NoError(t, m.Apply(t.Context(), "new", content, nil))
	assert.True(t, seen)
	unit, err := os.ReadFile(p.root + "/etc/systemd/system/" + config.GuardUnit)
	require.NoError(t, err)
	assert.Contains(t, string(unit), "\nExecStart=\"/guard\"\n")
	require.ErrorIs(t, h.DisableGuard(), host.ErrPending)
	require.NoError(t, h.Confirm("new"))
	assert.False(t, p.isGuarded())
	assert.NoFileExists(t, p.root+"/etc/systemd/system/"+config.GuardUnit)
}

func TestGuardWithoutAChangeDisablesItself(t *testing.T) {
	p := play(t)
	p.write(link, "")
	require.NoError(t, p.guard(tree.Options{}).Run(t.Context()))
	assert.False(t, p.isGuarded())
}

// TestKilledGuardIsContinued ends the guard before each operation of its undo. The next one completes the undo, and keeps the reason.
func TestKilledGuardIsContinued(t *testing.T) {
	type death struct{}
	for operation := 0; ; operation++ {
		p := play(t)
		_, m := p.open(tree.Options{})
		require.ErrorIs(t, m.Apply(t.Context(), "new", content, reboot), machine.ErrRebooting)
		p.boot()
		p.write("/etc/motd", "broken at boot")
		hasDied := false
		// process is a guard that has seen the failure for long enough.
		process := func(o tree.Options) {
			defer func() {
				if r := recover(); r != nil {
					require.IsType(t, death{}, r)
					hasDied = true
				}
			}()
			g := p.guard(o)
			g.options.BootDeadline = time.Nanosecond
			now := time.Duration(0)
			g.uptime = func() time.Duration { now += interval; return now }
			for hasEnded := false; !hasEnded; {
				var err error
				if hasEnded, err = g.look(t.Context()); errors.Is(err, machine.ErrRebooting) {
					p.boot()
				} else {
					require.NoError(t, err)
				}
			}
		}
		left := operation
		process(tree.Options{Step: func(string, string) error {
			if left--; left < 0 {
				panic(death{})
			}
			return nil
		}})
		if !hasDied {
			assert.Greater(t, operation, 20)
			return
		}
		process(tree.Options{})
		require.Equal(t, "of the host", p.motd(), operation)
		require.Equal(t, "new", p.rolledBack().Config, operation)
		require.Contains(t, p.rolledBack().Reason, "/etc/motd: different data", operation)
		require.False(t, p.isGuarded(), operation)
	}
}

func TestKubeletIsCheckedAtItsHealthPort(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	require.NoError(t, CheckKubelet(t.Context(), server.URL+"/healthz"))
	status = http.StatusInternalServerError
	require.EqualError(t, CheckKubelet(t.Context(), server.URL+"/healthz"), "checking the kubelet: GET "+server.URL+"/healthz returns 500 Internal Server Error")

	p := play(t)
	_, m := p.open(tree.Options{})
	require.NoError(t, m.Apply(t.Context(), "new", content, nil))
	g := p.guard(tree.Options{})
	g.options.KubeletHealth = server.URL
	change, _, err := g.host.Pending()
	require.NoError(t, err)
	assert.Contains(t, g.check(t.Context(), change), "500")
	status = http.StatusOK
	assert.Empty(t, g.check(t.Context(), change))
	server.Close()
	assert.Contains(t, g.check(t.Context(), change), "connection refused")
}
