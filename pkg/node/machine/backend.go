//go:build linux

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
)

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
	arguments := fmt.Sprintf("kernel arguments %q", strings.Join(b.KernelArguments, " "))
	switch {
	case b.OSImage == "":
		return arguments
	case len(b.KernelArguments) == 0:
		return "image " + b.OSImage
	}
	return arguments + " and image " + b.OSImage
}

// backEnd sets what a machine boots with. The process may end during each method. The next one calls the method again, or rollback.
type backEnd interface {
	// String is the name for messages.
	fmt.Stringer
	// prepare fails if the back end cannot be used. It sets nothing. former is the Change.Former that the back end needs; empty if none.
	prepare(ctx context.Context) (former string, err error)
	// apply sets what the machine boots with next.
	apply(ctx context.Context, to Boot) error
	// booted returns what the machine has booted with.
	booted(ctx context.Context) (Boot, error)
	// isLost reports whether what apply has set before the running boot is lost, so that apply must run again.
	isLost(ctx context.Context, change host.Change, to Boot) (bool, error)
	// rollback sets that the machine next boots with what it had booted with before the change. isElsewhere is true if the files of the change are to
	// be restored after that boot only, because the former system has files of its own.
	rollback(ctx context.Context, change host.Change, from, to Boot) (isElsewhere bool, err error)
}

// ErrUnusable means that the back end cannot be used, and has set nothing.
var ErrUnusable = errors.New("cannot be used")

var errNoBackEnd = errors.New("the node has no executable program " + HookFile)

// backEnd returns the back end of a pending change: the hook of the host or of one of both configs, else bootc. The files of the change do not change
// during its life, so it stays the same. A change that removes the hook still uses it.
func (m *Machine) backEnd(change host.Change) (backEnd, error) {
	switch file, found, err := m.host.Program(change, HookFile); {
	case err != nil:
		return nil, err
	case found:
		return hook{m, file}, nil
	case m.hasBootc():
		return bootc{m}, nil
	}
	return nil, errNoBackEnd
}

// Stage checks, before the node is drained, that a supported content can be set for the next boot. The error is ErrUnusable if it cannot. Only bootc must
// run to know that. A hook may come with the content.
func (m *Machine) Stage(ctx context.Context, content config.Content) error {
	if !m.needsBootc(content) {
		return nil
	}
	_, err := m.prepare(ctx, bootc{m})
	return err
}

func (m *Machine) needsBootc(content config.Content) bool {
	return m.init != nil && content.OSImage != "" && !m.hasHook(content)
}

func (m *Machine) prepare(ctx context.Context, b backEnd) (former string, err error) {
	if former, err = b.prepare(ctx); err != nil {
		return "", fmt.Errorf("%s %w: %w", b, ErrUnusable, err)
	}
	return former, nil
}

// ChangesBoot reports whether a machine with the content of one config boots with something else than with another. A folder does not boot.
func (m *Machine) ChangesBoot(from, to config.Content) bool {
	return m.init != nil && !from.BootsLike(to)
}

// setBoot sets what the machine boots with after a change.
func (m *Machine) setBoot(ctx context.Context, change host.Change, boot string) error {
	content, err := m.host.Content(change.To)
	if err != nil {
		return err
	}
	b, err := m.backEnd(change)
	if err != nil {
		return err
	}
	if !change.Preparing {
		former, err := m.prepare(ctx, b)
		if err != nil {
			return err
		}
		if err := m.host.SetPreparing(former); err != nil {
			return err
		}
	}
	if err := b.apply(ctx, bootOf(content)); err != nil {
		return err
	}
	return m.host.SetPrepared(boot)
}

// repeatsBoot reports whether what the machine boots with must be set again, because the running boot has not used it, and records that. It happens
// once for each change, so a machine that loses it each time does not reboot forever.
func (m *Machine) repeatsBoot(ctx context.Context, change host.Change) (bool, error) {
	if !change.ChangesBoot || change.Repeats {
		return false, nil
	}
	content, err := m.host.Content(change.To)
	if err != nil {
		return false, err
	}
	b, err := m.backEnd(change)
	if err != nil {
		return false, err
	}
	if isLost, err := b.isLost(ctx, change, bootOf(content)); !isLost || err != nil {
		return false, err
	}
	return true, m.host.SetRepeating()
}

// restoreBoot sets what the machine booted with before an applied change, if the change is about that. The files of the change are still there, because
// they may contain the hook. reason is that of RollBack; empty for Undo. The error is ErrRebooting if the files must be restored after a reboot.
func (m *Machine) restoreBoot(ctx context.Context, change host.Change, reason string) error {
	if m.init == nil || !change.ChangesBoot {
		return nil
	}
	if err := m.host.BeginRestoring(change, reason); err != nil {
		return err
	}
	return m.host.Act(host.Restoring, func(change host.Change) error {
		isElsewhere, err := m.rollBackBoot(ctx, change)
		if err != nil {
			return fmt.Errorf("undoing the change to %s: %w: %w", change.To.Name, host.ErrNotUndone, err)
		}
		if isElsewhere {
			return m.reboot(ctx)
		}
		return nil
	})
}

func (m *Machine) rollBackBoot(ctx context.Context, change host.Change) (isElsewhere bool, err error) {
	from, err := m.host.Content(change.From)
	if err != nil {
		return false, err
	}
	to, err := m.host.Content(change.To)
	if err != nil {
		return false, err
	}
	b, err := m.backEnd(change)
	if err != nil {
		return false, err
	}
	return b.rollback(ctx, change, bootOf(from), bootOf(to))
}

// bootDifference says how the running machine differs from what an applied change boots with; empty if it does not, or if the change is not about that.
func (m *Machine) bootDifference(ctx context.Context, change host.Change, content config.Content) (string, error) {
	if m.init == nil || !change.ChangesBoot {
		return "", nil
	}
	b, err := m.backEnd(change)
	if err != nil {
		return "", err
	}
	booted, err := b.booted(ctx)
	if err != nil {
		return "", err
	}
	running := config.Content{KernelArguments: booted.KernelArguments, OSImage: booted.OSImage}
	if content.OSImage == "" {
		running.OSImage = "" // no config sets it
	}
	if !running.BootsLike(content) {
		return fmt.Sprintf("%s: booted with %s instead of %s", b, bootOf(running), bootOf(content)), nil
	}
	return "", nil
}

// programWait is the time for which the output of a program that has ended may stay open.
const programWait = 5 * time.Second

// program runs a program of the host and returns its output. name is that of messages.
func (m *Machine) program(ctx context.Context, timeout time.Duration, name, file string, input []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.root+file, args...)
	// A program that it has started may outlive it, and hold its output.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = programWait
	var output, failure bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &output, &failure
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, fmt.Errorf("running %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(failure.String()))
	}
	return output.Bytes(), nil
}
