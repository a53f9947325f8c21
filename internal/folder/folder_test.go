package folder_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/internal/folder"
)

//threat:folder-release-part
func TestLinksOutOfAFolderAreRejected(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for _, sub := range []string{"a/b", "..data"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, sub), 0o700))
	}
	for _, file := range []string{filepath.Join(dir, "a/b/file"), filepath.Join(dir, "..data/file"), filepath.Join(outside, "secret")} {
		require.NoError(t, os.WriteFile(file, []byte("content"), 0o600))
	}
	link := func(name, target string) { require.NoError(t, os.Symlink(target, filepath.Join(dir, name))) }
	link("mounted", "..data/file")
	link("a/sibling", "../..data/file")
	link("folder", "a/b")
	link("absolute", filepath.Join(outside, "secret"))
	link("relative", "../"+filepath.Base(outside)+"/secret")
	link("twice", "absolute")
	link("away", outside)
	link("up", "..")
	link("nowhere", "missing")
	link("self", "self")

	files, err := folder.Open(dir)
	require.NoError(t, err)
	for _, name := range []string{"a/b/file", "mounted", "a/sibling", "folder/file"} {
		data, err := fs.ReadFile(files, name)
		require.NoError(t, err, name)
		assert.Equal(t, "content", string(data), name)
	}
	for _, name := range []string{"absolute", "relative", "twice", "away/secret", "up/" + filepath.Base(outside) + "/secret"} {
		_, readErr := fs.ReadFile(files, name)
		_, openErr := files.Open(name)
		_, statErr := fs.Stat(files, name)
		_, listErr := fs.ReadDir(files, filepath.Dir(name)+"/"+filepath.Base(name))
		for _, err := range []error{readErr, openErr, statErr} {
			require.ErrorContains(t, err, filepath.Join(dir, name)+": it is a symbolic link that leads out of the folder")
		}
		require.Error(t, listErr)
	}
	_, err = fs.ReadDir(files, "away")
	require.ErrorContains(t, err, filepath.Join(dir, "away")+": it is a symbolic link that leads out of the folder")
	_, err = fs.ReadFile(files, "nowhere")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = fs.ReadFile(files, "self")
	require.ErrorContains(t, err, filepath.Join(dir, "self")+": it is a symbolic link to itself")

	whole, err := folder.Open(filepath.Join(dir, "a"))
	require.NoError(t, err)
	_, err = fs.ReadFile(whole, "sibling")
	require.ErrorContains(t, err, "leads out of the folder")
	inner, err := folder.Open(filepath.Join(dir, "a/b"))
	require.NoError(t, err)
	require.NoError(t, fstest.TestFS(inner, "file"))
	_, err = folder.Open(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestLinksInACircleAreRejected puts links to folders into these folders. The path of a message is that of the link.
//
//threat:folder-release-part
func TestLinksInACircleAreRejected(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o700))
	for name, target := range map[string]string{"whole": ".", "a/above": "..", "a/b/outer": "../../a", "a/itself": "itself", "fine": "a/b"} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	files, err := folder.Open(dir)
	require.NoError(t, err)
	for _, name := range []string{"whole", "a/above", "a/b/outer", "a/itself"} {
		_, statErr := fs.Stat(files, name)
		_, listErr := fs.ReadDir(files, name)
		for _, err := range []error{statErr, listErr} {
			require.ErrorContains(t, err, filepath.Join(dir, name)+": it is a symbolic link to itself, or to a folder that contains it")
		}
	}
	entries, err := fs.ReadDir(files, "fine")
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

// TestSpecialFilesAreRejected reads a pipe without a writer. Opening the pipe would block.
func TestSpecialFilesAreRejected(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	require.NoError(t, os.Symlink("pipe", filepath.Join(dir, "link")))
	files, err := folder.Open(dir)
	require.NoError(t, err)
	for _, name := range []string{"pipe", "link"} {
		_, readErr := fs.ReadFile(files, name)
		_, openErr := files.Open(name)
		for _, err := range []error{readErr, openErr} {
			require.ErrorContains(t, err, filepath.Join(dir, name)+": it is neither a file nor a folder")
		}
	}
}
