//go:build linux

package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
)

// HookFile is the program of a host that sets what the machine boots with. The operating system has it, or a MachineConfig brings it. The first
// argument is what it must do:
//
//   - booted writes the Boot with which the machine runs to its standard output. If it fails, the hook cannot be used.
//   - apply sets the Boot on its standard input for the next boot. It may run again after a crash.
//   - rollback sets the Boot on its standard input, with which the machine ran before, for the next boot. It may run although apply has not, and after
//     an apply that failed or was killed.
const HookFile = "/etc/cvo-node/hook"

// Boot is what a machine boots with. A hook reads and writes it as JSON.
type Boot struct {
	// KernelArguments are those that the hook has set, in their order.
	KernelArguments []string `json:"kernelArguments"`
	// OSImage is the image of the operating system by pullspec; empty if no config has set one.
	OSImage string `json:"osImage,omitempty"`
}

// bootOf returns what a config boots with.
func bootOf(content config.Content) Boot {
	return Boot{KernelArguments: append([]string{}, content.KernelArguments...), OSImage: content.OSImage}
}

func (b Boot) String() string {
	text := fmt.Sprintf("kernel arguments %q", strings.Join(b.KernelArguments, " "))
	if b.OSImage != "" {
		text += " and image " + b.OSImage
	}
	return text
}

// hasHook reports whether a host with the content of a config has the hook: it comes with the config, or the host has it of its own.
func (m *Machine) hasHook(content config.Content) bool {
	if i := slices.IndexFunc(content.Files, func(f config.File) bool { return f.Path == HookFile }); i >= 0 {
		return content.Files[i].Mode&0o100 != 0
	}
	has, err := m.host.HasProgram(HookFile)
	return has && err == nil
}

// ChangesBoot reports whether a machine with the content of one config boots with something else than with another. A folder does not boot.
func (m *Machine) ChangesBoot(from, to config.Content) bool {
	return m.init != nil && !from.BootsLike(to)
}

// errBrokenHook means that the hook has set nothing.
var errBrokenHook = errors.New("the hook cannot be used")

// setBoot sets what the machine boots with after a change.
func (m *Machine) setBoot(ctx context.Context, change host.Change, boot string) error {
	content, err := m.host.Content(change.To)
	if err != nil {
		return err
	}
	if !change.Preparing {
		if _, err := m.hook(ctx, change, "booted", Boot{}); err != nil {
			return fmt.Errorf("%w: %w", errBrokenHook, err)
		}
		if err := m.host.SetPreparing(); err != nil {
			return err
		}
	}
	if _, err := m.hook(ctx, change, "apply", bootOf(content)); err != nil {
		return err
	}
	return m.host.SetPrepared(boot)
}

// restoreBoot sets what the machine booted with before an applied change, if the change is about that. The files of the change are still there, because
// they may contain the hook. reason is that of RollBack; empty for Undo.
func (m *Machine) restoreBoot(ctx context.Context, change host.Change, reason string) error {
	if m.init == nil || !change.ChangesBoot {
		return nil
	}
	if err := m.host.BeginRestoring(change, reason); err != nil {
		return err
	}
	return m.host.Act(host.Restoring, func(change host.Change) error {
		content, err := m.host.Content(change.From)
		if err == nil {
			_, err = m.hook(ctx, change, "rollback", bootOf(content))
		}
		if err != nil {
			return fmt.Errorf("undoing the change to %s: %w: %w", change.To.Name, host.ErrNotUndone, err)
		}
		return nil
	})
}

// bootDifference says how the running machine differs from what an applied change boots with; empty if it does not, or if the change is not about that.
func (m *Machine) bootDifference(ctx context.Context, change host.Change, content config.Content) (string, error) {
	if m.init == nil || !change.ChangesBoot {
		return "", nil
	}
	output, err := m.hook(ctx, change, "booted", Boot{})
	if err != nil {
		return "", err
	}
	var booted Boot
	if err := json.Unmarshal(output, &booted); err != nil {
		return "", fmt.Errorf("reading the output of %s booted: %w", HookFile, err)
	}
	running := config.Content{KernelArguments: booted.KernelArguments, OSImage: booted.OSImage}
	if content.OSImage == "" {
		running.OSImage = "" // no config sets it
	}
	if !running.BootsLike(content) {
		return fmt.Sprintf("%s: booted with %s instead of %s", HookFile, bootOf(running), bootOf(content)), nil
	}
	return "", nil
}

// hookWait is the time for which the output of a hook that has ended may stay open.
const hookWait = 5 * time.Second

var errNoHook = errors.New("the node has no executable program " + HookFile)

// hook runs the hook and returns its output. A pending change that removes the hook still uses it.
func (m *Machine) hook(ctx context.Context, change host.Change, verb string, input Boot) ([]byte, error) {
	file, found, err := m.host.Program(change, HookFile)
	if err == nil && !found {
		err = errNoHook
	}
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(input)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, actionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.root+file, verb)
	// A program that the hook has started may outlive it, and hold its output.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = hookWait
	var output, failure bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(encoded), &output, &failure
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, fmt.Errorf("running %s %s: %w: %s", HookFile, verb, err, strings.TrimSpace(failure.String()))
	}
	return output.Bytes(), nil
}
