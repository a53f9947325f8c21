package atomicfile

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func text(s string) func(io.Writer) error { return Content([]byte(s)) }

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestFilesAppearWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, Create(path, 0o640, text("first")))
	info, err := os.Stat(path)
	require.NoError(t, err)
	plain := filepath.Join(t.TempDir(), "plain") // the umask of the process may be any
	require.NoError(t, os.WriteFile(plain, nil, 0o640))
	want, err := os.Stat(plain)
	require.NoError(t, err)
	assert.Equal(t, want.Mode().Perm(), info.Mode().Perm())
	require.ErrorIs(t, Create(path, 0o640, text("second")), fs.ErrExist, "it keeps the existing file")
	require.NoError(t, Write(path, 0o640, text("third")))
	require.ErrorIs(t, Write(path, 0o640, func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		require.NoError(t, err)
		return io.ErrUnexpectedEOF
	}), io.ErrUnexpectedEOF)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "third", string(data), "an incomplete file does not appear")
	assert.Equal(t, []string{"file"}, names(t, dir))
	require.ErrorIs(t, Write(filepath.Join(dir, "missing", "file"), 0o640, text("")), fs.ErrNotExist)
}

func TestOnlyOneOfManyCreatesSucceeds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	var created atomic.Int32
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			err := Create(path, 0o644, text(strconv.Itoa(i)))
			if err == nil {
				created.Add(1)
				return
			}
			assert.ErrorIs(t, err, fs.ErrExist)
		})
	}
	all.Wait()
	assert.EqualValues(t, 1, created.Load(), "only one of many creates the file")
	assert.Equal(t, []string{"file"}, names(t, filepath.Dir(path)))
}

func TestFolderAppearsWhenCommitted(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "new")
	dir := filepath.Join(parent, "folder")
	f, err := NewFolder(parent, "folder")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(f.Path, "x"), nil, 0o644))
	assert.NoDirExists(t, dir)
	other, err := NewFolder(parent, "folder")
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(f.Path, "x"), "a folder in use is not removed")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, f.Rename(dir), "an empty folder is replaced")
	require.NoError(t, f.Release())
	assert.Equal(t, []string{"x"}, names(t, dir))
	require.ErrorIs(t, other.Rename(dir), fs.ErrExist, "another folder is kept")
	require.NoError(t, other.Release())
	assert.Equal(t, []string{"folder"}, names(t, parent))
}

// killedEnv makes the test binary end while it writes.
const killedEnv = "ATOMICFILE_TEST_KILLED"

func TestKilledWriterLeavesNoFile(t *testing.T) {
	if dir := os.Getenv(killedEnv); dir != "" {
		f, err := NewFolder(dir, "folder")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(f.Path, "x"), nil, 0o644))
		_ = Write(filepath.Join(dir, "file"), 0o644, func(io.Writer) error {
			self, err := os.FindProcess(os.Getpid())
			require.NoError(t, err)
			require.NoError(t, self.Kill())
			select {}
		})
		return
	}
	dir := t.TempDir()
	killed := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestKilledWriterLeavesNoFile$")
	killed.Env = append(os.Environ(), killedEnv+"="+dir)
	require.Error(t, killed.Run())
	require.Len(t, names(t, dir), 2, "a killed process leaves its partial output")
	require.NoError(t, Write(filepath.Join(dir, "file"), 0o644, text("")))
	f, err := NewFolder(dir, "folder")
	require.NoError(t, err)
	require.NoError(t, f.Rename(filepath.Join(dir, "folder")))
	require.NoError(t, f.Release())
	assert.Equal(t, []string{"file", "folder"}, names(t, dir), "the next process removes it")
}

func TestWritersOfOneFolderDoNotDisturbEachOther(t *testing.T) {
	parent := t.TempDir()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				f, err := NewFolder(parent, "folder")
				if err != nil {
					t.Errorf("other writers disturbed this one: %v", err)
					return
				}
				assert.DirExists(t, f.Path)
				assert.NoError(t, f.Release())
			}
		})
	}
	all.Wait()
	assert.Empty(t, names(t, parent))
}
