//go:build linux

package machine_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/pkg/node/machine"
)

const (
	// oldImage has a tag: the administrator has installed the machine from it.
	oldImage = "registry.example.com/os:9"
	newImage = "registry.example.com/os@sha256:1111111111111111111111111111111111111111111111111111111111111111"

	switches = "bootc switch --quiet " + newImage
	unstages = "ostree admin undeploy 0"
	rolls    = "bootc rollback"
)

// withImage is a config with an image.
var withImage = config.Content{Files: content.Files, OSImage: newImage}

func (p *testMachine) playBootc() { p.bootc = p.PlayBootc(oldImage) }

// playWithBootc returns a machine that bootc has booted with the old image.
func playWithBootc(t *testing.T) *testMachine {
	p := play(t)
	p.playBootc()
	return p
}

// osRelease returns the file of /etc that comes from the image.
func (p *testMachine) osRelease() string {
	data, err := os.ReadFile(p.Root + "/etc/os-release")
	require.NoError(p.t, err)
	return string(data)
}

// bootsNew applies the config with the new image, and boots it.
func (p *testMachine) bootsNew() *machine.Machine {
	p.t.Helper()
	m, _ := p.open(tree.Options{})
	require.ErrorIs(p.t, m.Apply(p.t.Context(), "new", withImage, reboot), machine.ErrRebooting)
	p.boot()
	require.True(p.t, p.booted())
	return m
}

func TestBootcSetsTheImage(t *testing.T) {
	p := playWithBootc(t)
	m, h := p.open(tree.Options{})
	require.ErrorIs(t, m.Apply(t.Context(), "new", withImage, reboot), machine.ErrRebooting)
	assert.False(t, p.booted())
	p.boot()
	require.NoError(t, m.Resume(t.Context()))
	assert.True(t, p.booted())
	assert.Equal(t, after, p.files())
	assert.Equal(t, newImage, p.osRelease())
	require.NoError(t, h.Confirm("new"))
	assert.Equal(t, []string{switches}, p.bootc.Commands())

	// A config with the same image does not call bootc, and one without an image keeps it. A later undo keeps it, too.
	for _, next := range []config.Content{{OSImage: newImage}, {}, withImage} {
		require.ErrorIs(t, m.Apply(t.Context(), "next", next, reboot), machine.ErrRebooting)
		p.boot()
		require.NoError(t, m.Resume(t.Context()))
		if next.Files == nil {
			require.NoError(t, h.Confirm("next"))
			assert.Empty(t, p.bootc.Commands())
		}
	}
	require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting)
	p.boot()
	require.NoError(t, m.Undo(t.Context()))
	assert.Equal(t, []string{switches}, p.bootc.Commands(), "the change has set no other image")
	assert.True(t, p.booted())
	assert.Equal(t, before, p.files())
}

// TestBootcUndoesTheFilesInTheFormerDeployment undoes a change after its reboot: first the deployment, then the files of that one.
func TestBootcUndoesTheFilesInTheFormerDeployment(t *testing.T) {
	p := playWithBootc(t)
	m := p.bootsNew()
	p.bootc.Commands()
	change, _ := p.pending()
	require.ErrorIs(t, m.RollBack(t.Context(), change, "a check failed"), machine.ErrRebooting)
	require.ErrorIs(t, m.RollBack(t.Context(), change, ""), machine.ErrRebooting, "the same boot requests it again")
	assert.Equal(t, []string{rolls}, p.bootc.Commands())
	assert.Equal(t, after, p.files(), "the files belong to the new image")
	p.boot()
	assert.False(t, p.booted())
	assert.Equal(t, after, p.files(), "the former deployment has what the change has written before the reboot")

	require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting, "this boot has used the files")
	assert.Equal(t, before, p.files())
	p.boot()
	require.NoError(t, m.Undo(t.Context()))
	assert.Empty(t, p.bootc.Commands())
	assert.False(t, p.booted())
	assert.Equal(t, oldImage, p.osRelease())
	assert.Equal(t, before, p.inUse)
	_, h := p.open(tree.Options{})
	state, err := h.State()
	require.NoError(t, err)
	assert.Equal(t, host.RolledBack{Config: "new", Reason: "a check failed"}, state.RolledBack)

	// The same image can be tried again.
	p.bootsNew()
	require.NoError(t, m.Resume(t.Context()))
	assert.Equal(t, newImage, p.osRelease())
	assert.Equal(t, after, p.files())
}

// TestServiceUndoesAChangeWithBootc has a daemon that requests the undo of services, before and after each boot.
func TestServiceUndoesAChangeWithBootc(t *testing.T) {
	r := &runner{testMachine: playWithBootc(t)}
	m, h := r.remote()
	require.NoError(t, h.Stage("new", withImage))
	require.ErrorIs(t, m.Apply(t.Context(), "new", withImage, reboot), machine.ErrRebooting)
	r.boot()
	for range 2 {
		require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting)
		require.ErrorIs(t, m.Confirm(t.Context(), "new"), host.ErrNotApplied)
		r.boot()
	}
	require.NoError(t, m.Undo(t.Context()))
	assert.Equal(t, []string{switches, rolls}, r.bootc.Commands())
	assert.Equal(t, before, r.inUse)
	assert.Equal(t, oldImage, r.osRelease())
}

func TestUndoBeforeTheRebootUnstagesTheImage(t *testing.T) {
	p := playWithBootc(t)
	m, _ := p.open(tree.Options{})
	require.ErrorIs(t, m.Apply(t.Context(), "new", withImage, reboot), machine.ErrRebooting)
	require.NoError(t, m.Undo(t.Context()))
	assert.Equal(t, []string{switches, unstages}, p.bootc.Commands())
	p.boot()
	assert.False(t, p.booted())
	assert.Equal(t, before, p.files())
	assert.Equal(t, oldImage, p.osRelease())
}

// TestFailedSwitchUndoesTheChange has a bootc that fails, or is killed after it has staged the image.
func TestFailedSwitchUndoesTheChange(t *testing.T) {
	for file, want := range map[string]string{
		"fails": "applying new: running bootc switch --quiet " + newImage + ": exit status 1: error: switch fails",
		"dies":  "applying new: running bootc switch --quiet " + newImage + ": signal: killed: ",
	} {
		p := playWithBootc(t)
		p.bootc.SetState(file, "switch")
		m, _ := p.open(tree.Options{})
		require.EqualError(t, m.Apply(t.Context(), "new", withImage, reboot), want)
		assert.Empty(t, p.bootc.Staged(), file)
		assert.Equal(t, before, p.files(), file)
		assert.Empty(t, p.Calls, file)
		_, pending := p.pending()
		assert.False(t, pending, file)
	}
}

func TestFailedRollbackLeavesTheChangePending(t *testing.T) {
	p := playWithBootc(t)
	m := p.bootsNew()
	p.bootc.SetState("fails", "rollback")
	err := m.Undo(t.Context())
	require.ErrorIs(t, err, host.ErrNotUndone)
	require.ErrorContains(t, err, "running bootc rollback: exit status 1: error: rollback fails")
	p.bootc.SetState("fails", "")
	p.bootc.SetState("rollback", "registry.example.com/os:8")
	err = m.Undo(t.Context())
	require.ErrorIs(t, err, host.ErrNotUndone)
	require.ErrorContains(t, err, "bootc has no deployment of registry.example.com/os:9: run 'bootc switch' with it and reboot the node")
	assert.Equal(t, after, p.files())
	assert.Len(t, p.Calls, 1)

	// As the message says.
	p.Write("/run/staged", oldImage)
	p.wantsReboot = true
	p.boot()
	require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting)
	p.boot()
	require.NoError(t, m.Undo(t.Context()))
	assert.Equal(t, before, p.files())
	assert.Equal(t, oldImage, p.osRelease())
}

// TestKilledRollbackIsNotReverted has a bootc that is killed after its work. The command is a toggle, so it must not run again.
func TestKilledRollbackIsNotReverted(t *testing.T) {
	p := playWithBootc(t)
	m := p.bootsNew()
	p.bootc.Commands()
	p.bootc.SetState("dies", "rollback")
	require.ErrorIs(t, m.Undo(t.Context()), host.ErrNotUndone)
	require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting)
	assert.Equal(t, []string{rolls}, p.bootc.Commands())
	p.boot()
	assert.False(t, p.booted())
}

// TestImageThatAPowerCutHasUnstagedIsStagedAgain loses the staged image before the shutdown: once, or each time.
func TestImageThatAPowerCutHasUnstagedIsStagedAgain(t *testing.T) {
	for _, isPermanent := range []bool{false, true} {
		p := playWithBootc(t)
		m, _ := p.open(tree.Options{})
		require.ErrorIs(t, m.Apply(t.Context(), "new", withImage, reboot), machine.ErrRebooting)
		p.wantsReboot = false
		p.boot()
		require.ErrorIs(t, m.Resume(t.Context()), machine.ErrRebooting)
		p.wantsReboot = !isPermanent
		p.boot()
		assert.Equal(t, []string{switches, switches}, p.bootc.Commands())
		err := m.Resume(t.Context())
		if !isPermanent {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, machine.ErrDiffers)
		require.ErrorContains(t, err, "bootc: booted with image "+oldImage+" instead of image "+newImage)
		require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting)
		p.boot()
		require.NoError(t, m.Undo(t.Context()))
		assert.Empty(t, p.bootc.Commands())
		assert.Equal(t, before, p.files())
	}
}

// TestFallbackOfTheBootLoaderIsKept has a boot loader that returns to the former deployment by itself, for one boot.
func TestFallbackOfTheBootLoaderIsKept(t *testing.T) {
	p := playWithBootc(t)
	m := p.bootsNew()
	p.bootc.FallBack()
	p.bootc.Commands()
	require.ErrorIs(t, m.Resume(t.Context()), machine.ErrDiffers)
	require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting)
	assert.Equal(t, []string{rolls}, p.bootc.Commands())
	p.boot()
	require.NoError(t, m.Undo(t.Context()))
	assert.False(t, p.booted())
	assert.Equal(t, before, p.files())
}

// TestImageOfAnAdministratorIsKept has an administrator who boots a third image while a change is pending.
func TestImageOfAnAdministratorIsKept(t *testing.T) {
	p := playWithBootc(t)
	m := p.bootsNew()
	p.bootc.Commands()
	p.Write("/run/staged", "registry.example.com/debug:1")
	p.wantsReboot = true
	p.boot()
	require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting)
	assert.Equal(t, before, p.files())
	assert.Empty(t, p.bootc.Commands())
}

func TestHostThatBootcHasNotBootedIsNamed(t *testing.T) {
	p := playWithBootc(t)
	m, _ := p.open(tree.Options{})
	remote, _ := (&runner{testMachine: p}).remote()
	const text = "bootc cannot be used: it has not booted this host: install the host from an image, or give it a program /etc/cvo-node/hook"
	for _, stage := range []func(context.Context, config.Content) error{m.Stage, remote.Stage} {
		require.NoError(t, stage(t.Context(), withImage))
		p.bootc.SetState("composefs", "")
		require.ErrorIs(t, stage(t.Context(), withImage), machine.ErrUnusable)
		require.NoError(t, os.Remove(p.Root+"/sysroot/composefs"))
		p.bootc.SetState("booted", "")
		err := stage(t.Context(), withImage)
		require.ErrorIs(t, err, machine.ErrUnusable)
		require.EqualError(t, err, text)
		p.bootc.SetState("booted", oldImage)
		require.NoError(t, stage(t.Context(), content))
		require.NoError(t, stage(t.Context(), withHook))
	}
	p.bootc.SetState("booted", "")
	require.EqualError(t, m.Apply(t.Context(), "new", withImage, reboot), "applying new: "+text, "it may have changed since then")
	assert.Empty(t, p.bootc.Commands())
	assert.Equal(t, before, p.files())
	_, pending := p.pending()
	assert.False(t, pending)
}

func TestHookReplacesBootc(t *testing.T) {
	p := playWithBootc(t)
	m, _ := p.open(tree.Options{})
	both := withHook
	both.OSImage = "registry.example.com/os:9"
	assert.Empty(t, m.Unsupported(both))
	require.ErrorIs(t, m.Apply(t.Context(), "new", both, reboot), machine.ErrRebooting)
	assert.Equal(t, "booted apply", p.hookCalls())
	assert.Empty(t, p.bootc.Commands())
}

func TestBootcNeedsADigestAndHasNoKernelArguments(t *testing.T) {
	p := playWithBootc(t)
	m, _ := p.open(tree.Options{})
	assert.Empty(t, m.Unsupported(withImage))
	const remedy = ": remove that from the MachineConfigs of its pool, or move the node to another pool, or "
	name, digest, _ := strings.Cut(newImage, "@")
	for _, image := range []string{name, name + ":9", name + ":9@" + digest, name + "@sha256:11", "--help" + newImage, "os@" + digest} {
		assert.Equal(t, "this node cannot change an image of the operating system by tag"+remedy+"name the image by its digest and without a tag",
			m.Unsupported(config.Content{OSImage: image}), image)
	}
	assert.Empty(t, m.Unsupported(config.Content{OSImage: "registry.example.com:5000/os@" + digest}))
	assert.Equal(t, "this node cannot change kernel arguments"+remedy+
		"build the kernel arguments into the image, or give the node a program /etc/cvo-node/hook for the kernel arguments and the image",
		m.Unsupported(config.Content{OSImage: newImage, KernelArguments: []string{"quiet"}}))

	for _, file := range []string{"/run/ostree-booted", "/usr/bin/bootc", "/usr/bin/ostree"} {
		p := playWithBootc(t)
		m, _ := p.open(tree.Options{})
		require.NoError(t, os.Remove(p.Root+file))
		assert.Contains(t, m.Unsupported(withImage), "this node cannot change an image of the operating system: ")
	}
}
