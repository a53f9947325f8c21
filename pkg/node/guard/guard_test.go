//go:build linux

package guard

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/pkg/node/machine"
	played "github.com/cluster-version/cvo/test/machine"
)

// testMachine plays a machine, and opens it as the processes of a node do.
type testMachine struct {
	*played.Machine
	t *testing.T
}

func play(t *testing.T) *testMachine {
	p := &testMachine{played.Play(t, t.TempDir()), t}
	p.Write("/etc/motd", "of the host")
	return p
}

func (p *testMachine) open(o tree.Options) (*host.Host, *machine.Machine) {
	p.t.Helper()
	o.Sync = func(*os.File) error { return nil }
	h, err := host.Open(p.Root, host.Options{Tree: o})
	require.NoError(p.t, err)
	p.t.Cleanup(func() { assert.NoError(p.t, h.Close()) })
	return h, machine.New(h, machine.Options{Init: p.Machine, Root: p.Root, Guard: func(context.Context) ([]string, error) { return []string{"/guard"}, nil }})
}

// guard returns a guard as a new process.
func (p *testMachine) guard(o tree.Options) *Guard {
	h, m := p.open(o)
	begun := time.Now()
	return New(h, m, clock.RealClock{}, func() time.Duration { return time.Since(begun) }, Options{})
}

func (p *testMachine) motd() string {
	data, err := os.ReadFile(p.Root + "/etc/motd")
	require.NoError(p.t, err)
	return string(data)
}

func (p *testMachine) rolledBack() host.RolledBack {
	h, _ := p.open(tree.Options{})
	s, err := h.State()
	require.NoError(p.t, err)
	return s.RolledBack
}

const link = "/etc/systemd/system/sysinit.target.wants/" + config.GuardUnit

func (p *testMachine) isGuarded() bool {
	_, err := os.Lstat(p.Root + link)
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
	p.Boot()
	p.Write("/etc/motd", "broken at boot")
	p.Calls = nil
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ctx, shutdown := context.WithTimeout(t.Context(), 10*time.Minute+interval/2)
		defer shutdown()
		require.NoError(t, p.guard(tree.Options{}).Run(ctx))
		assert.Equal(t, 10*time.Minute+interval/2, time.Since(begun))
	})
	assert.Equal(t, []string{"reboot"}, p.Calls)
	assert.Equal(t, "of the host", p.motd())
	assert.True(t, p.isGuarded(), "the undo has not ended")

	p.Boot()
	synctest.Test(t, func(t *testing.T) { require.NoError(t, p.guard(tree.Options{}).Run(t.Context())) })
	assert.Equal(t, []string{"reboot"}, p.Calls)
	assert.False(t, p.isGuarded())
	assert.Equal(t, host.RolledBack{Config: "new", Reason: "a check failed for 10m0s: /etc/motd: different data"}, p.rolledBack())
	require.NoError(t, m.Apply(t.Context(), "other", config.Content{}, nil), "the machine accepts another config")
}

// TestBootsThatEndEarlyAreUndone has a change with which the machine crashes before a deadline ends. Two guards run in each boot, and the disk may be full.
func TestBootsThatEndEarlyAreUndone(t *testing.T) {
	for _, actions := range [][]disruption.Action{reboot, restart} {
		p := play(t)
		_, m := p.open(tree.Options{})
		if err := m.Apply(t.Context(), "new", content, actions); err != nil {
			require.ErrorIs(t, err, machine.ErrRebooting)
			p.Boot()
		}
		p.Write("/etc/motd", "broken")
		guarded := func(within time.Duration, o tree.Options) {
			synctest.Test(t, func(t *testing.T) {
				ctx, crash := context.WithTimeout(t.Context(), within)
				defer crash()
				require.NoError(t, p.guard(o).Run(ctx))
			})
		}
		for range mostBoots {
			guarded(4*time.Minute, tree.Options{})
			guarded(4*time.Minute, tree.Options{})
			assert.Equal(t, "broken", p.motd())
			p.Boot()
		}
		full := func(_, path string) error {
			if strings.HasSuffix(path, "state.json") {
				return unix.ENOSPC
			}
			return nil
		}
		guarded(time.Second, tree.Options{Step: full})
		assert.Equal(t, "of the host", p.motd())
		guarded(time.Second, tree.Options{})
		p.Boot()
		guarded(time.Second, tree.Options{})
		assert.False(t, p.isGuarded())
		assert.Equal(t, host.RolledBack{Config: "new", Reason: "3 boots ended before the change was confirmed"}, p.rolledBack())
	}
}

// TestBootWithoutPreparationIsJudged loses the power after the files are written, and before the hook has set the kernel argument.
func TestBootWithoutPreparationIsJudged(t *testing.T) {
	p := play(t)
	h, _ := p.open(tree.Options{})
	hook := config.File{Path: machine.HookFile, Mode: 0o755, Data: []byte("#!/bin/sh\ncat >/dev/null\n")}
	require.NoError(t, h.Begin("new", config.Content{Files: append([]config.File{hook}, content.Files...), KernelArguments: []string{"quiet"}}, reboot...))
	require.NoError(t, h.Resume())
	g := p.guard(tree.Options{})
	g.options.BootDeadline = time.Nanosecond
	now := time.Duration(0)
	g.uptime = func() time.Duration { now += interval; return now }
	_, err := g.look(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "new", p.motd(), "the machine has not booted with the config yet")

	p.Boot()
	p.Write("/etc/motd", "broken at boot")
	for range 2 {
		_, err = g.look(t.Context())
	}
	require.ErrorIs(t, err, machine.ErrRebooting)
	assert.Equal(t, "of the host", p.motd())
}

func TestUnconfirmedChangeIsUndoneWithItsActions(t *testing.T) {
	p := play(t)
	_, m := p.open(tree.Options{})
	require.NoError(t, m.Apply(t.Context(), "new", content, restart))
	assert.Equal(t, []string{"reload files", "restart " + config.GuardUnit, "restart a.service"}, p.Calls)
	p.Calls = nil
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		require.NoError(t, p.guard(tree.Options{}).Run(t.Context()))
		assert.Equal(t, 30*time.Minute+interval, time.Since(begun), "the guard ends after the undo")
	})
	assert.Equal(t, []string{"restart a.service"}, p.Calls)
	assert.Equal(t, "of the host", p.motd())
	assert.False(t, p.isGuarded())
	assert.Contains(t, p.rolledBack().Reason, "the daemon did not confirm")
}

func TestFailedUnitUndoesItsChange(t *testing.T) {
	p := play(t)
	_, m := p.open(tree.Options{})
	unit := config.Content{Units: []config.Unit{{Name: "a.service", Contents: "[Unit]"}}}
	require.NoError(t, m.Apply(t.Context(), "new", unit, nil))
	p.Unit = func(string) (exists, hasFailed bool, err error) { return true, true, nil }
	synctest.Test(t, func(t *testing.T) { require.NoError(t, p.guard(tree.Options{}).Run(t.Context())) })
	assert.Equal(t, host.RolledBack{Config: "new", Reason: "a check failed for 10m0s: unit a.service has failed"}, p.rolledBack())
}

// TestGuardLeavesAnUndoToTheProcessThatRunsItsActions has an undo of the daemon, which ends during its actions or not.
func TestGuardLeavesAnUndoToTheProcessThatRunsItsActions(t *testing.T) {
	for _, dies := range []bool{false, true} {
		p := play(t)
		_, m := p.open(tree.Options{})
		require.NoError(t, m.Apply(t.Context(), "new", content, restart))
		p.Calls = nil
		g := p.guard(tree.Options{})
		ctx, end := context.WithCancel(t.Context())
		p.During = func(string) error {
			p.During = nil
			_, err := g.look(t.Context())
			require.ErrorIs(t, err, host.ErrBusy)
			if dies {
				end()
			}
			return ctx.Err()
		}
		if err := m.Undo(ctx); dies {
			require.ErrorIs(t, err, context.Canceled)
			_, err := g.look(t.Context())
			require.NoError(t, err)
			assert.Equal(t, []string{"restart a.service", "restart a.service"}, p.Calls)
		} else {
			require.NoError(t, err)
			assert.Equal(t, []string{"restart a.service"}, p.Calls)
		}
		end()
		hasEnded, err := g.look(t.Context())
		require.NoError(t, err)
		assert.True(t, hasEnded)
		assert.Empty(t, p.rolledBack(), "the guard did not begin the undo")
	}
}

// TestTrialBeginsAfterTheActions has an action that lasts longer than a trial.
func TestTrialBeginsAfterTheActions(t *testing.T) {
	p := play(t)
	h, m := p.open(tree.Options{})
	g := p.guard(tree.Options{})
	now := time.Duration(0)
	g.uptime = func() time.Duration { return now }
	hasPassed := func(at time.Duration) bool {
		now = at
		_, err := g.look(t.Context())
		require.NoError(t, err)
		change, pending, err := h.Pending()
		require.NoError(t, err)
		require.True(t, pending)
		return change.Passed
	}
	p.During = func(call string) error {
		if call == "restart a.service" {
			assert.False(t, hasPassed(0))
			assert.False(t, hasPassed(2*time.Minute))
		}
		return nil
	}
	require.NoError(t, m.Apply(t.Context(), "new", content, restart))
	assert.False(t, hasPassed(2*time.Minute))
	assert.False(t, hasPassed(3*time.Minute-1))
	assert.True(t, hasPassed(3*time.Minute))
	require.NoError(t, m.Resume(t.Context()))
	require.NoError(t, h.Confirm("new"))
}

func TestGuardUndoesOnlyTheChangeThatItJudged(t *testing.T) {
	p := play(t)
	h, m := p.open(tree.Options{})
	require.NoError(t, m.Apply(t.Context(), "judged", content, restart))
	judged, _, err := h.Pending()
	require.NoError(t, err)
	require.NoError(t, m.Undo(t.Context()))
	require.NoError(t, m.Apply(t.Context(), "other", config.Content{}, restart))
	p.Calls = nil
	require.ErrorIs(t, m.RollBack(t.Context(), judged, "a check failed"), host.ErrPending)
	change, pending, err := h.Pending()
	require.NoError(t, err)
	assert.True(t, pending)
	assert.Equal(t, host.Applied, change.Phase)
	assert.Empty(t, p.Calls)
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
			assert.Equal(t, []string{"reload files", "restart " + config.GuardUnit}, p.Calls)
		}
		return nil
	}})
	require.NoError(t, m.Apply(t.Context(), "new", content, nil))
	assert.True(t, seen)
	unit, err := os.ReadFile(p.Root + "/etc/systemd/system/" + config.GuardUnit)
	require.NoError(t, err)
	assert.Contains(t, string(unit), "\nExecStart=\"/guard\"\n")
	assert.Contains(t, string(unit), " boot.mount boot-efi.mount\n", "a rollback writes there")
	require.ErrorIs(t, h.DisableGuard(), host.ErrPending)
	require.NoError(t, h.Confirm("new"))
	assert.False(t, p.isGuarded())
	assert.NoFileExists(t, p.Root+"/etc/systemd/system/"+config.GuardUnit)
}

func TestGuardWithoutAChangeDisablesItself(t *testing.T) {
	p := play(t)
	h, _ := p.open(tree.Options{})
	require.NoError(t, h.MakeFolder()) // it has the guard's program
	p.Write(link, "")
	require.NoError(t, p.guard(tree.Options{}).Run(t.Context()))
	assert.False(t, p.isGuarded())
}

type death struct{}

// guardUntil runs a guard that has seen a failure for long enough, as a process that dies before an operation on the host or a request to its init system.
// boot boots the machine after a request.
func (p *testMachine) guardUntil(operation int, boot func()) (hasDied bool) {
	defer func() {
		if r := recover(); r != nil {
			require.IsType(p.t, death{}, r)
			hasDied = true
		}
	}()
	step := func() error {
		if operation--; operation < 0 {
			panic(death{})
		}
		return nil
	}
	p.During = func(string) error { return step() }
	g := p.guard(tree.Options{Step: func(string, string) error { return step() }})
	g.options.BootDeadline = time.Nanosecond
	now := time.Duration(0)
	g.uptime = func() time.Duration { now += interval; return now }
	for hasEnded := false; !hasEnded; {
		var err error
		if hasEnded, err = g.look(p.t.Context()); errors.Is(err, machine.ErrRebooting) {
			boot()
		} else {
			require.NoError(p.t, err)
		}
	}
	return false
}

// never is an operation at which no process dies.
const never = 1_000_000

// TestKilledGuardIsContinued ends the guard before each operation of its undo. The next one completes the undo, and keeps the reason.
func TestKilledGuardIsContinued(t *testing.T) {
	for operation := 0; ; operation++ {
		p := play(t)
		_, m := p.open(tree.Options{})
		require.ErrorIs(t, m.Apply(t.Context(), "new", content, reboot), machine.ErrRebooting)
		p.Boot()
		p.Write("/etc/motd", "broken at boot")
		if hasDied := p.guardUntil(operation, p.Boot); !hasDied {
			assert.Greater(t, operation, 20)
			return
		}
		p.guardUntil(never, p.Boot)
		require.Equal(t, "of the host", p.motd(), operation)
		require.Equal(t, "new", p.rolledBack().Config, operation)
		require.Contains(t, p.rolledBack().Reason, "/etc/motd: different data", operation)
		require.False(t, p.isGuarded(), operation)
	}
}

// TestGuardContinuesInTheFormerDeployment ends the guard, or the power, before each operation of an undo with bootc. It ends in the former deployment with
// the former /etc.
func TestGuardContinuesInTheFormerDeployment(t *testing.T) {
	const former, image = "registry.example.com/os:9", "registry.example.com/os@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	stride := 1
	if testing.Short() {
		stride = 5
	}
	for _, losesPower := range []bool{false, true} {
		for operation := 0; ; operation += stride {
			p := play(t)
			bootc := p.PlayBootc(former)
			_, m := p.open(tree.Options{})
			require.ErrorIs(t, m.Apply(t.Context(), "new", config.Content{Files: content.Files, OSImage: image}, reboot), machine.ErrRebooting)
			bootc.Shutdown()
			require.Equal(t, image, bootc.State("booted"))
			require.True(t, p.isGuarded())
			p.Write("/etc/motd", "broken at boot")

			boots := 0
			boot := func() { boots++; bootc.Shutdown() }
			hasDied := p.guardUntil(operation, boot)
			if hasDied && losesPower {
				boots++
				bootc.PowerCut()
			}
			p.guardUntil(never, boot)
			require.Equal(t, former, bootc.State("booted"), operation)
			require.Equal(t, "of the host", p.motd(), operation)
			require.Equal(t, "new", p.rolledBack().Config, operation)
			require.False(t, p.isGuarded(), operation)
			require.LessOrEqual(t, boots, 3, operation)
			if !hasDied {
				assert.Equal(t, 2, boots, "one to the former deployment, and one with its restored files")
				assert.Greater(t, operation, 20)
				break
			}
		}
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
