//go:build linux

package host_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/test/ring"
)

// disk is a model of a disk that has only what a process has synced: the data and attributes of a file by fsync of the file, a name by fsync
// of its folder. A real disk may have more after a power loss, so code that recovers from this disk recovers from a real one.
type disk struct {
	t      *testing.T
	root   string
	inodes map[uint64]inode
}

// inode is the synced state of a file, a link or a folder.
type inode struct {
	mode     uint32
	uid, gid int
	data     string
	names    map[string]uint64
}

// newDisk returns a disk that has everything below the root.
func newDisk(t *testing.T, root string) *disk {
	d := &disk{t, root, map[uint64]inode{}}
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			d.add(path)
		}
		return err
	}))
	return d
}

// sync takes the place of fsync.
func (d *disk) sync(f *os.File) error {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return err
	}
	d.add(path)
	return nil
}

// add puts the present state of a path on the disk.
func (d *disk) add(path string) {
	var stat unix.Stat_t
	require.NoError(d.t, unix.Lstat(path, &stat))
	i := inode{mode: stat.Mode, uid: int(stat.Uid), gid: int(stat.Gid)}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		i.names = map[string]uint64{}
		entries, err := os.ReadDir(path)
		require.NoError(d.t, err)
		for _, e := range entries {
			var child unix.Stat_t
			require.NoError(d.t, unix.Lstat(filepath.Join(path, e.Name()), &child))
			i.names[e.Name()] = child.Ino
			if _, ok := d.inodes[child.Ino]; ok {
				continue
			}
			// A link has no data apart from its folder. An unsynced file or folder is empty after a power loss.
			if e.Type()&fs.ModeSymlink != 0 {
				d.add(filepath.Join(path, e.Name()))
			} else {
				d.keep(filepath.Join(path, e.Name()), child.Ino, inode{mode: child.Mode & unix.S_IFMT})
			}
		}
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		require.NoError(d.t, err)
		i.data = target
	default:
		data, err := os.ReadFile(path)
		require.NoError(d.t, err)
		i.data = string(data)
	}
	d.keep(path, stat.Ino, i)
}

// keep stores an inode. It holds it open, so that the system does not use its number again.
func (d *disk) keep(path string, number uint64, i inode) {
	if _, ok := d.inodes[number]; !ok {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		require.NoError(d.t, err)
		d.t.Cleanup(func() { _ = unix.Close(fd) })
	}
	d.inodes[number] = i
}

// afterPowerLoss returns a new root folder with the entries on the disk.
func (d *disk) afterPowerLoss() string {
	root := d.t.TempDir()
	var stat unix.Stat_t
	require.NoError(d.t, unix.Stat(d.root, &stat))
	d.write(root, d.inodes[stat.Ino])
	return root
}

func (d *disk) write(path string, i inode) {
	switch i.mode & unix.S_IFMT {
	case unix.S_IFDIR:
		require.NoError(d.t, os.MkdirAll(path, 0o700))
		for name, number := range i.names {
			d.write(filepath.Join(path, name), d.inodes[number])
		}
	case unix.S_IFLNK:
		require.NoError(d.t, os.Symlink(i.data, path))
	default:
		require.NoError(d.t, os.WriteFile(path, []byte(i.data), 0o600))
	}
	require.NoError(d.t, os.Lchown(path, i.uid, i.gid))
	if i.mode&unix.S_IFMT != unix.S_IFLNK {
		require.NoError(d.t, unix.Chmod(path, i.mode&0o7777))
	}
}

// TestPowerLossLosesNoState cuts the power before each operation of a change, its undo and its confirmation.
func TestPowerLossLosesNoState(t *testing.T) {
	before, after := entries(t)
	for _, test := range []struct {
		name   string
		begin  func(t *testing.T, root string)
		action func(*host.Host) error
		want   map[string]string
	}{
		{"apply", func(*testing.T, string) {}, func(h *host.Host) error { return h.Apply("to", target()) }, after},
		{"undo", applied, (*host.Host).Undo, before},
		{"confirm", applied, func(h *host.Host) error { return h.Confirm("to") }, after},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			scenario(t, root)
			test.begin(t, root)
			d := newDisk(t, root)
			var lost []string
			h := open(t, root, tree.Options{Sync: d.sync, Step: func(string, string) error {
				lost = append(lost, d.afterPowerLoss())
				return nil
			}})
			require.NoError(t, test.action(h))
			finished := d.afterPowerLoss()
			assert.Equal(t, test.want, list(t, finished), "after the last operation, the disk has everything")

			for i, root := range append(lost, finished) {
				h := open(t, root, tree.Options{})
				change, pending, err := h.Pending()
				require.NoError(t, err, "power loss at %d", i)
				state, err := h.State()
				require.NoError(t, err)
				switch {
				case !pending && state.Current.Name == "to":
					require.Equal(t, "confirm", test.name)
					require.Equal(t, after, list(t, root), "power loss at %d", i)
					update(t, h, "empty", config.Content{})
					require.Contains(t, list(t, root)["/etc/restored"], "of the host")
				case !pending:
					require.Equal(t, before, list(t, root), "power loss at %d", i)
				default:
					if change.Phase != host.Undoing {
						require.NoError(t, h.Resume())
						require.Equal(t, after, list(t, root), "power loss at %d, then continued", i)
					}
					require.NoError(t, h.Undo())
					require.Equal(t, before, list(t, root), "power loss at %d, then undone", i)
				}
				release(t, root)
			}
		})
	}
}

// TestPowerLossAfterARecoveryLosesNoState kills the process before each operation of a change, recovers, and then cuts the
// power. In the gate it does so before a part of the operations.
func TestPowerLossAfterARecoveryLosesNoState(t *testing.T) {
	before, after := entries(t)
	type death struct{}
	for operation, isKilled := 0, true; isKilled; operation += ring.Stride() {
		for _, test := range []struct {
			name    string
			recover func(*host.Host) error
			want    map[string]string
		}{{"continued", (*host.Host).Resume, after}, {"undone", (*host.Host).Undo, before}} {
			root := t.TempDir()
			scenario(t, root)
			d := newDisk(t, root)
			operations := 0
			h := open(t, root, tree.Options{Sync: d.sync, Step: func(string, string) error {
				if operations == operation {
					panic(death{})
				}
				operations++
				return nil
			}})
			isKilled = false
			func() {
				defer func() {
					if r := recover(); r != nil {
						require.IsType(t, death{}, r)
						isKilled = true
					}
				}()
				require.NoError(t, h.Apply("to", target()))
			}()
			h = open(t, root, tree.Options{Sync: d.sync})
			_, pending, err := h.Pending()
			require.NoError(t, err)
			require.NoError(t, test.recover(h))
			if pending {
				lost := d.afterPowerLoss()
				require.Equal(t, test.want, list(t, lost), "killed at %d, %s, then power loss", operation, test.name)
				release(t, lost)
			}
			release(t, root)
		}
	}
}
