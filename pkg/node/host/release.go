//go:build linux

package host

import (
	"path"

	"github.com/cluster-version/cvo/pkg/node/config"
)

// HasFolder reports whether the host has the folder of the node stage.
func (h *Host) HasFolder() (bool, error) { return h.tree.IsFolder(config.Folder) }

// MakeFolder creates the folder of the node stage, unless it exists.
func (h *Host) MakeFolder() error { return h.prepare() }

// Release disables the guard and removes the folder of the node stage, with the journal and all originals. The content of the current config stays
// on the host. Release returns ErrPending if a change is pending, and does nothing without the folder. If the process is killed, the rest of the
// folder is that of a host without a config, and another Release removes it.
func (h *Host) Release() error {
	if has, err := h.HasFolder(); !has || err != nil {
		return err
	}
	return h.lock(config.Folder, func() error {
		if err := h.endGuard("releasing the host"); err != nil {
			return err
		}
		// First the files that refer to others.
		for _, name := range []string{h.file(), h.staging()} {
			if err := h.tree.Remove(name); err != nil {
				return err
			}
		}
		return h.removeAll(config.Folder)
	})
}

// removeAll removes a folder with its content. It does not follow the links in it.
func (h *Host) removeAll(name string) error {
	folder, err := h.tree.OpenFolder(name)
	if err != nil {
		return err
	}
	defer folder.Close()
	entries, err := folder.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		remove := h.tree.Remove
		if e.IsDir() {
			remove = h.removeAll
		}
		if err := remove(path.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return h.tree.Remove(name)
}
