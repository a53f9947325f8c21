//go:build linux

package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

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

// hasHook reports whether a host with the content of a config has the hook: it comes with the config, or the host has it of its own.
func (m *Machine) hasHook(content config.Content) bool {
	if i := slices.IndexFunc(content.Files, func(f config.File) bool { return f.Path == HookFile }); i >= 0 {
		return content.Files[i].Mode&0o100 != 0
	}
	has, err := m.host.HasProgram(HookFile)
	return has && err == nil
}

// hook is the back end of a host with the program HookFile. file is its path, or that of a copy.
type hook struct {
	*Machine
	file string
}

func (hook) String() string { return HookFile }

func (h hook) prepare(ctx context.Context) (former string, err error) {
	_, err = h.run(ctx, "booted", Boot{})
	return "", err
}

func (h hook) apply(ctx context.Context, to Boot) error {
	_, err := h.run(ctx, "apply", to)
	return err
}

func (h hook) booted(ctx context.Context) (Boot, error) {
	output, err := h.run(ctx, "booted", Boot{})
	if err != nil {
		return Boot{}, err
	}
	var booted Boot
	if err := json.Unmarshal(output, &booted); err != nil {
		return Boot{}, fmt.Errorf("reading the output of %s booted: %w", HookFile, err)
	}
	return booted, nil
}

// isLost returns false, because a hook that has succeeded is to set the next boot durably.
func (hook) isLost(context.Context, host.Change, Boot) (bool, error) { return false, nil }

func (h hook) rollback(ctx context.Context, _ host.Change, from, _ Boot) (isElsewhere bool, err error) {
	_, err = h.run(ctx, "rollback", from)
	return false, err
}

func (h hook) run(ctx context.Context, verb string, input Boot) ([]byte, error) {
	encoded, err := json.Marshal(input)
	if err != nil {
		return nil, err
	}
	return h.program(ctx, actionTimeout, HookFile, h.file, encoded, verb)
}
