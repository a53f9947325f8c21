package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimesFollowFromTheContent(t *testing.T) {
	first, second := repository(t), repository(t)
	for _, root := range []string{first, second, filepath.Join(second, "dir")} {
		require.NoError(t, set(root))
	}
	for _, name := range []string{"a", "dir", "dir/b"} {
		assert.Equal(t, modified(t, first, name), modified(t, second, name), name)
		assert.Less(t, modified(t, first, name).Year(), 2010, name)
	}
	assert.NotEqual(t, modified(t, first, "a"), modified(t, first, "dir/b"))

	write(t, second, "dir/b", "B")
	edited, folder := modified(t, second, "dir/b"), modified(t, second, "dir")
	require.NoError(t, set(second))
	require.NoError(t, set(filepath.Join(second, "dir")))
	assert.Equal(t, edited, modified(t, second, "dir/b"), "a changed file keeps its time")
	assert.Equal(t, folder, modified(t, second, "dir"))
	git(t, second, "commit", "-qam", "b")
	require.NoError(t, set(second))
	assert.Equal(t, modified(t, first, "a"), modified(t, second, "a"))
	for _, name := range []string{"dir", "dir/b"} {
		assert.NotEqual(t, modified(t, first, name), modified(t, second, name), name)
	}

	require.ErrorContains(t, set(t.TempDir()), "git ls-tree")
}

func repository(t *testing.T) string {
	root := t.TempDir()
	git(t, root, "init", "-q")
	write(t, root, "a", "a")
	require.NoError(t, os.Symlink("a", filepath.Join(root, "link to a")))
	require.NoError(t, os.Symlink("missing", filepath.Join(root, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(root, "dir"), 0o700))
	write(t, root, "dir/b", "b")
	git(t, root, "add", ".")
	git(t, root, "commit", "-qm", "a")
	return root
}

func git(t *testing.T, root string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root, "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null"}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

func write(t *testing.T, root, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o600))
}

func modified(t *testing.T, root, name string) time.Time {
	t.Helper()
	info, err := os.Stat(filepath.Join(root, name))
	require.NoError(t, err)
	return info.ModTime()
}
