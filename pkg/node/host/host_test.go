//go:build linux

package host_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/test/fixture"
)

// noSync replaces fsync: a test that kills a process needs none, and is faster without.
func noSync(*os.File) error { return nil }

func open(t testing.TB, root string, options tree.Options) *host.Host {
	t.Helper()
	if options.Sync == nil {
		options.Sync = noSync
	}
	h, err := host.Open(root, host.Options{Tree: options})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.Close()) })
	return h
}

// update applies and confirms a config.
func update(t testing.TB, h *host.Host, name string, content config.Content) {
	t.Helper()
	require.NoError(t, h.Apply(name, content))
	require.NoError(t, h.Confirm(name))
}

func file(path, data string, mode fs.FileMode) config.File {
	return config.File{Path: path, Data: []byte(data), Mode: mode}
}

func files(files ...config.File) config.Content { return config.Content{Files: files} }

func write(t testing.TB, root, path, data string, mode fs.FileMode) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(root+path), 0o755))
	require.NoError(t, os.WriteFile(root+path, []byte(data), 0o600))
	require.NoError(t, os.Chmod(root+path, mode))
}

// list returns each entry below the root with its mode, owner and content, except the journal's.
func list(t testing.TB, root string) map[string]string {
	t.Helper()
	entries := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root)
		if name == config.Folder {
			return fs.SkipDir
		}
		if above := config.Folder; name == "" || strings.HasPrefix(above, name+"/") {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t)
		text := fmt.Sprintf("%o %d:%d", stat.Mode, stat.Uid, stat.Gid)
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += " " + string(data) + attributes(path)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " → " + target
		}
		entries[name] = text
		return nil
	}))
	return entries
}

func attributes(path string) string {
	value := make([]byte, 100)
	n, err := unix.Lgetxattr(path, "user.test", value)
	if err != nil {
		return ""
	}
	return " " + string(value[:n])
}

func TestFilesFollowTheConfig(t *testing.T) {
	root := t.TempDir()
	write(t, root, "/etc/original", "of the host", 0o4751)
	before := list(t, root)
	h := open(t, root, tree.Options{})

	first := files(file("/etc/original", "first", 0o644), file("/etc/a/b/new", "new", 0o600), file("/etc/keep", "", 0o444))
	update(t, h, "first", first)
	after := list(t, root)
	assert.Equal(t, []string{"/etc", "/etc/a", "/etc/a/b", "/etc/a/b/new", "/etc/keep", "/etc/original"}, slices.Sorted(maps.Keys(after)))
	assert.Regexp(t, `^100644 \d+:\d+ first$`, after["/etc/original"])
	assert.Regexp(t, `^100600 \d+:\d+ new$`, after["/etc/a/b/new"])
	assert.Regexp(t, `^100444 \d+:\d+ $`, after["/etc/keep"])
	assert.Regexp(t, `^40755 `, after["/etc/a/b"])

	update(t, h, "second", files(file("/etc/original", "second", 0o640), file("/etc/a/c", "c", 0o644)))
	after = list(t, root)
	assert.Equal(t, []string{"/etc", "/etc/a", "/etc/a/c", "/etc/original"}, slices.Sorted(maps.Keys(after)))
	assert.Regexp(t, `^100640 \d+:\d+ second$`, after["/etc/original"])

	update(t, h, "empty", config.Content{})
	assert.Equal(t, before, list(t, root), "the first original returns when no config manages its path")
	leftovers, err := os.ReadDir(root + config.Folder + "/content")
	require.NoError(t, err)
	assert.Len(t, leftovers, 1, "the journal keeps only the content of the current config")
}

func TestOriginalSurvivesItsLossOnTheHost(t *testing.T) {
	root := t.TempDir()
	write(t, root, "/etc/a", "a", 0o644)
	before := list(t, root)
	h := open(t, root, tree.Options{})
	// The host has the file already, so the config changes nothing.
	update(t, h, "adopted", files(file("/etc/a", "a", 0o644)))
	require.NoError(t, os.Remove(root+"/etc/a"))
	update(t, h, "changed", files(file("/etc/a", "changed", 0o644)))
	update(t, h, "empty", config.Content{})
	assert.Equal(t, before, list(t, root))
}

func TestUnitsAreFilesBelowSystemd(t *testing.T) {
	root := t.TempDir()
	yes, no := true, false
	const units = "/etc/systemd/system/"
	write(t, root, units+"host.service", "of the host", 0o644)
	require.NoError(t, os.Symlink("/dev/null", root+units+"masked.service"))
	write(t, root, "/usr/lib/systemd/system/kubelet.service", "[Service]", 0o644)
	before := list(t, root)
	h := open(t, root, tree.Options{})

	content := config.Content{Units: []config.Unit{
		{Name: "app.service", Contents: "[Service]", DropIns: []config.DropIn{{Name: "10-a.conf", Contents: "[Unit]"}}},
		{Name: "host.service", Mask: &yes},
		{Name: "kubelet.service", Enabled: &yes},
		{Name: "masked.service", Mask: &no},
		{Name: "other.service", Mask: &no},
	}}
	update(t, h, "units", content)
	after := list(t, root)
	assert.Regexp(t, `^100644 \d+:\d+ \[Service\]$`, after[units+"app.service"])
	assert.Regexp(t, `^100644 \d+:\d+ \[Unit\]$`, after[units+"app.service.d/10-a.conf"])
	assert.Regexp(t, `→ /dev/null$`, after[units+"host.service"])
	assert.NotContains(t, after, units+"masked.service")
	assert.NotContains(t, after, units+"kubelet.service")
	drifts, err := h.Verify(content)
	require.NoError(t, err)
	assert.Empty(t, drifts)

	update(t, h, "unmasked", config.Content{Units: []config.Unit{{Name: "host.service", Mask: &no}}})
	assert.Contains(t, list(t, root)[units+"host.service"], "of the host")
	update(t, h, "empty", config.Content{})
	assert.Equal(t, before, list(t, root))
}

func TestOriginalReturnsWithAllAttributes(t *testing.T) {
	root := t.TempDir()
	write(t, root, "/etc/file", "of the host", 0o644)
	write(t, root, "/etc/suid", "of the host", 0o644)
	require.NoError(t, os.Symlink("file", root+"/etc/link"))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Lchown(root+"/etc/suid", 12, 34))
		require.NoError(t, os.Lchown(root+"/etc/link", 12, 34))
	}
	require.NoError(t, os.Chmod(root+"/etc/suid", 0o755|fs.ModeSetuid))
	if err := unix.Setxattr(root+"/etc/file", "user.test", []byte("kept"), 0); err != nil {
		require.ErrorIs(t, err, unix.ENOTSUP)
	}
	before := list(t, root)
	h := open(t, root, tree.Options{})

	update(t, h, "managed", files(file("/etc/file", "x", 0o600), file("/etc/suid", "y", 0o600), file("/etc/link", "z", 0o600)))
	managed := list(t, root)
	assert.Regexp(t, `^100600 \d+:\d+ x$`, managed["/etc/file"], "the new data does not get attributes of the old")
	assert.Regexp(t, `^100600 \d+:\d+ z$`, managed["/etc/link"], "a link in the file's place is replaced, not followed")
	update(t, h, "empty", config.Content{})
	assert.Equal(t, before, list(t, root))
}

func TestFileAndFolderReplaceEachOther(t *testing.T) {
	root := t.TempDir()
	h := open(t, root, tree.Options{})
	update(t, h, "file", files(file("/etc/a", "a", 0o644)))
	asFile := list(t, root)

	update(t, h, "folder", files(file("/etc/a/b/c", "c", 0o644)))
	asFolder := list(t, root)
	assert.Contains(t, asFolder["/etc/a/b/c"], "c")

	require.NoError(t, h.Apply("file", files(file("/etc/a", "a", 0o644))))
	assert.Equal(t, asFile, list(t, root))
	require.NoError(t, h.Undo())
	assert.Equal(t, asFolder, list(t, root))
	update(t, h, "empty", config.Content{})
	assert.Empty(t, list(t, root))
}

func TestOwnersAreResolvedOnTheHost(t *testing.T) {
	if os.Geteuid() != 0 {
		fixture.SkipUnlessCI(t, "only root can write files of other users")
	}
	root := t.TempDir()
	write(t, root, "/etc/passwd", "root:x:0:0::/root:/bin/sh\napp:x:1234:5::/:/bin/false\n", 0o644)
	write(t, root, "/etc/group", "root:x:0:\nstaff:x:50:app\n", 0o644)
	h := open(t, root, tree.Options{})
	owned := file("/etc/a", "a", 0o600)
	owned.User, owned.Group = config.Owner{Name: "app"}, config.Owner{Name: "staff"}
	numbered := file("/etc/b", "b", 0o600)
	numbered.User, numbered.Group = config.Owner{ID: 7}, config.Owner{ID: 8}
	update(t, h, "owned", files(owned, numbered))
	assert.Equal(t, "100600 1234:50 a", list(t, root)["/etc/a"])
	assert.Equal(t, "100600 7:8 b", list(t, root)["/etc/b"])

	owned.User.Name = "unknown"
	assert.ErrorContains(t, h.Apply("unknown", files(owned)), `/etc/passwd has no "unknown"`)
}

func TestKeysBelongToTheirUser(t *testing.T) {
	root := t.TempDir()
	h := open(t, root, tree.Options{})
	keys := config.Content{SSHKeys: []string{"ssh-ed25519 AAAA a@example.com", "ssh-ed25519 BBBB b@example.com"}}
	update(t, h, "folder", keys)
	assert.Empty(t, list(t, root), "a folder has no such user")

	uid, gid := 0, 0
	if os.Geteuid() == 0 {
		uid, gid = 1000, 1001
	} else {
		uid, gid = os.Geteuid(), os.Getegid()
	}
	write(t, root, "/etc/passwd", fmt.Sprintf("root:x:0:0::/root:/bin/sh\ncore:x:%d:%d::/home/core:/bin/sh\n", uid, gid), 0o644)
	update(t, h, "keys", keys)
	const file = "/home/core/.ssh/authorized_keys"
	assert.Equal(t, fmt.Sprintf("40700 %d:%d", uid, gid), list(t, root)["/home/core/.ssh"])
	assert.Equal(t, fmt.Sprintf("100600 %d:%d ssh-ed25519 AAAA a@example.com\nssh-ed25519 BBBB b@example.com\n", uid, gid), list(t, root)[file])
	write(t, root, file, "ssh-ed25519 CCCC", 0o600)
	found, err := h.Verify(keys)
	require.NoError(t, err)
	assert.Equal(t, []host.Drift{{Path: file, Found: "different data"}}, found)

	update(t, h, "none", config.Content{})
	assert.NotContains(t, list(t, root), file)
}

func TestLinksOfTheHostStayBelowTheRoot(t *testing.T) {
	parent := t.TempDir()
	root := parent + "/host"
	write(t, parent, "/outside/secret", "secret", 0o600)
	write(t, root, "/run/keep", "", 0o644)
	write(t, root, "/outside/secret", "of the host", 0o600)
	require.NoError(t, os.MkdirAll(root+"/var", 0o755))
	require.NoError(t, os.MkdirAll(root+"/etc", 0o755))
	require.NoError(t, os.Symlink("/run", root+"/var/run"))
	require.NoError(t, os.Symlink("../../../outside", root+"/etc/relative"))
	require.NoError(t, os.Symlink(parent+"/outside", root+"/etc/absolute"))
	require.NoError(t, os.Symlink("../../outside/secret", root+"/etc/file"))
	outside := list(t, parent+"/outside")
	h := open(t, root, tree.Options{})

	update(t, h, "links", files(file("/etc/relative/secret", "x", 0o644), file("/var/run/new", "y", 0o644), file("/etc/file", "z", 0o644)))
	after := list(t, root)
	assert.Contains(t, after["/outside/secret"], "x")
	assert.Contains(t, after["/run/new"], "y")
	assert.Contains(t, after["/etc/file"], "z")
	err := h.Apply("absolute", files(file("/etc/absolute/secret", "x", 0o644)))
	require.ErrorIs(t, err, unix.ENOTDIR, "the link leads to a path that the root does not have")
	require.ErrorContains(t, err, "/etc/absolute")
	require.Error(t, h.Apply("dots", files(file("/etc/../../outside/secret", "x", 0o644))))
	assert.Equal(t, outside, list(t, parent+"/outside"))
}

// TestFailureInTheMiddleIsUndone fails each operation of a change in turn.
func TestFailureInTheMiddleIsUndone(t *testing.T) {
	for i := 0; ; i++ {
		root := t.TempDir()
		from, to := scenario(t, root)
		before := list(t, root)
		operations := 0
		var failed string
		h := open(t, root, tree.Options{Step: func(operation, path string) error {
			operations++
			if operations != i+1 {
				return nil
			}
			failed = operation + " " + path
			return unix.EROFS
		}})
		err := h.Apply("to", to)
		if failed == "" {
			require.NoError(t, err)
			assert.Greater(t, i, 50, "the change has this many operations")
			return
		}
		require.ErrorIs(t, err, unix.EROFS, failed)
		require.NotErrorIs(t, err, host.ErrNotUndone, failed)
		assert.Contains(t, err.Error(), strings.Fields(failed)[1], "the error names the path")
		assert.Equal(t, before, list(t, root), failed)
		_, pending, err := h.Pending()
		require.NoError(t, err)
		assert.False(t, pending, failed)
		drifts, err := h.Verify(from)
		require.NoError(t, err)
		assert.Empty(t, drifts)
		state, err := h.State()
		require.NoError(t, err)
		assert.Equal(t, "from", state.Current.Name)
		release(t, root)
	}
}

// TestFailedUndoStaysPending fails each operation of a change and all that follow.
func TestFailedUndoStaysPending(t *testing.T) {
	for i, failed := 0, true; failed; i++ {
		root := t.TempDir()
		scenario(t, root)
		before := list(t, root)
		operations := 0
		h := open(t, root, tree.Options{Step: func(string, string) error {
			operations++
			if operations > i {
				return unix.EIO
			}
			return nil
		}})
		err := h.Apply("to", target())
		failed = err != nil
		if _, pending, pendingErr := h.Pending(); pending && failed {
			require.NoError(t, pendingErr)
			require.ErrorIs(t, err, host.ErrNotUndone)
		}
		require.NoError(t, open(t, root, tree.Options{}).Undo())
		require.Equal(t, before, list(t, root), "failure from operation %d on", i)
		release(t, root)
	}
}

func TestFailedUndoKeepsTheReason(t *testing.T) {
	root := t.TempDir()
	write(t, root, "/etc/a", "of the host", 0o600)
	before := list(t, root)
	broken := false
	h := open(t, root, tree.Options{Step: func(_, path string) error {
		broken = broken || path == "/etc/d"
		if broken && (path == "/etc/a" || path == "/etc/d") {
			return unix.EIO
		}
		return nil
	}})
	err := h.Apply("to", files(file("/etc/a", "a", 0o644), file("/etc/c", "c", 0o644), file("/etc/d", "d", 0o644)))
	require.ErrorIs(t, err, host.ErrNotUndone)
	change, pending, err := h.Pending()
	require.NoError(t, err)
	require.True(t, pending)
	assert.Equal(t, host.Undoing, change.Phase)
	assert.Equal(t, "applying to: write /etc/d: input/output error", change.Failure)
	assert.NotContains(t, list(t, root), "/etc/c", "the undo of the other steps continues after an error")
	require.NoError(t, open(t, root, tree.Options{}).Undo())
	assert.Equal(t, before, list(t, root))
}

func TestObstacleUndoesTheChange(t *testing.T) {
	content := files(file("/etc/a", "a", 0o644), file("/etc/b/c", "c", 0o644), file("/etc/d", "d", 0o644))
	for _, test := range []struct {
		name     string
		obstacle func(t *testing.T, root string)
		path     string
		errno    error
	}{
		{"a folder in the file's place", func(t *testing.T, root string) { require.NoError(t, os.Mkdir(root+"/etc/d", 0o750)) }, "/etc/d", unix.EISDIR},
		{"a folder with files in the file's place", func(t *testing.T, root string) { write(t, root, "/etc/d/x", "x", 0o644) }, "/etc/d", unix.EISDIR},
		{"a pipe in the file's place", func(t *testing.T, root string) { require.NoError(t, unix.Mkfifo(root+"/etc/d", 0o600)) }, "/etc/d", unix.EEXIST},
		{"a file in a folder's place", func(t *testing.T, root string) { write(t, root, "/etc/b", "x", 0o644) }, "/etc/b", nil},
	} {
		for _, early := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, before the change %v", test.name, early), func(t *testing.T) {
				root := t.TempDir()
				write(t, root, "/etc/a", "of the host", 0o600)
				before := list(t, root)
				if early {
					test.obstacle(t, root)
				}
				placed := early
				h := open(t, root, tree.Options{Step: func(operation, path string) error {
					if operation == "rename" && path == "/etc/a" && !placed {
						placed = true
						test.obstacle(t, root)
					}
					return nil
				}})
				err := h.Apply("to", content)
				require.Error(t, err)
				var pathError *fs.PathError
				require.ErrorAs(t, err, &pathError)
				assert.Equal(t, test.path, pathError.Path)
				if test.errno != nil {
					require.ErrorIs(t, err, test.errno)
				}
				require.NotErrorIs(t, err, host.ErrNotUndone)
				after := list(t, root)
				assert.Contains(t, after, test.path, "the obstacle stays")
				maps.DeleteFunc(after, func(path, _ string) bool { return strings.HasPrefix(path, test.path) })
				assert.Equal(t, before, after)
			})
		}
	}
}

func TestVerifyFindsDrift(t *testing.T) {
	yes := true
	content := files(file("/etc/a", "a", 0o644), file("/etc/b", "b", 0o600))
	content.Units = []config.Unit{{Name: "u.service", Mask: &yes}}
	for _, test := range []struct {
		name   string
		change func(t *testing.T, root string)
		want   []host.Drift
	}{
		{"finds none after the update", func(*testing.T, string) {}, nil},
		{"ignores times", func(t *testing.T, root string) {
			require.NoError(t, unix.Utimes(root+"/etc/a", []unix.Timeval{{Sec: 1}, {Sec: 1}}))
		}, nil},
		{
			"finds changed data", func(t *testing.T, root string) { write(t, root, "/etc/a", "A", 0o644) },
			[]host.Drift{{Path: "/etc/a", Found: "different data"}},
		},
		{"finds missing files, sorted", func(t *testing.T, root string) {
			require.NoError(t, os.Remove(root+"/etc/b"))
			require.NoError(t, os.Rename(root+"/etc/a", root+"/etc/away"))
		}, []host.Drift{{Path: "/etc/a", Found: "missing"}, {Path: "/etc/b", Found: "missing"}}},
		{
			"finds a changed mode", func(t *testing.T, root string) { require.NoError(t, os.Chmod(root+"/etc/b", 0o640)) },
			[]host.Drift{{Path: "/etc/b", Found: "mode 0640 instead of 0600"}},
		},
		{"finds a link in place of a file", func(t *testing.T, root string) {
			require.NoError(t, os.Rename(root+"/etc/b", root+"/etc/away"))
			require.NoError(t, os.Symlink("away", root+"/etc/b"))
		}, []host.Drift{{Path: "/etc/b", Found: "a link instead of a file"}}},
		{"finds a changed mask", func(t *testing.T, root string) {
			require.NoError(t, os.Remove(root+"/etc/systemd/system/u.service"))
			require.NoError(t, os.Symlink("/dev/zero", root+"/etc/systemd/system/u.service"))
		}, []host.Drift{{Path: "/etc/systemd/system/u.service", Found: "a link to /dev/zero instead of /dev/null"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			h := open(t, root, tree.Options{})
			update(t, h, "managed", content)
			test.change(t, root)
			drifts, err := h.Verify(content)
			require.NoError(t, err)
			assert.Equal(t, test.want, drifts)
		})
	}
}

func TestOnlyConfirmationMakesAConfigCurrent(t *testing.T) {
	root := t.TempDir()
	h := open(t, root, tree.Options{})
	require.ErrorIs(t, h.Confirm("a"), host.ErrNotApplied)
	content := files(file("/etc/a", "a", 0o644))
	require.NoError(t, h.Apply("a", content))
	state, err := h.State()
	require.NoError(t, err)
	assert.Empty(t, state.Current)

	// The state is on disk: another process sees it.
	h = open(t, root, tree.Options{})
	require.ErrorIs(t, h.Apply("b", config.Content{}), host.ErrPending)
	require.ErrorIs(t, h.Confirm("b"), host.ErrNotApplied)
	change, pending, err := h.Pending()
	require.NoError(t, err)
	require.True(t, pending)
	assert.Equal(t, host.Applied, change.Phase)
	stored, err := h.Content(change.To)
	require.NoError(t, err)
	assert.Equal(t, content, stored)

	require.NoError(t, h.Confirm("a"))
	require.NoError(t, h.Confirm("a"))
	state, err = h.State()
	require.NoError(t, err)
	assert.Equal(t, change.To, state.Current)
	require.NoError(t, h.Undo())
	assert.Contains(t, list(t, root), "/etc/a", "Undo leaves a confirmed config")
}

func TestOnlyOneProcessChangesAHost(t *testing.T) {
	root := t.TempDir()
	first := open(t, root, tree.Options{})
	second := open(t, root, tree.Options{Step: func(_, path string) error {
		if path == "/etc" {
			require.ErrorIs(t, first.Apply("first", config.Content{}), host.ErrBusy)
			assert.ErrorIs(t, first.Undo(), host.ErrBusy)
		}
		return nil
	}})
	require.NoError(t, second.Apply("second", files(file("/etc/a", "a", 0o644))))
	require.NoError(t, first.Confirm("second"))
}

// TestRemovedFolderOfAFileIsCreatedAgain has a package that is uninstalled after the begin of a change, and before its undo.
func TestRemovedFolderOfAFileIsCreatedAgain(t *testing.T) {
	root := t.TempDir()
	const mode = fs.ModeDir | fs.ModeSticky | 0o750
	uid := os.Geteuid()
	if uid == 0 {
		uid = 42
	}
	require.NoError(t, os.MkdirAll(root+"/etc/app/conf.d", 0o755))
	require.NoError(t, os.WriteFile(root+"/etc/app/conf.d/a", []byte("of the host"), 0o644))
	require.NoError(t, os.Chown(root+"/etc/app", uid, -1))
	require.NoError(t, os.Chmod(root+"/etc/app", mode))
	require.NoError(t, os.Symlink("app", root+"/etc/link"))
	h, err := host.Open(root, host.Options{})
	require.NoError(t, err)
	defer h.Close()
	check := func(want string) {
		t.Helper()
		data, err := os.ReadFile(root + "/etc/app/conf.d/a")
		require.NoError(t, err)
		assert.Equal(t, want, string(data))
		folder, err := os.Stat(root + "/etc/app")
		require.NoError(t, err)
		assert.Equal(t, mode, folder.Mode())
		assert.EqualValues(t, uid, folder.Sys().(*syscall.Stat_t).Uid)
	}
	require.NoError(t, h.Begin("new", files(file("/etc/app/conf.d/a", "new", 0o644), file("/etc/link/b", "new", 0o644))))
	require.NoError(t, os.RemoveAll(root+"/etc/app"))
	require.NoError(t, h.Resume())
	check("new")
	require.NoError(t, os.RemoveAll(root+"/etc/app"))
	require.NoError(t, h.Undo())
	check("of the host")
}
