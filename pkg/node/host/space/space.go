//go:build linux

// Package space compares what the files of a change need with the free space and the free inodes of the file systems that they are on. Linux only.
package space

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/cluster-version/cvo/pkg/node/host/tree"
)

// Space is an amount of space in bytes, and of inodes.
type Space struct{ Bytes, Inodes uint64 }

// Block is the assumed size of a file system's blocks in bytes.
const Block = 4096

// Needs adds up what the files of a change need on each file system.
type Needs struct {
	tree  *tree.Tree
	free  func(folder *os.File) (Space, error)
	list  []*volume
	error error
}

// New returns the needs of no files. free returns the free space on the file system of a folder, see Free.
func New(t *tree.Tree, free func(folder *os.File) (Space, error)) *Needs {
	return &Needs{tree: t, free: free}
}

// volume is a file system.
type volume struct {
	device uint64
	// path is that of a folder on it.
	path        string
	needs, free Space
}

// Add adds files with these sizes in bytes in a folder, which may not exist yet. Check returns its error.
func (n *Needs) Add(folder string, sizes ...uint64) {
	volume, err := n.of(folder)
	if err != nil {
		n.error = errors.Join(n.error, err)
		return
	}
	for _, size := range sizes {
		volume.needs.Bytes += (size + Block) / Block * Block
		volume.needs.Inodes++
	}
}

// of returns the file system of a folder, or of the first folder above that exists.
func (n *Needs) of(folder string) (*volume, error) {
	f, err := n.tree.OpenFolder(folder)
	if err != nil && folder != "/" {
		return n.of(path.Dir(folder))
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: folder, Err: err}
	}
	for _, known := range n.list {
		if known.device == stat.Dev {
			return known, nil
		}
	}
	free, err := n.free(f)
	if err != nil {
		return nil, &fs.PathError{Op: "statfs", Path: folder, Err: err}
	}
	added := &volume{device: stat.Dev, path: folder, free: free}
	n.list = append(n.list, added)
	return added, nil
}

// Check returns an error if a file system has not enough space or inodes.
func (n *Needs) Check() error {
	errs := []error{n.error}
	for _, volume := range n.list {
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

// Free returns the free space of a folder's file system. A file system without a limit of inodes reports none at all.
func Free(folder *os.File) (Space, error) {
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
