//go:build linux

package host

import (
	"cmp"
	"io/fs"
	"maps"
	"path"

	"golang.org/x/sys/unix"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
)

// plan returns the steps from the host's current entries to the wanted ones, and the originals after these steps. Paths that only the
// current config manages get their originals back. If a path has an entry that cannot be replaced, such as a folder or a device, the error
// contains the path and the errno.
func (h *Host) plan(s *State, to target) ([]Step, map[string]tree.Entry, error) {
	wanted := to.entries
	after := maps.Clone(s.Originals)
	if after == nil {
		after = map[string]tree.Entry{}
	}
	maps.Copy(after, wanted)
	folders, err := h.folders(s, after, to)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(after, folders)

	var steps []Step
	originals := map[string]tree.Entry{}
	for name, e := range after {
		before, err := h.tree.Read(name)
		if err != nil {
			return nil, nil, err
		}
		original, isManaged := s.Originals[name]
		if !isManaged {
			if errno := irreplaceable(before); errno != 0 {
				return nil, nil, &fs.PathError{Op: "replace", Path: name, Err: errno}
			}
			original = before
		}
		_, isWanted := wanted[name]
		if isWanted && e.Kind == tree.Absent && !to.disabled[name] && !isMask(original) {
			// The unit was not masked before any config, so there is nothing to unmask.
			isWanted, e = false, original
		}
		if isWanted || e.Kind == tree.Folder {
			originals[name] = original
		}
		if !e.Matches(before) {
			steps = append(steps, Step{name, before, e})
		}
	}
	sorted.By(steps, compareSteps)
	return steps, originals, nil
}

// irreplaceable returns the errno of an entry that a file cannot replace, else 0.
func irreplaceable(e tree.Entry) unix.Errno {
	switch e.Kind {
	case tree.Folder:
		return unix.EISDIR
	case tree.Other:
		return unix.EEXIST
	default:
		return 0
	}
}

// isMask reports whether an entry masks a unit.
func isMask(e tree.Entry) bool { return e.Kind == tree.Link && e.Target == masked }

// compareSteps orders steps: removals first, the content of a folder before the folder; then the others, a folder before its content. So a
// file and a folder can replace each other.
func compareSteps(a, b Step) int {
	aRemoves, bRemoves := a.After.Kind == tree.Absent, b.After.Kind == tree.Absent
	switch {
	case aRemoves && bRemoves:
		return cmp.Compare(b.Path, a.Path)
	case aRemoves:
		return -1
	case bRemoves:
		return 1
	}
	return cmp.Compare(a.Path, b.Path)
}

// folders returns the folders that the entries need and that either do not exist or were created for a config.
func (h *Host) folders(s *State, entries map[string]tree.Entry, to target) (map[string]tree.Entry, error) {
	folders := map[string]tree.Entry{}
	for name, e := range entries {
		if e.Kind == tree.Absent {
			continue
		}
		for folder := path.Dir(name); folder != "/"; folder = path.Dir(folder) {
			if _, ok := folders[folder]; ok {
				break
			}
			isNeeded, err := h.needs(s, folder)
			if err != nil {
				return nil, err
			}
			if e, isOwned := to.folders[folder]; isNeeded && isOwned {
				folders[folder] = e
			} else if isNeeded {
				folders[folder] = own(tree.Entry{Kind: tree.Folder, Mode: 0o755})
			}
		}
	}
	return folders, nil
}

// needs reports whether a change must create the folder, or keep one that an earlier change has created.
func (h *Host) needs(s *State, folder string) (bool, error) {
	if original, ok := s.Originals[folder]; ok {
		// An original that is a link may lead to a folder: the steps restore it before they write below it.
		return original.Kind == tree.Absent, nil
	}
	exists, err := h.tree.IsFolder(folder)
	if exists || err != nil {
		return false, err
	}
	e, err := h.tree.Read(folder)
	if err == nil && e.Kind != tree.Absent {
		err = &fs.PathError{Op: "create folder", Path: folder, Err: unix.ENOTDIR}
	}
	return err == nil, err
}

// existing returns the existing folders that lead to the paths of the steps.
func (h *Host) existing(steps []Step) (map[string]tree.Entry, error) {
	folders := map[string]tree.Entry{}
	for _, step := range steps {
		for folder := path.Dir(step.Path); folder != "/"; folder = path.Dir(folder) {
			if _, ok := folders[folder]; ok {
				break
			}
			e, err := h.tree.Read(folder)
			if err != nil {
				return nil, err
			}
			if e.Kind == tree.Folder {
				folders[folder] = e
			}
		}
	}
	return folders, nil
}
