//go:build linux

package host_test

import (
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
)

func TestReleaseKeepsTheContentAndRemovesTheFolder(t *testing.T) {
	root := t.TempDir()
	scenario(t, root)
	before := list(t, root)
	h := open(t, root, tree.Options{})
	require.NoError(t, h.Begin("to", target()))
	require.NoError(t, h.EnableGuard([]string{"/guard"}))
	require.ErrorIs(t, h.Release(), host.ErrPending)
	require.NoError(t, h.Undo())
	_, err := h.Install()
	require.NoError(t, err)
	require.NoError(t, os.Symlink("/etc", root+config.Folder+"/link")) // by an administrator

	for range 2 {
		require.NoError(t, h.Release())
		assert.NoDirExists(t, root+config.Folder)
		// A guard that still runs ends.
		require.NoError(t, h.DisableGuard())
		assert.NoDirExists(t, root+config.Folder)
		state, err := h.State()
		require.NoError(t, err)
		assert.Empty(t, state.Current)
	}
	after := list(t, root)
	delete(after, "/etc/systemd/system/sysinit.target.wants") // the empty folder of the guard's link
	assert.Equal(t, before, after)

	// The host may join again: its entries are the new originals.
	update(t, h, "new", files(file("/etc/changed", "new", 0o644)))
	update(t, h, "empty", config.Content{})
	assert.Equal(t, before["/etc/changed"], list(t, root)["/etc/changed"])
}

// TestKilledReleaseIsRepeated kills the process that releases a host before each of its operations. The rest is a host without a config that
// either joins again or is released.
func TestKilledReleaseIsRepeated(t *testing.T) {
	root := t.TempDir()
	scenario(t, root)
	before := list(t, root)
	for operation := 0; ; operation++ {
		root := t.TempDir()
		from, _ := scenario(t, root)
		h := open(t, root, tree.Options{})
		require.NoError(t, h.Stage("to", target()))
		_, err := h.Install()
		require.NoError(t, err)
		isKilled := killed(t, root, "release", operation)

		state, err := h.State()
		require.NoError(t, err)
		if operation > 0 {
			require.Empty(t, state.Current, "killed at %d", operation)
			require.NoError(t, h.Stage("from", from), "killed at %d", operation)
			update(t, h, "from", from)
			require.Equal(t, before, list(t, root), "killed at %d, then joined", operation)
		}
		require.NoError(t, h.Release(), "killed at %d", operation)
		require.NoDirExists(t, root+config.Folder)
		require.Equal(t, before, list(t, root), "killed at %d, then repeated", operation)
		release(t, root)
		if !isKilled {
			assert.Greater(t, operation, 5)
			break
		}
	}
}

func TestReleaseReportsWhatCannotBeRemoved(t *testing.T) {
	root := t.TempDir()
	scenario(t, root)
	h := open(t, root, tree.Options{Step: func(_, path string) error {
		if path == config.Folder {
			return fs.ErrPermission
		}
		return nil
	}})
	require.ErrorIs(t, h.Release(), fs.ErrPermission)
	entries, err := os.ReadDir(root + config.Folder)
	require.NoError(t, err)
	assert.Empty(t, entries)
	require.NoError(t, open(t, root, tree.Options{}).Release())
}
