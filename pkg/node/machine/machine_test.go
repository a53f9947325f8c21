//go:build linux

package machine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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
	played "github.com/cluster-version/cvo/test/machine"
	"github.com/cluster-version/cvo/test/ring"
)

func TestMain(m *testing.M) {
	// The temporary folders of these tests are in memory where the system allows it: on a disk, the tests are ten times slower.
	const memory = "/dev/shm"
	if unix.Access(memory, unix.W_OK) == nil {
		if err := os.Setenv("TMPDIR", memory); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// testMachine plays a machine, and knows which files are in use.
type testMachine struct {
	*played.Machine
	t *testing.T
	// fails returns the error of a request; nil for none.
	fails func(call string) error
	// inUse are the files with which the machine has booted, or its services have restarted.
	inUse string
	// wantsReboot is true after a request, until the boot.
	wantsReboot bool
	// bootc is nil if the machine has none.
	bootc *played.Bootc
}

func play(t *testing.T) *testMachine {
	p := &testMachine{Machine: played.Play(t, t.TempDir()), t: t, fails: func(string) error { return nil }}
	p.Write("/etc/changed", "of the host")
	p.inUse = p.files()
	p.During = func(call string) error {
		if err := p.fails(call); err != nil {
			return err
		}
		switch verb, _, _ := strings.Cut(call, " "); verb {
		case "restart":
			p.inUse = p.files()
		case "reboot":
			p.wantsReboot = true
		}
		return nil
	}
	p.Reloadable = func(unit string) bool { return unit == "reloadable.service" }
	p.Unit = func(unit string) (exists, hasFailed bool, err error) {
		assert.NotContains(t, unit, "@.", "systemd rejects the name of a template")
		return unit == "a.service", strings.HasPrefix(unit, "failed"), nil
	}
	return p
}

// files returns the data of the files that the test's config changes.
func (p *testMachine) files() string {
	var all []string
	for _, name := range []string{"/etc/changed", "/etc/created"} {
		data, err := os.ReadFile(p.Root + name)
		if errors.Is(err, os.ErrNotExist) {
			data = []byte("-")
		} else {
			require.NoError(p.t, err)
		}
		all = append(all, string(data))
	}
	return strings.Join(all, ", ")
}

// boot boots the machine, after a shutdown if one is requested.
func (p *testMachine) boot() {
	switch {
	case p.bootc == nil:
		p.Boot()
	case p.wantsReboot:
		p.bootc.Shutdown()
	default:
		p.bootc.PowerCut()
	}
	p.wantsReboot = false
	p.inUse = p.files()
	p.bootHook()
}

// open returns the machine as a new process sees it.
func (p *testMachine) open(options tree.Options) (*machine.Machine, *host.Host) {
	p.t.Helper()
	options.Sync = func(*os.File) error { return nil }
	h, err := host.Open(p.Root, host.Options{Tree: options})
	require.NoError(p.t, err)
	p.t.Cleanup(func() { assert.NoError(p.t, h.Close()) })
	return machine.New(h, machine.Options{Init: p.Machine, Root: p.Root}), h
}

func (p *testMachine) pending() (host.Change, bool) {
	p.t.Helper()
	_, h := p.open(tree.Options{})
	change, pending, err := h.Pending()
	require.NoError(p.t, err)
	return change, pending
}

var (
	reboot   = []disruption.Action{{Type: operatorv1.RebootStatusAction}}
	services = []disruption.Action{
		{Type: operatorv1.DrainStatusAction},
		{Type: operatorv1.DaemonReloadStatusAction},
		{Type: operatorv1.RestartStatusAction, Restart: &operatorv1.RestartService{ServiceName: "a.service"}},
		{Type: operatorv1.ReloadStatusAction, Reload: &operatorv1.ReloadService{ServiceName: "b.service"}},
	}
	content = config.Content{Files: []config.File{
		{Path: "/etc/changed", Mode: 0o600, Data: []byte("new")}, {Path: "/etc/created", Mode: 0o600, Data: []byte("new")},
	}}
)

const (
	before = "of the host, -"
	after  = "new, new"
)

func TestActionsFollowTheFilesInTheirOrder(t *testing.T) {
	p := play(t)
	m, h := p.open(tree.Options{})
	require.NoError(t, m.Apply(t.Context(), "new", content, services))
	assert.Equal(t, []string{"reload files", "restart a.service", "reload b.service"}, p.Calls)
	assert.Equal(t, after, p.inUse)
	require.NoError(t, h.Confirm("new"))

	p.Calls = nil
	require.NoError(t, m.Apply(t.Context(), "empty", config.Content{}, []disruption.Action{{Type: operatorv1.NoneStatusAction}}))
	assert.Empty(t, p.Calls)
}

func TestFailedServiceUndoesTheChange(t *testing.T) {
	p := play(t)
	p.fails = func(call string) error {
		if call == "reload b.service" && p.files() == after {
			return errors.New("exit code 1")
		}
		return nil
	}
	m, _ := p.open(tree.Options{})
	require.EqualError(t, m.Apply(t.Context(), "new", content, services), "applying new: exit code 1")
	assert.Equal(t, before, p.files())
	assert.Equal(t, before, p.inUse, "the services use the restored files")
	assert.Len(t, p.Calls, 6)
	_, pending := p.pending()
	assert.False(t, pending)
}

func TestServiceThatStaysBrokenLeavesTheChangePending(t *testing.T) {
	p := play(t)
	broken := errors.New("exit code 1")
	p.fails = func(string) error { return broken }
	m, _ := p.open(tree.Options{})
	require.ErrorIs(t, m.Apply(t.Context(), "new", content, services), host.ErrNotUndone)
	assert.Equal(t, before, p.files())
	require.ErrorIs(t, m.Resume(t.Context()), host.ErrUndoing)

	broken = nil
	require.NoError(t, m.Undo(t.Context()))
	assert.Equal(t, before, p.inUse)
	_, pending := p.pending()
	assert.False(t, pending)
}

func TestBootAfterTheUndoReplacesItsActions(t *testing.T) {
	p := play(t)
	p.fails = func(string) error { return errors.New("exit code 1") }
	m, _ := p.open(tree.Options{})
	require.ErrorIs(t, m.Apply(t.Context(), "new", content, services), host.ErrNotUndone)
	p.boot()
	require.NoError(t, m.Undo(t.Context()))
	_, pending := p.pending()
	assert.False(t, pending)
}

func TestActionsThatTheInitSystemRefusesAreNamed(t *testing.T) {
	m, _ := play(t).open(tree.Options{})
	reloaded := func(unit string) []disruption.Action {
		return []disruption.Action{{Type: operatorv1.ReloadStatusAction, Reload: &operatorv1.ReloadService{ServiceName: operatorv1.NodeDisruptionPolicyServiceName(unit)}}}
	}
	restarted := func(unit string) []disruption.Action {
		return []disruption.Action{{Type: operatorv1.RestartStatusAction, Restart: &operatorv1.RestartService{ServiceName: operatorv1.NodeDisruptionPolicyServiceName(unit)}}}
	}
	own := config.Content{Units: []config.Unit{{Name: "own.service"}}}
	for _, tt := range []struct {
		actions []disruption.Action
		want    string
	}{
		{reboot, ""},
		{reloaded("reloadable.service"), ""},
		{reloaded("own.service"), ""},
		{reloaded("a.service"), "Reload of unit a.service would fail on this node: the unit does not run or cannot be reloaded. Change the node disruption policy"},
		{restarted("a.service"), ""},
		{restarted("own.service"), ""},
		{restarted("b.service"), "Restart of unit b.service would fail on this node: the unit does not exist. Change the node disruption policy"},
	} {
		refusal, err := m.Refusal(t.Context(), own, tt.actions)
		require.NoError(t, err)
		assert.Equal(t, tt.want, refusal)
	}
}

// TestEndOfTheProcessDoesNotUndoTheChange ends the process during an action. The next process repeats the actions.
func TestEndOfTheProcessDoesNotUndoTheChange(t *testing.T) {
	p := play(t)
	ctx, end := context.WithCancel(t.Context())
	p.fails = func(string) error { end(); return ctx.Err() }
	m, _ := p.open(tree.Options{})
	require.ErrorIs(t, m.Apply(ctx, "new", content, services), context.Canceled)
	assert.Equal(t, after, p.files())

	p.fails = func(string) error { return nil }
	m, h := p.open(tree.Options{})
	require.NoError(t, m.Resume(t.Context()))
	assert.Equal(t, after, p.inUse)
	require.NoError(t, h.Confirm("new"))
}

func TestRebootCompletesAChange(t *testing.T) {
	p := play(t)
	m, h := p.open(tree.Options{})
	require.ErrorIs(t, m.Apply(t.Context(), "new", content, reboot), machine.ErrRebooting)
	require.ErrorIs(t, m.Resume(t.Context()), machine.ErrRebooting, "the same boot requests it again")
	assert.Equal(t, []string{"reboot", "reboot"}, p.Calls)
	p.boot()
	p.Write("/etc/created", "changed by a service")
	require.ErrorIs(t, m.Resume(t.Context()), machine.ErrDiffers)
	p.Write("/etc/created", "new")
	require.NoError(t, m.Resume(t.Context()))
	require.NoError(t, h.Confirm("new"))
	assert.Len(t, p.Calls, 2)
}

func TestUnitThatFailsAfterTheRebootPreventsTheConfirmation(t *testing.T) {
	p := play(t)
	m, _ := p.open(tree.Options{})
	units := config.Content{Units: []config.Unit{{Name: "failed.service", Contents: "[Unit]"}}}
	require.ErrorIs(t, m.Apply(t.Context(), "new", units, reboot), machine.ErrRebooting)
	p.boot()
	err := m.Resume(t.Context())
	require.ErrorIs(t, err, machine.ErrDiffers)
	require.EqualError(t, err, "the host differs from the config after the change: unit failed.service has failed")
	require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting)
}

func TestUndoRebootsOnlyAMachineThatHasBootedWithTheChange(t *testing.T) {
	p := play(t)
	m, _ := p.open(tree.Options{})
	require.ErrorIs(t, m.Apply(t.Context(), "new", content, reboot), machine.ErrRebooting)
	require.NoError(t, m.Undo(t.Context()))
	assert.Equal(t, []string{"reboot"}, p.Calls)

	require.ErrorIs(t, m.Apply(t.Context(), "new", content, reboot), machine.ErrRebooting)
	p.boot()
	require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting)
	assert.Equal(t, before, p.files())
	require.ErrorIs(t, m.Undo(t.Context()), machine.ErrRebooting, "the same boot requests it again")
	require.ErrorIs(t, m.Resume(t.Context()), host.ErrUndoing)
	p.boot()
	require.NoError(t, m.Undo(t.Context()))
	_, pending := p.pending()
	assert.False(t, pending)
	assert.Len(t, p.Calls, 4)
}

// TestMachineUsesTheFilesThatItHas interrupts a change, its continuation and its undo at each operation, with and without a loss of power. In the
// end, the machine has booted with its files, or its services have restarted with them.
func TestMachineUsesTheFilesThatItHas(t *testing.T) {
	type death struct{}
	continued := func(ctx context.Context, m *machine.Machine) error {
		err := m.Resume(ctx)
		if errors.Is(err, host.ErrUndoing) {
			err = m.Undo(ctx)
		}
		return err
	}
	undone := func(ctx context.Context, m *machine.Machine) error { return m.Undo(ctx) }
	for _, test := range []struct {
		name    string
		content config.Content
		actions []disruption.Action
		recover func(context.Context, *machine.Machine) error
	}{
		{"services, continued", content, services, continued},
		{"services, undone", content, services, undone},
		{"reboot, continued", content, reboot, continued},
		{"reboot, undone", content, reboot, undone},
		{"reboot with a hook, continued", withHook, reboot, continued},
		{"reboot with a hook, undone", withHook, reboot, undone},
		{"reboot with bootc, continued", withImage, reboot, continued},
		{"reboot with bootc, undone", withImage, reboot, undone},
	} {
		for _, losesPower := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, loss of power %v", test.name, losesPower), func(t *testing.T) {
				for first := 0; ; first += ring.Stride() {
					p := play(t)
					if test.content.OSImage != "" {
						p.playBootc()
					}
					// interrupted runs an action that dies before an operation. It reports whether the action has died.
					interrupted := func(operation int, action func(*machine.Machine) error) (hasDied bool) {
						defer func() {
							if r := recover(); r != nil {
								require.IsType(t, death{}, r)
								hasDied = true
								if losesPower {
									p.wantsReboot = false
									p.boot()
								}
							}
						}()
						step := func() error {
							if operation--; operation < 0 {
								panic(death{})
							}
							return nil
						}
						p.fails = func(string) error { return step() }
						m, _ := p.open(tree.Options{Step: func(string, string) error { return step() }})
						for err := action(m); err != nil; err = test.recover(t.Context(), m) {
							require.ErrorIs(t, err, machine.ErrRebooting)
							require.True(t, p.wantsReboot)
							p.boot()
						}
						return false
					}
					hasDied := interrupted(first, func(m *machine.Machine) error { return m.Apply(t.Context(), "new", test.content, test.actions) })
					// The second interruption is at another operation each time.
					interrupted(first%13, func(m *machine.Machine) error { return test.recover(t.Context(), m) })
					interrupted(1_000_000, func(m *machine.Machine) error { return test.recover(t.Context(), m) })
					require.Contains(t, []string{before, after}, p.files(), first)
					require.Equal(t, p.files(), p.inUse, first)
					require.Equal(t, p.files() == after && !test.content.BootsLike(config.Content{}), p.booted(), first)
					if change, pending := p.pending(); pending {
						require.Equal(t, host.Applied, change.Phase, first)
						require.Equal(t, after, p.files(), first)
					} else {
						require.Equal(t, before, p.files(), first)
					}
					booted, files := p.booted(), p.files()
					p.wantsReboot = true
					p.boot()
					require.Equal(t, booted, p.booted(), "%d: the next boot is another one", first)
					require.Equal(t, files, p.files(), first)
					if !hasDied {
						assert.Greater(t, first, 20)
						return
					}
				}
			})
		}
	}
}

func TestOnlyUnitsOfTheChangeCanFailIt(t *testing.T) {
	p := play(t)
	m, h := p.open(tree.Options{})
	units := config.Content{Units: []config.Unit{{Name: "a@.service", Contents: "[Unit]"}, {Name: "failed.service", Contents: "[Unit]"}}}
	failed := func(name string, content config.Content) string {
		t.Helper()
		require.NoError(t, m.Apply(t.Context(), name, content, nil))
		change, pending := p.pending()
		require.True(t, pending)
		difference, err := m.Difference(t.Context(), change, content)
		require.NoError(t, err)
		require.NoError(t, h.Confirm(name))
		return difference
	}
	assert.Equal(t, "unit failed.service has failed", failed("new", units))
	units.Files = content.Files
	assert.Empty(t, failed("other files", units), "the unit has failed before")
	units.Units[1].DropIns = []config.DropIn{{Name: "a.conf", Contents: "[Unit]"}}
	assert.Equal(t, "unit failed.service has failed", failed("a drop-in", units))
	units.Units[1].DropIns, units.Units[1].Enabled = nil, new(false)
	assert.Empty(t, failed("disabled", units))

	instance := config.Unit{Name: "failed@1.service", Enabled: new(true)}
	units = config.Content{Units: []config.Unit{{Name: "failed@.service", Contents: "[Unit]"}, instance}}
	assert.Equal(t, "unit failed@1.service has failed", failed("a template", units))
	units.Units[0].DropIns = []config.DropIn{{Name: "a.conf", Contents: "[Unit]"}}
	assert.Equal(t, "unit failed@1.service has failed", failed("a drop-in of the template", units))
	assert.Empty(t, failed("the same template", units))
}

// TestEachUnitOfAChangeIsCheckedOnce has a unit that the change creates and restarts, and one that it reloads twice.
func TestEachUnitOfAChangeIsCheckedOnce(t *testing.T) {
	p := play(t)
	m, _ := p.open(tree.Options{})
	units := config.Content{Units: []config.Unit{{Name: "a.service", Contents: "[Unit]"}}}
	require.NoError(t, m.Apply(t.Context(), "new", units, nil))
	change, _ := p.pending()
	change.Ran, change.Actions = true, slices.Concat(services, services)
	var checked []string
	p.Unit = func(unit string) (exists, hasFailed bool, err error) {
		checked = append(checked, unit)
		return true, false, nil
	}
	difference, err := m.Difference(t.Context(), change, units)
	require.NoError(t, err)
	assert.Empty(t, difference)
	assert.Equal(t, []string{"a.service", "b.service"}, checked)
}

func TestFolderHasNoActions(t *testing.T) {
	root := t.TempDir()
	h, err := host.Open(root, host.Options{})
	require.NoError(t, err)
	defer h.Close()
	m := machine.New(h, machine.Options{})
	accepted, err := m.Accepts(t.Context(), services[2])
	require.NoError(t, err)
	assert.True(t, accepted)
	require.NoError(t, m.Apply(t.Context(), "new", content, reboot))
	require.NoError(t, h.Confirm("new"))
}

// TestKubeletMustReadTheSettingsOfKubeletConfigs has kubelets with different command lines.
func TestKubeletMustReadTheSettingsOfKubeletConfigs(t *testing.T) {
	const folder = "/etc/kubernetes/kubelet.conf.d"
	settings := config.Content{Files: []config.File{{Path: folder + "/99-kubeletconfig-0.conf"}}}
	withFlag := settings
	withFlag.Units = []config.Unit{{Name: "kubelet.service", DropIns: []config.DropIn{{Name: "a.conf", Contents: "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--config-dir=" + folder}}}}
	const want = "this node cannot change the settings of KubeletConfigs, because its kubelet does not read " + folder + ": remove that from the MachineConfigs of " +
		"its pool, or move the node to another pool, or start its kubelet with --config-dir=" + folder
	for command, isRefused := range map[string]bool{
		"":                                    false, // it does not run
		"/usr/bin/kubelet":                    true,
		"/usr/bin/kubelet --config=/a":        true,
		"kubelet --config-dir=" + folder:      false,
		"kubelet -config-dir " + folder + "/": false,
		"kubelet --config-dir=/etc/other":     true,
		"/bin/sh kubelet --config-dir":        false, // another program
	} {
		p := play(t)
		m, _ := p.open(tree.Options{})
		p.Write("/proc/self", "") // not a process
		if command != "" {
			p.Write("/proc/123/cmdline", strings.ReplaceAll(command, " ", "\x00")+"\x00")
		}
		got := m.Unsupported(settings)
		if isRefused {
			p.Write("/proc/99/cmdline", "kubelet\x00--config-dir="+folder+"\x00")
			assert.Empty(t, m.Unsupported(settings), "one of two kubelets reads it")
		}
		if isRefused {
			assert.Equal(t, want, got, command)
		} else {
			assert.Empty(t, got, command)
		}
		assert.Empty(t, m.Unsupported(withFlag), command)
		assert.Empty(t, m.Unsupported(content), command)
	}
}
