// Package atomicfile writes files and folders that appear completely or not at all, even if the process is killed. It writes them under a
// temporary name next to their place, syncs them to disk and renames them. The temporary name begins with a dot and contains ".partial-".
// It is locked during writing, so that the next writer of the same name can remove the leftovers of a killed process. Callers provide the
// content and decide which files may be replaced.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

const partial = ".partial-"

// Write calls fill to write a file. It replaces an existing file.
func Write(path string, mode fs.FileMode, fill func(io.Writer) error) error {
	return write(path, mode, fill, os.Rename)
}

// Content writes data from memory; pass it to Write or Create.
func Content(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// Create calls fill to write a new file. It returns fs.ErrExist if the file exists, even if another process creates it
// concurrently.
func Create(path string, mode fs.FileMode, fill func(io.Writer) error) error {
	if _, err := os.Lstat(path); err == nil {
		return exists(path)
	}
	return write(path, mode, fill, func(temporary, path string) error {
		err := os.Link(temporary, path)
		if err == nil || errors.Is(err, fs.ErrExist) {
			return errors.Join(err, os.Remove(temporary))
		}
		// The file system has no hard links: rename instead.
		if _, err := os.Lstat(path); err == nil {
			return exists(path)
		}
		return os.Rename(temporary, path)
	})
}

func exists(path string) error { return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist} }

func write(path string, mode fs.FileMode, fill func(io.Writer) error, place func(temporary, path string) error) (err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return err
	}
	f, err := begin(filepath.Dir(path), filepath.Base(path), func(temporary string) (*os.File, error) {
		return os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	})
	if err != nil {
		return err
	}
	// Closing releases the lock, so it comes last.
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
		err = errors.Join(err, f.Close())
	}()
	if err := fill(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// Folder is a temporary folder to fill and rename.
type Folder struct {
	// Path is the path of the temporary folder.
	Path string

	open *os.File
}

// NewFolder creates a temporary folder for name in parent, and parent if it is missing. The caller must call Release.
func NewFolder(parent, name string) (*Folder, error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, err
	}
	f, err := begin(parent, name, func(temporary string) (*os.File, error) {
		if err := os.Mkdir(temporary, 0o755); err != nil {
			return nil, err
		}
		f, err := os.Open(temporary)
		if errors.Is(err, fs.ErrNotExist) {
			// Another process removed the folder before it was opened: use another name.
			return nil, fs.ErrExist
		}
		return f, err
	})
	if err != nil {
		return nil, err
	}
	return &Folder{Path: f.Name(), open: f}, nil
}

// Rename syncs the content of the folder to disk and renames the folder. It fails with fs.ErrExist if dir is a folder
// that is not empty.
func (f *Folder) Rename(dir string) error {
	if err := SyncTree(f.Path); err != nil {
		return err
	}
	if info, err := os.Lstat(dir); err == nil && info.IsDir() {
		if err := os.Remove(dir); err != nil {
			return err
		}
	}
	if err := os.Rename(f.Path, dir); err != nil {
		return err
	}
	return Sync(filepath.Dir(dir))
}

// Release removes the temporary folder, unless it was renamed, and releases its lock.
func (f *Folder) Release() error { return errors.Join(os.RemoveAll(f.Path), f.open.Close()) }

// begin creates a temporary file or folder and locks it. First it removes abandoned files and folders of the same name.
func begin(parent, name string, create func(temporary string) (*os.File, error)) (*os.File, error) {
	prefix := "." + name + partial
	if err := sweep(parent, prefix); err != nil {
		return nil, err
	}
	for {
		f, err := create(filepath.Join(parent, fmt.Sprintf("%s%08x", prefix, rand.Uint32())))
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := LockShared(f); err != nil {
			return nil, errors.Join(err, os.RemoveAll(f.Name()), f.Close())
		}
		// Another process may have removed the file before it was locked.
		if _, err := os.Lstat(f.Name()); err == nil {
			return f, nil
		} else if err := errors.Join(f.Close(), unlessMissing(err)); err != nil {
			return nil, err
		}
	}
}

// sweep removes the temporary files and folders of ended processes.
func sweep(parent, prefix string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return unlessMissing(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || !e.IsDir() && !e.Type().IsRegular() {
			continue
		}
		if err := removeUnlocked(filepath.Join(parent, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func removeUnlocked(path string) error {
	f, err := os.Open(path)
	if err != nil {
		// The file was removed, or belongs to another user.
		return nil // files that cannot be opened are kept
	}
	defer f.Close()
	// Without locks, sweep cannot recognize files that are still being written.
	if err := flockAlone(f); err != nil {
		return nil // another process is writing it
	}
	return os.RemoveAll(path)
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// SyncTree syncs a folder and all its content to disk.
func SyncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return Sync(path)
	})
}

// Sync syncs a file, or the names in a folder, to disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
