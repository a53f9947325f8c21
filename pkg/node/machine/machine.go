//go:build linux

// Package machine changes a machine from one config to another, or back: first the files of the host, then what must follow, such as the restart
// of a service or a reboot. It takes a host of package host, whose journal is the only state, and the machine's init system. A process that is
// interrupted at any point, also by the reboot that it requests, is continued by the next one. The caller decides when a change begins, is
// undone or is confirmed.
package machine

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	operatorv1 "github.com/openshift/api/operator/v1"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/host"
)

// actionTimeout is the timeout of one action. systemd has its own timeouts, which a unit may disable.
const actionTimeout = 10 * time.Minute

var (
	// ErrRebooting means that the machine reboots. The next process continues after that.
	ErrRebooting = errors.New("the machine reboots")
	// ErrDiffers means that the machine has run the actions of a change, such as a reboot, but lacks content of the config, or a unit has failed.
	ErrDiffers = errors.New("the host differs from the config after the change")

	errNoInit = errors.New("the folder has no init system that could run the actions of the pending change")
)

// Init is the init system of a machine.
type Init interface {
	// HasUnit reports whether a unit exists.
	HasUnit(ctx context.Context, unit string) (bool, error)
	// HasFailed reports whether a unit has failed.
	HasFailed(ctx context.Context, unit string) (bool, error)
	// CanReload reports whether a unit runs and can reload its configuration.
	CanReload(ctx context.Context, unit string) (bool, error)
	// ReloadUnitFiles makes the init system read the files of all units again.
	ReloadUnitFiles(ctx context.Context) error
	// Restart restarts a unit, and Reload makes it reload its configuration. Both wait for the result.
	Restart(ctx context.Context, unit string) error
	Reload(ctx context.Context, unit string) error
	// Reboot requests a reboot, and does not wait.
	Reboot(ctx context.Context) error
}

// Machine is a host with its init system.
type Machine struct {
	host  *host.Host
	init  Init
	guard func(context.Context) ([]string, error)
	root  string
	// beforeReboot is called before each request of a reboot; nil for nothing.
	beforeReboot func() error
}

// Options of a machine.
type Options struct {
	// Init is the init system. Default: none. The machine is a folder then, for a trial: its files change, and no action follows.
	Init Init
	// Guard returns the command line of the service that guards the change which begins. Default: no guard.
	Guard func(context.Context) ([]string, error)
	// Root is the folder below which this process runs programs of the host. Default: it has the same root.
	Root string
}

// New returns the machine of a host.
func New(h *host.Host, o Options) *Machine {
	return &Machine{host: h, init: o.Init, guard: o.Guard, root: o.Root}
}

// Unsupported returns what the machine cannot change, with the remedy; empty if it can have the content. The image of the operating system needs a hook
// or bootc, and kernel arguments need a hook. A folder ignores such content.
func (m *Machine) Unsupported(content config.Content) string {
	if m.init == nil {
		return ""
	}
	var found []string
	remedy := "remove that from the MachineConfigs of its pool, or move the node to another pool"
	hasHook := m.hasHook(content)
	hasBootc := m.hasBootc()
	lacksArguments := len(content.KernelArguments) > 0 && !hasHook
	lacksImage := content.OSImage != "" && !hasHook && !hasBootc
	lacksDigest := content.OSImage != "" && !hasHook && hasBootc && !byDigest.MatchString(content.OSImage)
	if lacksDigest {
		remedy += ", or name the image by its digest and without a tag"
	}
	if lacksArguments && hasBootc {
		remedy += ", or build the kernel arguments into the image"
	}
	if lacksArguments || lacksImage {
		remedy += ", or give the node a program " + HookFile + " for the kernel arguments and the image"
	}
	folder := m.missingKubeletFolder(content)
	if folder != "" {
		remedy += ", or start its kubelet with --config-dir=" + folder
	}
	for _, part := range []struct {
		isUsed bool
		name   string
	}{
		{lacksImage, "an image of the operating system"},
		{lacksDigest, "an image of the operating system by tag"},
		{lacksArguments, "kernel arguments"},
		{content.KernelType != "", "a kernel type"},
		{content.FIPS, "FIPS mode"},
		{len(content.Extensions) > 0, "extensions"},
		{len(content.SSHKeys) > 0 && !m.hasKeysUser(), "SSH keys, because it has no user core"},
		{folder != "", "the settings of KubeletConfigs, because its kubelet does not read " + folder},
	} {
		if part.isUsed {
			found = append(found, part.name)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "this node cannot change " + strings.Join(found, ", ") + ": " + remedy
}

// missingKubeletFolder returns the folder of the content's files for the kubelet if no running kubelet reads it, and the content does not change that;
// otherwise it is empty. A container may run another kubelet.
func (m *Machine) missingKubeletFolder(content config.Content) string {
	folder, isNew := content.KubeletFolder()
	if folder == "" || isNew {
		return ""
	}
	kubelets, err := m.host.Processes("kubelet")
	if len(kubelets) == 0 || err != nil || slices.ContainsFunc(kubelets, func(args []string) bool { return readsFolder(args, folder) }) {
		return ""
	}
	return folder
}

// readsFolder reports whether the command line of a kubelet has --config-dir with a folder.
func readsFolder(args []string, folder string) bool {
	for i, arg := range args {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if value == "" && i+1 < len(args) {
			value = args[i+1]
		}
		if name == "config-dir" && path.Clean(value) == folder {
			return true
		}
	}
	return false
}

func (m *Machine) hasKeysUser() bool {
	has, err := m.host.HasKeysUser()
	return has && err == nil
}

// Accepts reports whether the init system would accept an action on a service now. A folder accepts all.
func (m *Machine) Accepts(ctx context.Context, action disruption.Action) (bool, error) {
	switch {
	case m.init == nil:
	case action.Reload != nil:
		return m.init.CanReload(ctx, disruption.Unit(action))
	case action.Restart != nil:
		return m.init.HasUnit(ctx, disruption.Unit(action))
	}
	return true, nil
}

// Refusal returns why the init system would refuse one of the actions, with the remedy; empty if it accepts all. Such an action fails in the undo, too,
// so the change must not begin. Units that the content defines may differ after the change, so Refusal ignores them.
func (m *Machine) Refusal(ctx context.Context, content config.Content, actions []disruption.Action) (string, error) {
	for _, action := range actions {
		unit, problem := disruption.Unit(action), "does not exist"
		if action.Reload != nil {
			problem = "does not run or cannot be reloaded"
		}
		if slices.ContainsFunc(content.Units, func(u config.Unit) bool { return u.Name == unit }) {
			continue
		}
		if accepted, err := m.Accepts(ctx, action); !accepted || err != nil {
			return fmt.Sprintf("%s of unit %s would fail on this node: the unit %s. Change the node disruption policy", action.Type, unit, problem), err
		}
	}
	return "", nil
}

// failedUnit returns a unit that has failed and that the change has created, changed or enabled, or whose service it has restarted or reloaded; empty
// if there is none.
func (m *Machine) failedUnit(ctx context.Context, change host.Change, content config.Content) (string, error) {
	if m.init == nil {
		return "", nil
	}
	var units []string
	for _, unit := range content.Units {
		isTemplate := strings.Contains(unit.Name, "@.")
		if !isTemplate && (unit.Enabled == nil || *unit.Enabled) && change.Touches(unit.Name) {
			units = append(units, unit.Name)
		}
	}
	if change.Ran {
		for _, action := range change.Actions {
			if unit := disruption.Unit(action); unit != "" && !slices.Contains(units, unit) {
				units = append(units, unit)
			}
		}
	}
	for _, unit := range units {
		if hasFailed, err := m.init.HasFailed(ctx, unit); hasFailed || err != nil {
			return unit, err
		}
	}
	return "", nil
}

// Apply changes the host to a config and runs the actions. On success the change waits for its confirmation. If a step or an action fails, Apply
// undoes the change; an error from the undo is joined. If the machine must reboot, the error is ErrRebooting.
func (m *Machine) Apply(ctx context.Context, name string, content config.Content, actions []disruption.Action) error {
	var needed []disruption.Action
	for _, action := range actions {
		if m.init != nil && action.Type != operatorv1.NoneStatusAction && action.Type != operatorv1.DrainStatusAction {
			needed = append(needed, action)
		}
	}
	if err := m.host.Begin(name, content, needed...); err != nil {
		return err
	}
	return m.Resume(ctx)
}

// Resume continues a change that an ended process has left, as Apply does. It returns host.ErrUndoing if the undo of the change has begun, and
// ErrDiffers if the change is not to be confirmed.
func (m *Machine) Resume(ctx context.Context) error {
	if err := m.enableGuard(ctx); err != nil {
		return errors.Join(err, m.Undo(ctx))
	}
	if err := m.host.Resume(); err != nil {
		return err
	}
	return m.complete(ctx)
}

// enableGuard enables and starts the guard before the first step of a change. The end of the change disables it.
func (m *Machine) enableGuard(ctx context.Context) error {
	change, pending, err := m.host.Pending()
	if err != nil {
		return err
	}
	if m.guard == nil || !pending || change.Phase != host.Applying {
		return nil
	}
	command, err := m.guard(ctx)
	if err == nil {
		err = m.host.EnableGuard(command)
	}
	if err == nil {
		err = m.init.ReloadUnitFiles(ctx)
	}
	if err == nil {
		err = m.init.Restart(ctx, config.GuardUnit)
	}
	if err != nil {
		return fmt.Errorf("enabling the guard of %s: %w", change.To.Name, err)
	}
	return nil
}

// complete does what must follow the files of an applied change. If that fails, it undoes the change.
func (m *Machine) complete(ctx context.Context) error {
	var failed error
	err := m.host.Act(host.Applied, func(change host.Change) (err error) {
		if failed, err = m.follow(ctx, change); failed != nil {
			failed = fmt.Errorf("applying %s: %w", change.To.Name, failed)
		}
		return err
	})
	switch {
	case failed == nil:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", host.ErrBusy, failed) // the process ends, and the next one repeats it
	case errors.Is(failed, ErrUnusable):
		err = m.undone(ctx, m.host.Undo())
	default:
		err = m.Undo(ctx)
	}
	if errors.Is(err, host.ErrBusy) {
		return fmt.Errorf("%w; %v", failed, err) //nolint:errorlint // the failure counts, and another process continues the undo
	}
	return errors.Join(failed, err)
}

// follow runs the actions of a change, or reboots. After that it checks the result. failed is a failure of the change.
func (m *Machine) follow(ctx context.Context, change host.Change) (failed, err error) {
	switch {
	case change.Ran:
		return nil, m.verify(ctx, change)
	case !change.NeedsReboot():
		failed = m.run(ctx, change.Actions)
		if failed == nil && len(change.Actions) > 0 && m.guard != nil {
			err = m.host.SetRan()
		}
		return failed, err
	}
	boot, err := m.host.Boot()
	if err != nil {
		return nil, err
	}
	repeats := false
	if !change.AwaitsReboot(boot) {
		if repeats, err = m.repeatsBoot(ctx, change); err != nil {
			return nil, err
		}
		if !repeats {
			return nil, m.verify(ctx, change)
		}
	}
	if change.ChangesBoot && (change.Prepared == "" || repeats) {
		if err := m.setBoot(ctx, change, boot); errors.Is(err, host.ErrBusy) {
			return nil, err
		} else if err != nil {
			return err, nil
		}
	}
	return nil, m.reboot(ctx)
}

// Undo restores the files of the host to their state before the pending change, and what it boots with. If a service or a boot has used the files of the
// change, it runs the actions again. An error leaves the change pending; ErrRebooting is one.
func (m *Machine) Undo(ctx context.Context) error {
	change, _, err := m.host.Pending()
	if err == nil {
		err = m.restoreBoot(ctx, change, "")
	}
	if err != nil {
		return err
	}
	return m.undone(ctx, m.host.Undo())
}

// Confirm makes the applied change to the named config current, see host.Confirm.
func (m *Machine) Confirm(_ context.Context, name string) error { return m.host.Confirm(name) }

// LastFailure returns none: a process that has ended makes no change.
func (m *Machine) LastFailure() Failure { return Failure{} }

// Release removes the folder of the node stage from the host, see host.Release. No change may be pending.
func (m *Machine) Release(context.Context) error { return m.host.Release() }

func (m *Machine) isReleased() bool {
	has, err := m.host.HasFolder()
	return !has && err == nil
}

// RollBack is like Undo for one change, see host.RollBack. The host keeps the reason for the daemon.
func (m *Machine) RollBack(ctx context.Context, change host.Change, reason string) error {
	if err := m.restoreBoot(ctx, change, reason); err != nil {
		return err
	}
	return m.undone(ctx, m.host.RollBack(change, reason))
}

// undone runs the actions after the files are restored, unless that failed.
func (m *Machine) undone(ctx context.Context, err error) error {
	if err != nil {
		return err
	}
	return m.host.Act(host.Undone, func(change host.Change) error {
		if change.NeedsReboot() {
			return m.reboot(ctx)
		}
		if err := m.run(ctx, change.Actions); err != nil {
			return fmt.Errorf("undoing the change to %s: %w: %w", change.To.Name, host.ErrNotUndone, err)
		}
		return m.host.EndUndo()
	})
}

func (m *Machine) reboot(ctx context.Context) error {
	if m.init == nil {
		return errNoInit
	}
	if m.beforeReboot != nil {
		if err := m.beforeReboot(); err != nil {
			return err
		}
	}
	if err := m.init.Reboot(ctx); err != nil {
		return err
	}
	return ErrRebooting
}

// run runs actions in their order.
func (m *Machine) run(ctx context.Context, actions []disruption.Action) error {
	for _, action := range actions {
		if err := m.act(ctx, action); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) act(ctx context.Context, action disruption.Action) error {
	if m.init == nil {
		return errNoInit
	}
	ctx, cancel := context.WithTimeout(ctx, actionTimeout)
	defer cancel()
	switch action.Type {
	case operatorv1.DaemonReloadStatusAction:
		return m.init.ReloadUnitFiles(ctx)
	case operatorv1.ReloadStatusAction:
		return m.init.Reload(ctx, disruption.Unit(action))
	case operatorv1.RestartStatusAction:
		return m.init.Restart(ctx, disruption.Unit(action))
	default:
		return fmt.Errorf("unknown action %q", action.Type)
	}
}

// verify returns ErrDiffers with the first difference between the machine and the config of an applied change.
func (m *Machine) verify(ctx context.Context, change host.Change) error {
	content, err := m.host.Content(change.To)
	if err != nil {
		return err
	}
	found, err := m.Difference(ctx, change, content)
	if err == nil && found != "" {
		err = fmt.Errorf("%w: %s", ErrDiffers, found)
	}
	return err
}

// Difference returns the first difference between the machine and the content of an applied change: a file, a unit of the change that has failed, or
// what the machine has booted with. It is empty if there is none.
func (m *Machine) Difference(ctx context.Context, change host.Change, content config.Content) (string, error) {
	found, err := m.host.Verify(content)
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		return found[0].Path + ": " + found[0].Found, nil
	}
	switch unit, err := m.failedUnit(ctx, change, content); {
	case err != nil:
		return "", err
	case unit != "":
		return fmt.Sprintf("unit %s has failed", unit), nil
	}
	return m.bootDifference(ctx, change, content)
}
