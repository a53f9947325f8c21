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
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
)

// unitFolders are the folders of a host's units, in the order of their priority (systemd.unit(5)).
var unitFolders = []string{units, "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// dependencies are the folders of the links that enable units, by the key of the section [Install] (systemd.unit(5)).
var dependencies = map[string]string{"WantedBy": ".wants", "RequiredBy": ".requires", "UpheldBy": ".upholds"}

// installed is a unit that can be enabled.
type installed struct {
	// file is the path of the unit's file. It is that of the template for an instance.
	file string
	// links are the paths of the links that enable it.
	links []string
	// also are other units that are enabled and disabled together with it.
	also []string
}

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

func (h *Host) enable(t target, unit installed) error {
	for _, link := range unit.links {
		wanted := own(tree.Entry{Kind: tree.Link, Target: unit.file})
		found, isManaged := t.originals[link]
		if !isManaged {
			var err error
			if found, err = h.tree.Read(link); err != nil {
				return err
			}
		}
		if found.Kind == tree.Link && path.Base(found.Target) == path.Base(unit.file) {
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
		isAlias := path.Dir(name) == units && path.Base(e.Target) == unit && path.Base(name) != unit
		isDependency := slices.Contains(slices.Collect(maps.Values(dependencies)), path.Ext(path.Dir(name))) && path.Base(name) == unit
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
			case e.IsDir() && folder == units:
				err = walk(name)
			}
		}
		return err
	}
	return all, walk(units)
}

// family returns a unit and those that its section [Install] names in Also, by name. The unit is in it even if it does not exist, which is an error.
func (h *Host) family(t target, content config.Content, unit string) (map[string]installed, error) {
	all := map[string]installed{}
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
		queue = append(queue, member.also...)
	}
	return all, nil
}

// find finds a unit on the host as it is after the change to a target. Drop-ins of the host do not count.
func (h *Host) find(t target, content config.Content, unit string) (installed, error) {
	var dropIns []string
	for _, name := range namesOf(unit) {
		i := slices.IndexFunc(content.Units, func(u config.Unit) bool { return u.Name == name })
		if i >= 0 {
			for _, d := range content.Units[i].DropIns {
				dropIns = append(dropIns, d.Contents)
			}
		}
		for _, folder := range unitFolders {
			file := path.Join(folder, name)
			data, err := h.readAfter(t, file)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return installed{}, err
			}
			return parse(unit, file, append([]string{string(data)}, dropIns...))
		}
	}
	return installed{}, &fs.PathError{Op: "enable", Path: path.Join(units, unit), Err: unix.ENOENT}
}

// namesOf returns the names of the files that define a unit, in the order of their priority: its own, and for an instance that of its template.
func namesOf(unit string) []string {
	prefix, instance, _ := strings.Cut(strings.TrimSuffix(unit, path.Ext(unit)), "@")
	if instance == "" {
		return []string{unit}
	}
	return []string{unit, prefix + "@" + path.Ext(unit)}
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

// parse reads the sections [Install] of a unit's file and its drop-ins (systemd.syntax(7)). An empty value removes the former ones.
func parse(unit, file string, texts []string) (installed, error) {
	values := map[string][]string{}
	for _, text := range texts {
		section := ""
		for line := range strings.SplitSeq(strings.ReplaceAll(text, "\\\n", " "), "\n") {
			line = strings.TrimSpace(line)
			key, value, isAssignment := strings.Cut(line, "=")
			switch key = strings.TrimSpace(key); {
			case strings.HasPrefix(line, "#"), strings.HasPrefix(line, ";"):
			case strings.HasPrefix(line, "["):
				section = line
			case section != "[Install]" || !isAssignment:
			case strings.TrimSpace(value) == "":
				delete(values, key)
			default:
				values[key] = append(values[key], strings.Fields(value)...)
			}
		}
	}
	name := unit
	if prefix, ok := strings.CutSuffix(strings.TrimSuffix(unit, path.Ext(unit)), "@"); ok {
		if len(values["DefaultInstance"]) == 0 {
			return installed{}, fmt.Errorf("a template without DefaultInstance cannot be enabled: %w", unix.EINVAL)
		}
		name = prefix + "@" + values["DefaultInstance"][0] + path.Ext(unit)
	}
	prefix, instance, _ := strings.Cut(strings.TrimSuffix(name, path.Ext(name)), "@")
	specifiers := strings.NewReplacer("%%", "%", "%i", instance, "%p", prefix, "%n", name, "%N", strings.TrimSuffix(name, path.Ext(name)))
	found := installed{file: file, also: values["Also"]}
	for key, folder := range dependencies {
		for _, target := range values[key] {
			found.links = append(found.links, path.Join(units, specifiers.Replace(target)+folder, name))
		}
	}
	for _, alias := range values["Alias"] {
		found.links = append(found.links, path.Join(units, specifiers.Replace(alias)))
	}
	for _, link := range found.links {
		if strings.Contains(link, "%") || !strings.HasPrefix(link, units+"/") {
			return installed{}, fmt.Errorf("its section [Install] cannot be followed: %s: %w", link, unix.EINVAL)
		}
	}
	for _, name := range slices.Concat(found.links, found.also) {
		if config.Reserved(name) != "" {
			return installed{}, fmt.Errorf("its section [Install] names a unit of the node stage: %s: %w", name, unix.EINVAL)
		}
	}
	return found, nil
}

// Touches reports whether the change has a step for a file or a link of a unit, or of the template of an instance.
func (c Change) Touches(unit string) bool {
	names := namesOf(unit)
	return slices.ContainsFunc(c.Steps, func(s Step) bool {
		folder, isDropIn := strings.CutSuffix(path.Dir(s.Path), ".d")
		if isDropIn && path.Dir(folder) == units {
			return slices.Contains(names, path.Base(folder))
		}
		return strings.HasPrefix(s.Path, units+"/") && slices.Contains(names, path.Base(s.Path))
	})
}
