//go:build linux

package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/host/space"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
)

// blobs returns the number of files in the journal's folder for contents.
func blobs(t *testing.T, root string) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, config.Folder, "content"))
	require.NoError(t, err)
	return len(entries)
}

func TestStagedConfigIsOnDiskUntilTheNext(t *testing.T) {
	root := t.TempDir()
	h := open(t, root, tree.Options{})
	staged, err := h.Staged()
	require.NoError(t, err)
	assert.Empty(t, staged)
	update(t, h, "first", files(file("/etc/a", "1", 0o644)))
	before := list(t, root)
	second, third := files(file("/etc/a", "2", 0o644)), files(file("/etc/a", "3", 0o644))
	isStaged := func(name string, content config.Content) {
		t.Helper()
		staged, err := open(t, root, tree.Options{}).Staged()
		require.NoError(t, err)
		assert.Equal(t, name, staged.Name)
		got, err := h.Content(staged)
		require.NoError(t, err)
		assert.Equal(t, content, got)
	}

	require.NoError(t, h.Stage("second", second))

	assert.Equal(t, before, list(t, root), "only the own folder changes")
	isStaged("second", second)
	require.NoError(t, h.Stage("third", third))
	isStaged("third", third)
	require.Equal(t, 2, blobs(t, root), "the current and the staged config")
	require.NoError(t, h.Apply("fourth", files(file("/etc/a", "4", 0o644))))
	require.NoError(t, h.Undo())
	isStaged("third", third)
	require.NoError(t, h.Apply("fourth", files(file("/etc/a", "4", 0o644))))
	require.NoError(t, h.Stage("second", second))
	require.NoError(t, h.Undo(), "staging keeps the journal of a pending change")
	assert.Equal(t, before, list(t, root))
	isStaged("second", second)
	update(t, h, "second", second)
	isStaged("second", second)
	require.Equal(t, 1, blobs(t, root))
}

// TestInterruptedStagingLeavesACompleteConfig fails each operation of the file system in turn.
func TestInterruptedStagingLeavesACompleteConfig(t *testing.T) {
	root := t.TempDir()
	contents := map[string]config.Content{"first": files(file("/etc/a", "1", 0o644)), "second": files(file("/etc/a", "2", 0o644))}
	interrupted := true
	for last := 1; interrupted; last++ {
		require.NoError(t, open(t, root, tree.Options{}).Stage("first", contents["first"]))
		operations := 0
		h := open(t, root, tree.Options{Step: func(string, string) error {
			if operations++; operations >= last {
				return unix.EIO
			}
			return nil
		}})

		interrupted = h.Stage("second", contents["second"]) != nil

		staged, err := h.Staged()
		require.NoError(t, err)
		content, err := h.Content(staged)
		require.NoError(t, err, "after operation %d", last)
		assert.Equal(t, contents[staged.Name], content)
	}
}

func TestStagingChecksTheSpaceOfTheChange(t *testing.T) {
	large := strings.Repeat("x", 100_000)
	for _, tt := range []struct {
		name    string
		content config.Content
		free    space.Space
		want    string
		before  string // of /etc/a
	}{
		{name: "enough space and inodes", content: files(file("/etc/a", large, 0o644)), free: space.Space{Bytes: 1_000_000, Inodes: 100}},
		{name: "too little space", content: files(file("/etc/a", large, 0o644)), free: space.Space{Bytes: 100_000, Inodes: 100}, want: "bytes on the file system of /var/lib/cvo-node, and 100000 are free"},
		{name: "too few inodes", content: files(file("/etc/a", large, 0o644)), free: space.Space{Bytes: 1_000_000, Inodes: 1}, want: "inodes on the file system of /var/lib/cvo-node, and 1 are free"},
		{name: "too little space for the copy of the replaced file", before: strings.Repeat("y", 1_000_000), content: files(file("/etc/a", "x", 0o644)), free: space.Space{Bytes: 1_000_000, Inodes: 100}, want: "bytes on the file system"},
		{name: "the file does not change", before: large, content: files(file("/etc/a", large, 0o644)), free: space.Space{Bytes: 420_000, Inodes: 100}},
		{name: "a folder is in the place of the file", content: files(file("/etc", "x", 0o644)), free: space.Space{Bytes: 1_000_000, Inodes: 100}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, "/etc/b", "", 0o644)
			if tt.before != "" {
				write(t, root, "/etc/a", tt.before, 0o644)
			}
			h, err := host.Open(root, host.Options{Tree: tree.Options{Sync: noSync}, Free: func(*os.File) (space.Space, error) { return tt.free, nil }})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, h.Close()) })

			err = h.Stage("new", tt.content)

			staged, stagedErr := h.Staged()
			require.NoError(t, stagedErr)
			if tt.want == "" {
				require.NoError(t, err)
				assert.Equal(t, "new", staged.Name)
				return
			}
			require.ErrorIs(t, err, unix.ENOSPC)
			require.ErrorContains(t, err, tt.want)
			assert.Empty(t, staged)
		})
	}
}

// TestFreeSpaceIsThatOfTheFileSystem stages on a real file system, which has space for a small file.
func TestFreeSpaceIsThatOfTheFileSystem(t *testing.T) {
	require.NoError(t, open(t, t.TempDir(), tree.Options{}).Stage("new", files(file("/etc/a", "x", 0o644))))
}
