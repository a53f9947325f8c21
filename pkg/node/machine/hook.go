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

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
)

// HookFile is the program of a host that sets what the machine boots with. The operating system has it, or a MachineConfig brings it. The first
// argument is what it must do:
//
//   - apply sets the Boot on its standard input for the next boot. It may run again after a crash. If it fails, it must have set nothing.
//   - rollback sets the Boot on its standard input, with which the machine ran before, for the next boot. It may run although apply has not.
//   - booted writes the Boot with which the machine runs to its standard output.
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

func (b Boot) equals(other Boot) bool {
	return b.OSImage == other.OSImage && slices.Equal(b.KernelArguments, other.KernelArguments)
}

func (b Boot) String() string {
	text := fmt.Sprintf("kernel arguments %q", strings.Join(b.KernelArguments, " "))
	if b.OSImage != "" {
		text += " and image " + b.OSImage
	}
	return text
}

// hasHook reports whether a host with the content of a config has the hook: it comes with the config, or is there already.
func (m *Machine) hasHook(content config.Content) bool {
	if slices.ContainsFunc(content.Files, func(f config.File) bool { return f.Path == HookFile && f.Mode&0o100 != 0 }) {
		return true
	}
	has, err := m.host.HasFile(HookFile)
	return has && err == nil
}

// ChangesBoot reports whether a machine with the content of one config boots with something else than with another. A folder does not boot.
func (m *Machine) ChangesBoot(from, to config.Content) bool {
	return m.init != nil && !bootOf(from).equals(bootOf(to))
}

// boots returns what the machine boots with before and after a change, and whether these differ.
func (m *Machine) boots(change host.Change) (from, to Boot, differ bool, err error) {
	before, err := m.host.Content(change.From)
	if err != nil {
		return from, to, false, err
	}
	after, err := m.host.Content(change.To)
	if err != nil {
		return from, to, false, err
	}
	return bootOf(before), bootOf(after), m.ChangesBoot(before, after), nil
}

// restoreBoot sets what the machine booted with before the applied change, if the change is about that. The files of the change are still there,
// because they may contain the hook. Another change than the one with the ID stays; an empty ID is any.
func (m *Machine) restoreBoot(ctx context.Context, id string) error {
	return m.host.Act(host.Applied, func(change host.Change) error {
		from, _, differ, err := m.boots(change)
		if err != nil || !differ || id != "" && change.ID() != id {
			return err
		}
		if _, err := m.hook(ctx, change, "rollback", from); err != nil {
			return fmt.Errorf("undoing the change to %s: %w: %w", change.To.Name, host.ErrNotUndone, err)
		}
		return nil
	})
}

// bootDifference says how the running machine differs from what an applied change boots with; empty if it does not. A machine that never had a hook
// does not differ.
func (m *Machine) bootDifference(ctx context.Context, change host.Change, content config.Content) (string, error) {
	if m.init == nil {
		return "", nil
	}
	output, err := m.hook(ctx, change, "booted", Boot{})
	if errors.Is(err, errNoHook) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var booted Boot
	if err := json.Unmarshal(output, &booted); err != nil {
		return "", fmt.Errorf("reading the output of %s booted: %w", HookFile, err)
	}
	wanted := bootOf(content)
	if wanted.OSImage == "" {
		booted.OSImage = "" // no config sets it
	}
	if !booted.equals(wanted) {
		return fmt.Sprintf("%s: booted with %s instead of %s", HookFile, booted, wanted), nil
	}
	return "", nil
}

var errNoHook = errors.New("the node has no program " + HookFile)

// hook runs the hook and returns its output. A pending change that removes the hook still uses it.
func (m *Machine) hook(ctx context.Context, change host.Change, verb string, input Boot) ([]byte, error) {
	file := HookFile
	found, err := m.host.HasFile(file)
	if err == nil && !found {
		file, found, err = m.host.Former(change, file)
	}
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
	var output, failure bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(encoded), &output, &failure
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("running %s %s: %w: %s", HookFile, verb, err, strings.TrimSpace(failure.String()))
	}
	return output.Bytes(), nil
}
