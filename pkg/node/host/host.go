//go:build linux

// Package host changes the files and the enabled units of a host to the content of a rendered MachineConfig, and back. It takes a root
// folder and a Content of package config. A journal on disk makes each change safe: before the first write to the host, it holds every step
// and a copy of everything that the change replaces. After a crash at any point, the next process continues the change or undoes it.
//
// A change is pending until Confirm. The journal keeps the original of each managed path: its entry before any config managed it. The
// original returns as soon as no config manages the path. Stage puts a config on disk before its change begins. Package tree writes the
// single files. Package machine runs the actions that follow, such as a reboot. Linux only.
package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/cluster-version/cvo/internal/atomicfile"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host/space"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
)

// Errors for callers.
var (
	// ErrBusy means that another process changes this host.
	ErrBusy = errors.New("another process changes this host")
	// ErrPending means that an earlier change is neither confirmed nor undone.
	ErrPending = errors.New("an earlier change is still pending")
	// ErrUndoing means that the undo of the pending change has begun, so it can only be completed.
	ErrUndoing = errors.New("the undo of the change has begun")
	// ErrNotUndone means that an undo failed. The change stays pending.
	ErrNotUndone = errors.New("the change is not completely undone")
	// ErrNotApplied means that there is no completely applied change to this config.
	ErrNotApplied = errors.New("no such change is applied")
)

// Options of a host. The zero value is for production.
type Options struct {
	// Tree contains hooks for tests.
	Tree tree.Options
	// Free returns the free space on the file system of a folder. Default: fstatfs(2).
	Free func(folder *os.File) (space.Space, error)
}

// Host is the file system of a host. Its whole state is on disk. Any number of processes may read it; one changes it at a time.
type Host struct {
	tree *tree.Tree
	free func(folder *os.File) (space.Space, error)
}

// Open opens the host with this root folder: "/" in production. It changes nothing. The caller must call Close.
func Open(root string, options Options) (*Host, error) {
	t, err := tree.Open(root, options.Tree)
	if err != nil {
		return nil, fmt.Errorf("opening the host's root: %w", err)
	}
	if options.Free == nil {
		options.Free = space.Free
	}
	return &Host{t, options.Free}, nil
}

// Close closes the root folder.
func (h *Host) Close() error { return h.tree.Close() }

// State returns what the journal says about the configs of the host.
func (h *Host) State() (State, error) {
	s, err := h.load()
	return *s, err
}

// Pending returns the change that is neither confirmed nor undone. It returns false if there is none.
func (h *Host) Pending() (Change, bool, error) {
	s, err := h.load()
	if err != nil || s.Change == nil {
		return Change{}, false, err
	}
	return *s.Change, true, nil
}

// Content returns the content of the current config, of the staged one or of the pending change.
func (h *Host) Content(c Config) (config.Content, error) {
	var content config.Content
	if c == (Config{}) {
		return content, nil
	}
	data, err := h.read(h.blob(c.Digest))
	if err != nil {
		return content, fmt.Errorf("reading the content of %s: %w", c.Name, err)
	}
	if err := json.Unmarshal(data, &content); err != nil {
		return content, fmt.Errorf("reading the content of %s: %w", c.Name, err)
	}
	return content, nil
}

// HasProgram reports whether the host has an executable file with this path. A link is none. What a config has put there does not count, because
// the next config may not have it.
func (h *Host) HasProgram(name string) (bool, error) {
	s, err := h.load()
	if err != nil {
		return false, err
	}
	e, isManaged := s.Originals[name]
	if !isManaged {
		e, err = h.tree.Read(name)
	}
	return e.IsProgram(), err
}

// Program returns the path on the host of an executable file. If the pending change has removed or replaced it by something else, the file of before is
// put there. found is false if there is neither.
func (h *Host) Program(change Change, name string) (file string, found bool, err error) {
	e, err := h.tree.Read(name)
	if err != nil || e.IsProgram() {
		return name, err == nil, err
	}
	return h.former(change, name)
}

// locked calls change with the state on disk, as the only process that may change it.
func (h *Host) locked(change func(*State) error) error {
	return h.alone(config.Folder, func() error {
		s, err := h.load()
		if err != nil {
			return err
		}
		return change(s)
	})
}

// alone calls do as the only process that has locked this folder of the journal. It returns ErrBusy if another one has.
func (h *Host) alone(name string, do func() error) error {
	if err := h.prepare(); err != nil {
		return err
	}
	return h.lock(name, do)
}

// lock is like alone, and does not create the folder.
func (h *Host) lock(name string, do func() error) error {
	folder, err := h.tree.OpenFolder(name)
	if err != nil {
		return err
	}
	defer folder.Close()
	switch free, err := atomicfile.TryLock(folder); {
	case err != nil:
		return fmt.Errorf("locking %s: %w", name, err)
	case !free:
		return ErrBusy
	}
	return do()
}
