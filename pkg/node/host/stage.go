//go:build linux

package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
)

// Space is an amount of space and of inodes on a file system.
type Space struct{ Bytes, Inodes uint64 }

// block is the assumed size of a file system's blocks in bytes.
const block = 4096

// staging is a file with the staged config. Its content is a blob.
func (h *Host) staging() string { return path.Join(config.Folder, "staged.json") }

// Staged returns the config that Stage has put on disk last. It is the zero value before the first.
func (h *Host) Staged() (Config, error) {
	var staged Config
	err := h.readJSON(h.staging(), &staged)
	return staged, err
}

// Stage puts the content of a config on disk below the host's own folder, and replaces the config that was staged before. It writes nothing else to
// the host. It fails if the file systems have not enough space or inodes for the change from the host's entries to the content. An obstacle to
// this change, such as a folder in a file's place, is an error of Apply only.
func (h *Host) Stage(name string, content config.Content) error {
	return h.locked(func(s *State) error { return h.stage(s, name, content) })
}

func (h *Host) stage(s *State, name string, content config.Content) error {
	encoded, err := json.Marshal(content)
	if err != nil {
		return err
	}
	staged := Config{name, digestOf(encoded)}
	if err := h.checkSpace(s, content, uint64(len(encoded))); err != nil {
		return err
	}
	if err := h.write(h.blob(staged.Digest), staged.Digest, bytes.NewReader(encoded)); err != nil {
		return err
	}
	if err := h.writeJSON(h.staging(), staged); err != nil {
		return err
	}
	if s.Change != nil {
		return nil // the end of the change removes what is not needed
	}
	return h.collect(s)
}

// checkSpace fails if a file system has not enough space or inodes for a change to the content. encoded is the size of the content in the journal.
func (h *Host) checkSpace(s *State, content config.Content, encoded uint64) error {
	steps, to := h.stepsTo(s, content)
	v := volumes{host: h}
	// Staging and the journal of the change write the content, and the journal has a file for its state and one for the reserve.
	v.add(config.Folder, encoded, encoded, uint64(len(steps)+16)*block, uint64(len(steps)+16)*block)
	for _, step := range steps {
		if step.Before.Kind == tree.File {
			v.add(config.Folder, h.size(step.Path))
		}
		if step.After.Kind != tree.Absent {
			v.add(path.Dir(step.Path), uint64(len(to.data[step.After.Digest])))
		}
	}
	return v.check()
}

// stepsTo returns the steps of a change to a content, and its target; no steps if Begin would fail.
func (h *Host) stepsTo(s *State, content config.Content) ([]Step, target) {
	to, err := h.target(s, content)
	if err != nil {
		return nil, to
	}
	steps, _, err := h.plan(s, to)
	if err != nil {
		return nil, to
	}
	return steps, to
}

// size returns the size of a file in bytes; 0 if it cannot be opened, which is an error of Apply.
func (h *Host) size(name string) uint64 {
	f, err := h.tree.OpenFile(name)
	if err != nil {
		return 0
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return uint64(info.Size())
}

// volumes adds up what a change needs on each file system.
type volumes struct {
	host  *Host
	list  []*volume
	error error
}

// volume is a file system.
type volume struct {
	device uint64
	// path is that of a folder on it.
	path        string
	needs, free Space
}

// add adds files with these sizes in a folder, which may not exist yet.
func (v *volumes) add(folder string, sizes ...uint64) {
	volume, err := v.of(folder)
	if err != nil {
		v.error = errors.Join(v.error, err)
		return
	}
	for _, size := range sizes {
		volume.needs.Bytes += (size + block) / block * block
		volume.needs.Inodes++
	}
}

// of returns the file system of a folder, or of the first folder above that exists.
func (v *volumes) of(folder string) (*volume, error) {
	f, err := v.host.tree.OpenFolder(folder)
	if err != nil && folder != "/" {
		return v.of(path.Dir(folder))
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: folder, Err: err}
	}
	for _, known := range v.list {
		if known.device == stat.Dev {
			return known, nil
		}
	}
	free, err := v.host.free(f)
	if err != nil {
		return nil, &fs.PathError{Op: "statfs", Path: folder, Err: err}
	}
	added := &volume{device: stat.Dev, path: folder, free: free}
	v.list = append(v.list, added)
	return added, nil
}

// check fails if a file system has not enough space or inodes.
func (v *volumes) check() error {
	errs := []error{v.error}
	for _, volume := range v.list {
		for _, resource := range []struct {
			needed, free uint64
			unit         string
		}{{volume.needs.Bytes, volume.free.Bytes, "bytes"}, {volume.needs.Inodes, volume.free.Inodes, "inodes"}} {
			if resource.needed > resource.free {
				errs = append(errs, fmt.Errorf("the change needs %d %s on the file system of %s, and %d are free: %w",
					resource.needed, resource.unit, volume.path, resource.free, unix.ENOSPC))
			}
		}
	}
	return errors.Join(errs...)
}

// free returns the free space of a folder's file system. A file system without a limit of inodes reports none at all.
func free(folder *os.File) (Space, error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(folder.Fd()), &stat); err != nil {
		return Space{}, err
	}
	space := Space{stat.Bavail * uint64(stat.Bsize), stat.Ffree}
	if stat.Files == 0 {
		space.Inodes = ^uint64(0)
	}
	return space, nil
}
