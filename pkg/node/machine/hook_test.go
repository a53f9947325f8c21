//go:build linux

package machine_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/pkg/node/machine"
	"github.com/cluster-version/cvo/test/ring"
)

// hook is a hook that keeps what the next boot gets in a file. It fails to apply if the host has the file "fails".
var hook = config.File{Path: machine.HookFile, Mode: 0o755, Data: []byte(`#!/bin/sh
root=${0%/*/*/*}
case $0 in */var/lib/cvo-node/former) root=${root%/var} ;; esac
echo "$1" >>"$root/hook-calls"
case $1 in
apply)
	cat >"$root/next"
	if [ -e "$root/fails" ]; then
		echo "no space in /boot" >&2
		exit 1
	fi
	if [ -e "$root/hangs" ]; then
		sleep 1000
	fi
	;;
rollback) cat >"$root/next" ;;
booted) if [ -e "$root/running" ]; then cat "$root/running"; else echo {}; fi ;;
esac
`)}

// withHook is a config that brings the hook and a kernel argument.
var withHook = config.Content{Files: append([]config.File{hook}, content.Files...), KernelArguments: []string{"quiet"}}

// bootHook makes what the hook has set last the parameters of the running boot.
func (p *testMachine) bootHook() {
	next, err := os.ReadFile(p.Root + "/next")
	if err == nil {
		p.Write("/running", string(next))
	}
}

// booted returns whether the machine has booted with the test's kernel argument or image.
func (p *testMachine) booted() bool {
	if p.bootc != nil {
		return p.bootc.State("booted") == newImage
	}
	running, err := os.ReadFile(p.Root + "/running")
	return err == nil && strings.Contains(string(running), "quiet")
}

// readCalls returns the calls of the hook.
func (p *testMachine) readCalls() string {
	calls, err := os.ReadFile(p.Root + "/hook-calls")
	if err != nil {
		return ""
	}
	return string(calls)
}

// hookCalls returns the calls of the hook since the last call of hookCalls.
func (p *testMachine) hookCalls() string {
	calls := p.readCalls()
	if calls != "" {
		require.NoError(p.t, os.Remove(p.Root+"/hook-calls"))
	}
	return strings.Join(strings.Fields(calls), " ")
}

func TestHookSetsKernelArguments(t *testing.T) {
	p := play(t)
	m, h := p.open(tree.Options{})
	require.ErrorIs(t, m.Apply(t.Context(), "new", withHook, reboot), machine.ErrRebooting)
	assert.Equal(t, "booted apply", p.hookCalls())
	p.boot()
	require.NoError(t, m.Resume(t.Context()))
	assert.True(t, p.booted())
	require.NoError(t, h.Confirm("new"))
	p.hookCalls()

	// A config with the same parameters does not call the hook.
	same := withHook
	same.Files = append([]config.File{hook}, config.File{Path: "/etc/changed", Mode: 0o600, Data: []byte("newer")})
	require.ErrorIs(t, m.Apply(t.Context(), "same", same, reboot), machine.ErrRebooting)
	assert.Empty(t, p.hookCalls())
	p.boot()
	require.NoError(t, m.Resume(t.Context()))
	require.NoError(t, h.Confirm("same"))

	// Another one can take them away, also together with the hook.
	for _, without := range []config.Content{{Files: []config.File{hook}}, {}} {
		require.ErrorIs(t, m.Apply(t.Context(), "without", without, reboot), machine.ErrRebooting)
		p.boot()
		require.NoError(t, m.Resume(t.Context()))
		assert.False(t, p.booted())
		if without.Files == nil {
			break
		}
		require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting)
		p.boot()
		require.NoError(t, m.Undo(t.Context()))
		assert.True(t, p.booted())
		p.hookCalls()
	}
	assert.Equal(t, "booted apply booted", p.hookCalls())
	require.NoError(t, h.Confirm("without"))
	assert.NoFileExists(t, p.Root+"/var/lib/cvo-node/former")
}

// TestInterruptedRemovalOfTheHookIsCompleted ends the process, or the power, before each operation of a change that removes the hook and its argument.
func TestInterruptedRemovalOfTheHookIsCompleted(t *testing.T) {
	for _, losesPower := range []bool{false, true} {
		for operation := 0; ; operation += ring.Stride() {
			p := play(t)
			m, h := p.open(tree.Options{})
			require.ErrorIs(t, m.Apply(t.Context(), "with", withHook, reboot), machine.ErrRebooting)
			p.boot()
			require.NoError(t, m.Resume(t.Context()))
			require.NoError(t, h.Confirm("with"))

			hasDied := func() (hasDied bool) {
				defer func() { hasDied = recover() != nil }()
				left := operation
				m, _ := p.open(tree.Options{Step: func(string, string) error {
					if left--; left < 0 {
						panic("killed")
					}
					return nil
				}})
				require.ErrorIs(t, m.Apply(t.Context(), "without", config.Content{}, reboot), machine.ErrRebooting)
				return false
			}()
			if losesPower {
				p.boot()
			}
			_, isBegun := p.pending()
			for err := m.Resume(t.Context()); err != nil; err = m.Resume(t.Context()) {
				require.ErrorIs(t, err, machine.ErrRebooting, operation)
				p.boot()
			}
			require.Equal(t, !isBegun, p.booted(), operation)
			require.Equal(t, isBegun, p.files() == before, operation)
			if !hasDied {
				assert.Greater(t, operation, 20)
				break
			}
		}
	}
}

func TestMachineThatBootsWithOtherArgumentsDiffers(t *testing.T) {
	p := play(t)
	m, _ := p.open(tree.Options{})
	require.ErrorIs(t, m.Apply(t.Context(), "new", withHook, reboot), machine.ErrRebooting)
	require.NoError(t, os.Remove(p.Root+"/next"))
	p.boot()
	err := m.Resume(t.Context())
	require.ErrorIs(t, err, machine.ErrDiffers)
	require.ErrorContains(t, err, `/etc/cvo-node/hook: booted with kernel arguments "" instead of kernel arguments "quiet"`)

	require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting)
	assert.Equal(t, "booted apply booted rollback", p.hookCalls(), "the hook is still there for the rollback")
	assert.Equal(t, before, p.files())
	assert.NoFileExists(t, p.Root+machine.HookFile)
}

func TestFailedHookUndoesTheChange(t *testing.T) {
	p := play(t)
	p.Write("/fails", "")
	m, _ := p.open(tree.Options{})
	require.EqualError(t, m.Apply(t.Context(), "new", withHook, reboot),
		"applying new: running /etc/cvo-node/hook apply: exit status 1: no space in /boot")
	assert.Equal(t, "booted apply rollback", p.hookCalls(), "it may have set something")
	p.boot()
	assert.False(t, p.booted())
	assert.Equal(t, before, p.files())
	assert.Empty(t, p.Calls)
	_, pending := p.pending()
	assert.False(t, pending)
}

func TestBrokenRollbackLeavesTheChangePending(t *testing.T) {
	p := play(t)
	m, h := p.open(tree.Options{})
	require.ErrorIs(t, m.Apply(t.Context(), "new", withHook, reboot), machine.ErrRebooting)
	p.boot()
	change, _ := p.pending()
	p.hookCalls()
	require.ErrorIs(t, m.RollBack(t.Context(), host.Change{To: host.Config{Name: "other"}}, "a check failed"), host.ErrPending)
	assert.Empty(t, p.hookCalls())
	require.NoError(t, os.Chmod(p.Root+machine.HookFile, 0o600))
	for _, undo := range []func() error{
		func() error { return m.RollBack(t.Context(), change, "a check failed") },
		func() error { return m.Undo(t.Context()) },
	} {
		err := undo()
		require.ErrorIs(t, err, host.ErrNotUndone)
		require.ErrorContains(t, err, "the node has no executable program /etc/cvo-node/hook")
		assert.Equal(t, after, p.files())
	}
	require.NoError(t, os.Chmod(p.Root+machine.HookFile, 0o700))
	require.ErrorIs(t, m.RollBack(t.Context(), change, "a check failed"), machine.ErrRebooting)
	p.boot()
	require.NoError(t, m.Undo(t.Context()))
	assert.False(t, p.booted())
	state, err := h.State()
	require.NoError(t, err)
	assert.Equal(t, "a check failed", state.RolledBack.Reason)
}

// TestHookOfAConfigDoesNotOutliveIt has a config that keeps the arguments and drops the hook that the config before has brought.
func TestHookOfAConfigDoesNotOutliveIt(t *testing.T) {
	p := play(t)
	m, h := p.open(tree.Options{})
	require.ErrorIs(t, m.Apply(t.Context(), "new", withHook, reboot), machine.ErrRebooting)
	p.boot()
	require.NoError(t, m.Resume(t.Context()))
	require.NoError(t, h.Confirm("new"))
	assert.Empty(t, m.Unsupported(withHook))
	assert.Contains(t, m.Unsupported(config.Content{KernelArguments: []string{"quiet"}}), "this node cannot change kernel arguments")
}

// TestUnusableHookSetsNothing has a hook that cannot even report. Its change is undone without it.
func TestUnusableHookSetsNothing(t *testing.T) {
	p := play(t)
	m, _ := p.open(tree.Options{})
	broken := withHook
	broken.Files = append([]config.File{{Path: machine.HookFile, Mode: 0o755, Data: []byte("#!/bin/sh\nexit 7\n")}}, content.Files...)
	require.ErrorContains(t, m.Apply(t.Context(), "new", broken, reboot), "/etc/cvo-node/hook cannot be used: running /etc/cvo-node/hook booted: exit status 7")
	assert.Equal(t, before, p.files())
	_, pending := p.pending()
	assert.False(t, pending)
}

// TestHangingHookEnds has a hook whose child holds its output.
func TestHangingHookEnds(t *testing.T) {
	p := play(t)
	p.Write("/hangs", "")
	m, _ := p.open(tree.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !strings.Contains(p.readCalls(), "apply") {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	require.ErrorContains(t, m.Apply(ctx, "new", withHook, reboot), "running /etc/cvo-node/hook apply: signal: killed")
	require.NoError(t, os.Remove(p.Root+"/hangs"))
	require.ErrorIs(t, m.Resume(t.Context()), machine.ErrRebooting, "the next process repeats it")
}

// TestConfirmationComesTooLateAfterARollBackHasBegun kills the guard between the hook and the undo of the files.
func TestConfirmationComesTooLateAfterARollBackHasBegun(t *testing.T) {
	p := play(t)
	m, _ := p.open(tree.Options{})
	require.ErrorIs(t, m.Apply(t.Context(), "new", withHook, reboot), machine.ErrRebooting)
	p.boot()
	change, _ := p.pending()
	writes := 0
	guard, _ := p.open(tree.Options{Step: func(_, path string) error {
		if writes++; strings.HasPrefix(path, "/etc/") {
			panic("killed")
		}
		return nil
	}})
	assert.Panics(t, func() { _ = guard.RollBack(t.Context(), change, "a check failed") })
	assert.Contains(t, p.hookCalls(), "rollback")
	require.ErrorIs(t, m.Confirm(t.Context(), "new"), host.ErrNotApplied)
	require.ErrorIs(t, m.Resume(t.Context()), host.ErrUndoing)
	require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting)
	p.boot()
	require.NoError(t, m.Undo(t.Context()))
	assert.Equal(t, before, p.files())
	assert.False(t, p.booted())
}

func TestKeysNeedTheirUser(t *testing.T) {
	p := play(t)
	m, _ := p.open(tree.Options{})
	keys := config.Content{SSHKeys: []string{"ssh-ed25519 AAAA a@example.com"}}
	assert.Contains(t, m.Unsupported(keys), "this node cannot change SSH keys, because it has no user core: ")
	p.Write("/etc/passwd", "core:x:1000:1000::/home/core:/bin/sh\n")
	assert.Empty(t, m.Unsupported(keys))
}

func TestMachineWithoutAHookHasNoBootParameters(t *testing.T) {
	p := play(t)
	m, _ := p.open(tree.Options{})
	without := config.Content{KernelArguments: []string{"quiet"}, OSImage: "registry.example.com/os@sha256:0a"}
	const text = "this node cannot change an image of the operating system, kernel arguments: remove that from the MachineConfigs of its pool, " +
		"or move the node to another pool, or give the node a program /etc/cvo-node/hook for the kernel arguments and the image"
	assert.Equal(t, text, m.Unsupported(without))
	assert.Empty(t, m.Unsupported(withHook), "the config brings it")
	p.Write(machine.HookFile, "")
	assert.Equal(t, text, m.Unsupported(without), "it is not executable")
	require.NoError(t, os.Chmod(p.Root+machine.HookFile, 0o700))
	assert.Empty(t, m.Unsupported(without), "the host has it")
	without.FIPS = true
	assert.Equal(t, "this node cannot change FIPS mode: remove that from the MachineConfigs of its pool, or move the node to another pool", m.Unsupported(without))

	_, h := p.open(tree.Options{})
	folder := machine.New(h, machine.Options{})
	assert.Empty(t, folder.Unsupported(without))
	assert.False(t, folder.ChangesBoot(config.Content{}, without))
}
