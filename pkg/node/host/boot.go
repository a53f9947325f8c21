//go:build linux

package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	operatorv1 "github.com/openshift/api/operator/v1"
)

// Boot identifies the running boot of the host: each boot has another identity. It is empty for a folder that is not the root of a host.
func (h *Host) Boot() (string, error) {
	stat, err := h.read("/proc/1/stat")
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	// The boot ID does not change if the host is a container. The start time of its first process does. It is field 22 (proc(5)), and
	// the fields from the third one follow the name of the program.
	const start = 22 - 3
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= start {
		return "", fmt.Errorf("reading /proc/1/stat: found %d fields, want more than %d", len(fields), start)
	}
	id, err := h.read("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s:%s", bytes.TrimSpace(id), fields[start]), nil
}

// NeedsReboot reports whether a reboot is one of the actions.
func (c Change) NeedsReboot() bool {
	for _, action := range c.Actions {
		if action.Type == operatorv1.RebootStatusAction {
			return true
		}
	}
	return false
}

// needsActions reports whether actions must follow the undo of a change in this boot. Without them, nothing on the host has used the files of
// the change: neither a service, nor a boot after a crash in the middle of the steps.
func (c Change) needsActions(boot string) bool {
	switch {
	case c.Phase == Undone:
		return c.Boot == boot // a boot since then has used the restored files
	case c.NeedsReboot():
		return c.Boot != boot
	}
	return len(c.Actions) > 0 && (c.Acted || c.Boot != boot)
}

// HasFiles reports whether the host has all files with these paths. It follows links.
func (h *Host) HasFiles(names ...string) bool {
	for _, name := range names {
		f, err := h.tree.OpenFile(name)
		if err != nil {
			return false
		}
		_ = f.Close()
	}
	return true
}

// Processes returns the command lines of the host's processes whose program has a name, also of those in containers.
func (h *Host) Processes(name string) (commands [][]string, err error) {
	folder, err := h.tree.OpenFolder("/proc")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	processes, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, process := range processes {
		if strings.Trim(process, "0123456789") != "" {
			continue
		}
		line, err := h.read(path.Join("/proc", process, "cmdline"))
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		if path.Base(args[0]) == name {
			commands = append(commands, args)
		}
	}
	return commands, nil
}
