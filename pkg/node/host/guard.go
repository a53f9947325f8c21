//go:build linux

package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/pkg/node/host/unitfile"
)

// guardFile is the file of the guard's unit. guardLink starts it early in each boot, even if the boot ends in emergency mode.
const (
	guardFile = unitfile.Folder + "/" + config.GuardUnit
	guardLink = unitfile.Folder + "/sysinit.target.wants/" + config.GuardUnit
)

// programs has the programs of the node stage that run on the host, by digest.
const programs = config.Folder + "/bin"

// guardText returns the text of the guard's unit. It starts after the mounts of the boot loader, which a rollback writes, and without them if they fail.
// systemd splits the command at spaces, unless these are in quotes, and replaces what begins with a percent sign or a dollar sign, also there
// (systemd.syntax(7), systemd.service(5)).
func guardText(command []string) []byte {
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = strings.NewReplacer("%", "%%", "$", "$$").Replace(strconv.Quote(word))
	}
	return fmt.Appendf(nil, `# The node stage writes this file before it changes the host, and removes it when the change is confirmed or undone.
[Unit]
Description=Undo an update of this node that fails
DefaultDependencies=no
After=systemd-remount-fs.service boot.mount boot-efi.mount
RequiresMountsFor=%s
Conflicts=shutdown.target
Before=shutdown.target
IgnoreOnIsolate=yes
StartLimitIntervalSec=0

[Service]
ExecStart=%s
Restart=on-failure
RestartSec=5s
`, config.Folder, strings.Join(words, " "))
}

// EnableGuard makes the host run a command at each boot until the pending change ends. Call it before the first step of a change. A guard that is
// enabled keeps its command.
func (h *Host) EnableGuard(command []string) error {
	return h.locked(func(s *State) error {
		if s.Change == nil {
			return fmt.Errorf("enabling the guard: %w", ErrNotApplied)
		}
		if err := h.makeFolders(path.Dir(guardLink), nil); err != nil {
			return err
		}
		text := guardText(command)
		for _, e := range []struct {
			name  string
			entry tree.Entry
		}{
			{guardFile, tree.Entry{Kind: tree.File, Mode: 0o644, Digest: digestOf(text)}},
			{guardLink, tree.Entry{Kind: tree.Link, Target: guardFile}},
		} {
			found, err := h.tree.Read(e.name)
			if err == nil && found.Kind == tree.Absent {
				err = h.tree.Put(e.name, own(e.entry), bytes.NewReader(text))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// DisableGuard disables the guard. It returns ErrPending if a change is pending. It does nothing without the stage's
// folder, because Release disables the guard first.
func (h *Host) DisableGuard() error {
	if has, err := h.HasFolder(); !has || err != nil {
		return err
	}
	return h.lock(config.Folder, func() error { return h.endGuard("disabling the guard") })
}

// endGuard disables the guard, unless a change is pending. purpose is the begin of that error. The caller holds the lock.
func (h *Host) endGuard(purpose string) error {
	s, err := h.load()
	if err != nil {
		return err
	}
	if s.Change != nil {
		return fmt.Errorf("%s: %w: to %s", purpose, ErrPending, s.Change.To.Name)
	}
	return h.disableGuard()
}

// disableGuard writes nothing if the guard is not enabled.
func (h *Host) disableGuard() error {
	for _, name := range []string{guardLink, guardFile} {
		found, err := h.tree.Read(name)
		if err == nil && found.Kind != tree.Absent {
			err = h.tree.Remove(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// RolledBack is a config that the guard has undone.
type RolledBack struct {
	Config string `json:"config"`
	Reason string `json:"reason"`
}

// RollBack is like Undo, for one change only: it returns ErrPending if another one is pending. It keeps the reason until another change is confirmed,
// or until ForgetRollBack. If the undo has begun, RollBack continues it, and the reason does not count.
func (h *Host) RollBack(change Change, reason string) error {
	return h.locked(func(s *State) error {
		switch {
		case s.Change == nil:
			return h.collect(s)
		case s.Change.ID() != change.ID():
			return fmt.Errorf("undoing the change to %s: %w: to %s", change.To.Name, ErrPending, s.Change.To.Name)
		case s.Change.IsUndoing():
			return h.undo(s, s.Change.Failure)
		}
		s.Change.RollBack = reason
		return h.undo(s, reason)
	})
}

// SetPassed records that a change has passed its trial. It does nothing if that change is no longer on trial.
func (h *Host) SetPassed(change Change) error {
	return h.locked(func(s *State) error {
		if s.Change == nil || s.Change.ID() != change.ID() || !s.Change.IsOnTrial() {
			return nil
		}
		s.Change.Passed = true
		return h.save(s)
	})
}

// CountBoot counts a boot with an applied change. It does nothing if that change is no longer applied.
func (h *Host) CountBoot(change Change, boot string) error {
	return h.locked(func(s *State) error {
		if s.Change == nil || s.Change.ID() != change.ID() || s.Change.Phase != Applied {
			return nil
		}
		s.Change.Boots, s.Change.Counted = change.Boots+1, boot
		return h.save(s)
	})
}

// ForgetRollBack forgets the config that the guard has undone, so that it may be applied again.
func (h *Host) ForgetRollBack() error {
	return h.locked(func(s *State) error {
		if s.RolledBack == (RolledBack{}) {
			return nil
		}
		s.RolledBack = RolledBack{}
		return h.save(s)
	})
}

// Install copies the running program to the host's own folder, unless it is there, and returns its path on the host. A new program removes those
// that no change needs.
func (h *Host) Install() (name string, err error) {
	file, err := os.Executable()
	if err != nil {
		return "", err
	}
	program, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer program.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, program); err != nil {
		return "", err
	}
	if _, err := program.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	entry := own(tree.Entry{Kind: tree.File, Mode: 0o700, Digest: hex.EncodeToString(digest.Sum(nil))})
	name = path.Join(programs, entry.Digest)
	// The program may be there while another process changes the host.
	if found, err := h.tree.Read(name); err != nil || entry.Matches(found) {
		return name, err
	}
	err = h.locked(func(s *State) error {
		err := h.makeFolders(programs, nil)
		if err == nil {
			err = h.tree.Put(name, entry, program)
		}
		if err != nil || s.Change != nil {
			return err
		}
		return h.keep(programs, map[string]bool{entry.Digest: true})
	})
	return name, err
}
