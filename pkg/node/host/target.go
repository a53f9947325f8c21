//go:build linux

package host

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/pkg/node/host/unitfile"
)

// masked is the target of the link that masks a unit (systemctl(1), mask).
const masked = "/dev/null"

// target is the intended state of the paths that a Content manages.
type target struct {
	entries map[string]tree.Entry
	// owners contains the managed files by path, with their owners.
	owners map[string]config.File
	// data contains the data of the files by digest.
	data map[string][]byte
	// folders contains the folders that belong to the user of the SSH keys, for the case that they do not exist.
	folders map[string]tree.Entry
	// former contains the folders that existed at the start of the change.
	former map[string]tree.Entry
	// disabled contains the paths of links that enable disabled units. Their entries have kind Absent.
	disabled map[string]bool
	// originals are those of the journal. A path that the target does not have returns to its original.
	originals map[string]tree.Entry
}

// keysUser is the user who has the SSH keys of a config. It is the only one that MachineConfigs may name, as in OpenShift.
const keysUser = "core"

// keysFile is the file with the keys in the home of their user.
const keysFile = "/.ssh/authorized_keys"

// HasKeysUser reports whether the host has the user who has the SSH keys of a config.
func (h *Host) HasKeysUser() (bool, error) {
	_, found, err := h.user(keysUser)
	return found, err
}

// targetOf is the function targetOf, with the file of the SSH keys, which replaces the keys of their user. A host without that user, which is only a
// folder, ignores them.
func (h *Host) targetOf(content config.Content) (target, error) {
	if len(content.SSHKeys) == 0 {
		return targetOf(content)
	}
	u, found, err := h.user(keysUser)
	if err != nil {
		return target{}, err
	}
	if !found {
		return targetOf(content)
	}
	content.Files = append(slices.Clone(content.Files), config.File{
		Path: path.Join(u.home, keysFile), Mode: 0o600, User: config.Owner{ID: u.uid}, Group: config.Owner{ID: u.gid},
		Data: []byte(strings.Join(content.SSHKeys, "\n") + "\n"),
	})
	t, err := targetOf(content)
	t.folders = map[string]tree.Entry{}
	for _, name := range []string{u.home, path.Join(u.home, path.Dir(keysFile))} {
		t.folders[name] = tree.Entry{Kind: tree.Folder, Mode: 0o700, UID: u.uid, GID: u.gid}
	}
	return t, err
}

// targetOf returns the target of a Content without its SSH keys. A unit is a file below /etc/systemd/system, a drop-in a file in its folder NAME.d, a masked
// unit a link to /dev/null. An entry of kind Absent stands for a unit that must not be masked.
func targetOf(content config.Content) (target, error) {
	t := target{
		entries: map[string]tree.Entry{}, owners: map[string]config.File{}, data: map[string][]byte{}, disabled: map[string]bool{},
	}
	var errs []error
	add := func(name string, e tree.Entry, data []byte) {
		if _, ok := t.entries[name]; ok {
			errs = append(errs, fmt.Errorf("%s occurs twice in the content", name))
		}
		if e.Kind == tree.File {
			e.Digest = digestOf(data)
			t.data[e.Digest] = data
		}
		t.entries[name] = own(e)
	}
	for _, f := range content.Files {
		add(f.Path, tree.Entry{Kind: tree.File, Mode: uint32(f.Mode.Perm())}, f.Data)
		t.owners[f.Path] = f
	}
	for _, u := range content.Units {
		name := path.Join(unitfile.Folder, u.Name)
		switch {
		case u.Mask != nil && *u.Mask:
			add(name, tree.Entry{Kind: tree.Link, Target: masked}, nil)
		case u.Contents != "":
			add(name, tree.Entry{Kind: tree.File, Mode: 0o644}, []byte(u.Contents))
		case u.Mask != nil:
			add(name, tree.Entry{Kind: tree.Absent}, nil)
		}
		for _, d := range u.DropIns {
			add(path.Join(name+".d", d.Name), tree.Entry{Kind: tree.File, Mode: 0o644}, []byte(d.Contents))
		}
	}
	return t, errors.Join(errs...)
}

// target is like targetOf, with what depends on the host: the owners of files, and the links that enable units.
func (h *Host) target(s *State, content config.Content) (target, error) {
	t, err := h.targetOf(content)
	t.originals = s.Originals
	if err == nil {
		err = h.resolveOwners(t)
	}
	if err == nil {
		err = h.addLinks(t, content)
	}
	return t, err
}

// resolveOwners fills in the owners of the entries, with the IDs of the host's users and groups. A process that is not root keeps its own
// IDs, because it cannot change owners. This occurs only in tests and trials.
func (h *Host) resolveOwners(t target) error {
	if os.Geteuid() != 0 {
		return nil
	}
	for name, f := range t.owners {
		e := t.entries[name]
		var err error
		if e.UID, err = h.id(f.User, "/etc/passwd"); err != nil {
			return fmt.Errorf("resolving the user of %s: %w", name, err)
		}
		if e.GID, err = h.id(f.Group, "/etc/group"); err != nil {
			return fmt.Errorf("resolving the group of %s: %w", name, err)
		}
		t.entries[name] = e
	}
	return nil
}

// id returns the ID of a user or a group. Both files have the ID in the third field.
func (h *Host) id(owner config.Owner, file string) (int, error) {
	if owner.Name == "" {
		return owner.ID, nil
	}
	fields, err := h.account(owner.Name, file)
	if err == nil && fields == nil {
		err = fmt.Errorf("%s has no %q", file, owner.Name)
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(fields[2])
}

// user is a user of the host.
type user struct {
	uid, gid int
	home     string
}

// user returns a user, unless the host does not have it or its line lacks a field.
func (h *Host) user(name string) (u user, found bool, err error) {
	fields, err := h.account(name, "/etc/passwd")
	if err != nil || len(fields) < 6 || !path.IsAbs(fields[5]) {
		return u, false, err
	}
	u.home = fields[5]
	if u.uid, err = strconv.Atoi(fields[2]); err == nil {
		u.gid, err = strconv.Atoi(fields[3])
	}
	return u, err == nil, err
}

// account returns the fields of a user or of a group, at least three, or nil. Both files have the name in the first field (passwd(5), group(5)).
func (h *Host) account(name, file string) ([]string, error) {
	data, err := h.read(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) > 2 && fields[0] == name {
			return fields, nil
		}
	}
	return nil, nil
}
