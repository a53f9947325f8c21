package extract

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cluster-version/cvo/internal/atomicfile"
	"github.com/cluster-version/cvo/internal/printable"
)

// maxConflicts is the maximum number of conflicting files that an error lists.
const maxConflicts = 5

// ConflictError lists existing files with different content.
type ConflictError struct {
	Dir   string
	Files []string
}

// Error lists some of the files.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s already has different files with these names: %s", e.Dir, printable.List(e.Files, maxConflicts))
}

// stage holds files before they are moved to their final place. It is a hidden folder on the same file system: next to the target if the
// target does not exist, otherwise in the target.
type stage struct {
	dir string
	// fresh is set if the target did not exist, so the whole folder can be renamed.
	fresh   bool
	staged  *atomicfile.Folder
	names   []string
	folders map[string]bool
}

func newStage(dir string) (*stage, error) {
	s := &stage{dir: filepath.Clean(dir), folders: map[string]bool{".": true}}
	parent, name := s.dir, "extract"
	switch info, err := os.Stat(s.dir); {
	case errors.Is(err, fs.ErrNotExist):
		s.fresh = true
		parent, name = filepath.Dir(s.dir), filepath.Base(s.dir)
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is a file, not a folder", s.dir)
	}
	var err error
	s.staged, err = atomicfile.NewFolder(parent, name)
	return s, err
}

func (s *stage) remove() error { return s.staged.Release() }

// write adds a file. name must be local to the folder.
func (s *stage) write(name string, modTime time.Time, content io.Reader, buffer []byte) (int64, error) {
	path := s.path(name)
	if folder := filepath.Dir(filepath.FromSlash(name)); !s.folders[folder] {
		if err := os.MkdirAll(filepath.Join(s.staged.Path, folder), 0o755); err != nil {
			return 0, err
		}
		s.folders[folder] = true
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, err
	}
	// Hiding the file's other methods prevents io.CopyBuffer from allocating another buffer.
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, content, buffer)
	if err := errors.Join(err, f.Close()); err != nil {
		return n, err
	}
	s.names = append(s.names, name)
	if modTime.IsZero() || modTime.Unix() == 0 {
		return n, nil
	}
	return n, os.Chtimes(path, time.Time{}, modTime)
}

// commit moves the files to their final place and returns how many already existed. On conflicts, it moves no files.
func (s *stage) commit(overwrite bool) (unchanged int, err error) {
	if s.fresh {
		// Files are not synced. After a power loss they can be extracted again, and syncing a thousand files is slow.
		if err := os.Rename(s.staged.Path, s.dir); !errors.Is(err, fs.ErrExist) {
			return 0, err
		}
		// Another process has created the folder in the meantime.
	}
	slices.Sort(s.names)
	var moving []string
	conflict := &ConflictError{Dir: s.dir}
	for _, name := range s.names {
		switch state, err := s.compare(name); {
		case err != nil:
			return 0, err
		case state == unchangedFile:
			unchanged++
			continue
		case state == otherFile:
			conflict.Files = append(conflict.Files, name)
		}
		moving = append(moving, name)
	}
	if len(conflict.Files) > 0 && !overwrite {
		return 0, conflict
	}
	for folder := range s.folders {
		if err := os.MkdirAll(filepath.Join(s.dir, folder), 0o755); err != nil {
			return 0, err
		}
	}
	for _, name := range moving {
		if err := os.Rename(s.path(name), s.place(name)); err != nil {
			return 0, err
		}
	}
	return unchanged, nil
}

func (s *stage) path(name string) string {
	return filepath.Join(s.staged.Path, filepath.FromSlash(name))
}
func (s *stage) place(name string) string { return filepath.Join(s.dir, filepath.FromSlash(name)) }

// fileState describes the existing file at a file's final place.
type fileState byte

const (
	noFile fileState = iota
	unchangedFile
	otherFile
)

// compare compares a staged file with the file at its final place. It does not follow links, whose targets were not extracted here.
func (s *stage) compare(name string) (fileState, error) {
	there, err := os.Lstat(s.place(name))
	if errors.Is(err, fs.ErrNotExist) {
		return noFile, nil
	}
	if err != nil {
		return noFile, err
	}
	if !there.Mode().IsRegular() {
		return otherFile, nil
	}
	staged, err := os.Stat(s.path(name))
	if err != nil || staged.Size() != there.Size() {
		return otherFile, err
	}
	old, err := os.ReadFile(s.place(name))
	if err != nil {
		return noFile, err
	}
	fresh, err := os.ReadFile(s.path(name))
	if err != nil || !bytes.Equal(old, fresh) {
		return otherFile, err
	}
	return unchangedFile, nil
}
