//go:build linux

package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/pkg/node/host/unitfile"
)

// addLinks adds the links of enabled units to a target, and the absence of those of disabled ones. They are the links that systemctl(1) writes, so the
// journal restores them like any file.
func (h *Host) addLinks(t target, content config.Content) error {
	links := sync.OnceValues(func() (map[string]tree.Entry, error) { // only disabled units need them
		all, err := h.links()
		if err == nil {
			maps.Copy(all, t.originals) // they would return if the target did not have their paths
		}
		return all, err
	})
	for _, isEnabled := range []bool{false, true} { // an enabled unit may need a link with the name of one that a disabled unit loses
		for _, u := range content.Units {
			if u.Enabled == nil || *u.Enabled != isEnabled || u.Mask != nil && *u.Mask {
				continue
			}
			family, err := h.family(t, content, u.Name)
			if err != nil && (isEnabled || !errors.Is(err, fs.ErrNotExist)) {
				return err
			}
			for name, member := range family {
				if name != u.Name && decides(content, name) {
					continue
				}
				if isEnabled {
					err = h.enable(t, member)
				} else {
					err = disable(t, name, links)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// decides reports whether a content itself enables or disables a unit. Then Also of other units does not count.
func decides(content config.Content, unit string) bool {
	return slices.ContainsFunc(content.Units, func(u config.Unit) bool { return u.Name == unit && u.Enabled != nil })
}

func (h *Host) enable(t target, unit unitfile.Installed) error {
	for _, link := range unit.Links {
		wanted := own(tree.Entry{Kind: tree.Link, Target: unit.File})
		found, isManaged := t.originals[link]
		if !isManaged {
			var err error
			if found, err = h.tree.Read(link); err != nil {
				return err
			}
		}
		if found.Kind == tree.Link && path.Base(found.Target) == path.Base(unit.File) {
			wanted = found // another path of the same file, such as a relative one
		}
		if e, ok := t.entries[link]; ok && e.Kind == tree.File {
			return &fs.PathError{Op: "enable", Path: link, Err: unix.EEXIST}
		}
		t.entries[link] = wanted
		delete(t.disabled, link)
	}
	return nil
}

// disable adds to a target the absence of those of the links that enable a unit.
func disable(t target, unit string, links func() (map[string]tree.Entry, error)) error {
	all, err := links()
	if err != nil {
		return err
	}
	for name, e := range all {
		isAlias := path.Dir(name) == unitfile.Folder && path.Base(e.Target) == unit && path.Base(name) != unit
		isDependency := unitfile.IsDependency(name) && path.Base(name) == unit
		if e.Kind == tree.Link && (isAlias || isDependency) {
			t.entries[name] = tree.Entry{Kind: tree.Absent}
			t.disabled[name] = true
		}
	}
	return nil
}

// links returns the links below the folder of units: aliases, masks, and those that enable units.
func (h *Host) links() (map[string]tree.Entry, error) {
	all := map[string]tree.Entry{}
	var walk func(folder string) error
	walk = func(folder string) error {
		f, err := h.tree.OpenFolder(folder)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		entries, err := f.ReadDir(-1)
		for _, e := range entries {
			name := path.Join(folder, e.Name())
			switch {
			case err != nil:
			case e.Type() == fs.ModeSymlink:
				all[name], err = h.tree.Read(name)
			case e.IsDir() && folder == unitfile.Folder:
				err = walk(name)
			}
		}
		return err
	}
	return all, walk(unitfile.Folder)
}

// family returns a unit and those that its section [Install] names in Also, by name. The unit is in it even if it does not exist, which is an error.
func (h *Host) family(t target, content config.Content, unit string) (map[string]unitfile.Installed, error) {
	all := map[string]unitfile.Installed{}
	for queue := []string{unit}; len(queue) > 0; queue = queue[1:] {
		name := queue[0]
		if _, ok := all[name]; ok {
			continue
		}
		member, err := h.find(t, content, name)
		all[name] = member
		if err != nil {
			return all, fmt.Errorf("finding unit %s: %w", name, err)
		}
		queue = append(queue, member.Also...)
	}
	return all, nil
}

// find finds a unit on the host as it is after the change to a target. Drop-ins of the host do not count.
func (h *Host) find(t target, content config.Content, unit string) (unitfile.Installed, error) {
	var dropIns []string
	for _, name := range unitfile.Names(unit) {
		i := slices.IndexFunc(content.Units, func(u config.Unit) bool { return u.Name == name })
		if i >= 0 {
			for _, d := range content.Units[i].DropIns {
				dropIns = append(dropIns, d.Contents)
			}
		}
		for _, folder := range unitfile.Folders() {
			file := path.Join(folder, name)
			data, err := h.readAfter(t, file)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return unitfile.Installed{}, err
			}
			return unitfile.Parse(unit, file, append([]string{string(data)}, dropIns...))
		}
	}
	return unitfile.Installed{}, &fs.PathError{Op: "enable", Path: path.Join(unitfile.Folder, unit), Err: unix.ENOENT}
}

// readAfter reads a file as it is after the change to a target: a path that the target leaves gets its original back.
func (h *Host) readAfter(t target, name string) ([]byte, error) {
	e, ok := t.entries[name]
	if !ok || e.Kind == tree.Absent {
		e, ok = t.originals[name]
	}
	switch {
	case !ok:
	case e.Kind == tree.Absent:
		return nil, &fs.PathError{Op: "open", Path: name, Err: unix.ENOENT}
	case e.Kind == tree.Link && path.IsAbs(e.Target):
		name = e.Target
	case e.Kind == tree.Link:
		name = path.Join(path.Dir(name), e.Target)
	case e.Kind == tree.File:
		data, err := h.data(e.Digest, t)
		if err != nil {
			return nil, err
		}
		defer data.Close()
		return io.ReadAll(data)
	}
	return h.read(name)
}

// Touches reports whether the change has a step for a file or a link of a unit, or of the template of an instance.
func (c Change) Touches(unit string) bool {
	return slices.ContainsFunc(c.Steps, func(s Step) bool { return unitfile.Concerns(s.Path, unit) })
}
