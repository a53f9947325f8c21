//go:build linux

package tree_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/node/host/tree"
)

// TestWatchReportsChangesOfItsPaths follows each change that counts after others that do not.
func TestWatchReportsChangesOfItsPaths(t *testing.T) {
	for name, change := range map[string]func(root string) error{
		"data":                  func(root string) error { return os.WriteFile(root+"/etc/a/file", []byte("x"), 0o600) },
		"mode":                  func(root string) error { return os.Chmod(root+"/etc/a/file", 0o644) },
		"removal":               func(root string) error { return os.Remove(root + "/etc/a/file") },
		"replacement":           func(root string) error { return os.Rename(root+"/etc/a/other", root+"/etc/a/file") },
		"a folder above":        func(root string) error { return os.Rename(root+"/etc", root+"/etc2") },
		"a missing file":        func(root string) error { return os.WriteFile(root+"/etc/a/missing", nil, 0o600) },
		"a missing folder":      func(root string) error { return os.Mkdir(root+"/etc/absent", 0o700) },
		"the target of a link":  func(root string) error { return os.WriteFile(root+"/opt/linked", nil, 0o600) },
		"the same by its path":  func(root string) error { return os.WriteFile(root+"/opt/direct", nil, 0o600) },
		"the link to a folder":  func(root string) error { return os.Remove(root + "/link") },
		"the folder of a link":  func(root string) error { return os.RemoveAll(root + "/opt") },
		"the mode of a folder":  func(root string) error { return os.Chmod(root+"/etc/a", 0o700) },
		"the link becomes file": func(root string) error { return os.Rename(root+"/etc/a/other", root+"/link") },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, folder := range []string{"/etc/a", "/opt"} {
				require.NoError(t, os.MkdirAll(root+folder, 0o755))
			}
			for _, file := range []string{"/etc/a/file", "/etc/a/other"} {
				require.NoError(t, os.WriteFile(root+file, nil, 0o600))
			}
			require.NoError(t, os.Symlink("/opt", root+"/link")) // below the root, not that of this process
			tr, err := tree.Open(root, tree.Options{})
			require.NoError(t, err)
			defer func() { assert.NoError(t, tr.Close()) }()
			changed, stop, err := tr.Watch([]string{"/etc/a/file", "/etc/a/missing", "/etc/absent/b/file", "/link/linked", "/opt/direct"})
			require.NoError(t, err)
			defer stop()

			// inotify keeps the order, so an event of these would arrive before that of the change.
			require.NoError(t, os.WriteFile(root+"/etc/a/unknown", nil, 0o600))
			require.NoError(t, os.Mkdir(root+"/unknown", 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, "opt", "unknown"), nil, 0o600))
			select {
			case <-changed:
				t.Fatal("an event without a change")
			case <-time.After(20 * time.Millisecond): // a watch that reports them fails in most runs
			}
			require.NoError(t, change(root))
			<-changed
		})
	}
}

func TestStoppedWatchKeepsNothingOpen(t *testing.T) {
	tr, err := tree.Open(t.TempDir(), tree.Options{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, tr.Close()) }()
	count := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(open)
	}
	before := count()
	changed, stop, err := tr.Watch([]string{"/etc/a/file"})
	require.NoError(t, err)
	assert.Greater(t, count(), before)
	stop()
	<-changed
	assert.Eventually(t, func() bool { return count() <= before }, time.Minute, time.Millisecond)
}
