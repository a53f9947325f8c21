//go:build linux

package host_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/ring"
)

// namespaceEnv is set in the child process of inNamespace.
const namespaceEnv = "CVO_TEST_HOST_NAMESPACE"

// immutable is FS_IMMUTABLE_FL of linux/fs.h.
const immutable = 0x10

// inNamespace runs a test in a child process with its own mounts. It returns true in the child. Where the system forbids such
// a process, the test is skipped, or fails on a CI machine.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaceEnv) != "" {
		// Some systems allow such a process, but not that it mounts.
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			fixture.SkipUnlessCI(t, "no mount: "+err.Error())
		}
		return true
	}
	command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	command.Env = append(os.Environ(), namespaceEnv+"=1")
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWNS | unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	if os.Geteuid() == 0 {
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	output, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		fixture.SkipUnlessCI(t, "no process with its own mounts: "+err.Error())
	}
	require.NoError(t, err, string(output))
	if bytes.Contains(output, []byte("--- SKIP")) {
		fixture.SkipUnlessCI(t, string(output))
	}
	return false
}

func mount(t *testing.T, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		fixture.SkipUnlessCI(t, "no mount: "+err.Error())
	}
	if flags&unix.MS_REMOUNT == 0 {
		t.Cleanup(func() { assert.NoError(t, unix.Unmount(target, unix.MNT_DETACH)) })
	}
}

func TestObstacleOfTheFileSystemUndoesTheChange(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	content := files(file("/etc/a", "a", 0o644), file("/etc/b/c", "c", 0o644), file("/etc/b/new", "new", 0o644))
	for _, test := range []struct {
		name     string
		obstacle func(t *testing.T, root string)
		path     string
		errno    error
	}{
		{"a mount point in the file's place", func(t *testing.T, root string) {
			mount(t, root+"/etc/b/c", root+"/etc/b/c", "", unix.MS_BIND, "")
		}, "/etc/b/c", unix.EBUSY},
		{"a read-only file system", func(t *testing.T, root string) {
			mount(t, root+"/etc/b", root+"/etc/b", "", unix.MS_BIND, "")
			mount(t, "", root+"/etc/b", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
		}, "/etc/b/c", unix.EROFS},
		{"an immutable file", func(t *testing.T, root string) { setFlags(t, root+"/etc/b/c", immutable) }, "/etc/b/c", unix.EPERM},
		{"a folder with fixed names", func(t *testing.T, root string) { setFlags(t, root+"/etc/b", immutable) }, "/etc/b/c", unix.EPERM},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, "/etc/a", "of the host", 0o600)
			write(t, root, "/etc/b/c", "of the host", 0o600)
			before := list(t, root)
			test.obstacle(t, root)
			h := open(t, root, tree.Options{})
			err := h.Apply("to", content)
			require.ErrorIs(t, err, test.errno)
			require.ErrorContains(t, err, test.path)
			require.NotErrorIs(t, err, host.ErrNotUndone)
			assert.Equal(t, before, list(t, root))
		})
	}
}

func setFlags(t *testing.T, path string, flags int) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
		_ = f.Close()
		fixture.SkipUnlessCI(t, "no inode flags: "+err.Error())
	}
	t.Cleanup(func() {
		assert.NoError(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0))
		assert.NoError(t, f.Close())
	})
}

// TestFullFileSystemUndoesTheChange leaves more and more free pages, so each large write of a change fails once.
func TestFullFileSystemUndoesTheChange(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	const page = 4096
	full := 0
	for free := 0; ; free += 2 * ring.Stride() {
		require.Less(t, free, 450, "the change must fit into the file system")
		root := t.TempDir()
		require.NoError(t, unix.Mount("tmpfs", root, "tmpfs", 0, "size=2m"))
		write(t, root, "/etc/a", strings.Repeat("a", 30*page), 0o600)
		write(t, root, "/etc/b", strings.Repeat("b", 30*page), 0o600)
		before := list(t, root)
		fill(t, root, free)

		h, err := host.Open(root, host.Options{Tree: tree.Options{Sync: noSync}})
		require.NoError(t, err)
		err = h.Apply("to", files(
			file("/etc/a", strings.Repeat("x", 31*page), 0o600), file("/etc/b", strings.Repeat("y", 29*page), 0o600),
			file("/etc/c", strings.Repeat("z", 40*page), 0o600)))
		if err != nil {
			full++
			require.ErrorIs(t, err, unix.ENOSPC)
			require.NotErrorIs(t, err, host.ErrNotUndone, "%d pages", free)
		} else {
			fill(t, root, 0)
			require.NoError(t, h.Undo(), "%d pages", free)
		}
		require.NoError(t, os.Remove(root+"/ballast"))
		require.Equal(t, before, list(t, root), "%d pages", free)
		_, pending, pendingErr := h.Pending()
		require.NoError(t, pendingErr)
		require.False(t, pending)
		require.NoError(t, h.Close())
		require.NoError(t, unix.Unmount(root, 0))
		if err == nil {
			break
		}
	}
	assert.Greater(t, full, 20, "the large writes of the change need this many pages")
}

// fill leaves this number of free pages in a file system.
func fill(t *testing.T, root string, free int) {
	t.Helper()
	f, err := os.OpenFile(root+"/ballast", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer f.Close()
	var stat unix.Statfs_t
	require.NoError(t, unix.Statfs(root, &stat))
	size := (int64(stat.Bfree) - int64(free)) * stat.Bsize
	if size > 0 {
		_, err = f.Write(make([]byte, size))
		require.NoError(t, err)
	}
}
