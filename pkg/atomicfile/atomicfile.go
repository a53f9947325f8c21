// Package atomicfile has files and folders appear under their name with all that is in them, or not at all, however the
// process ends. They are written under another name beside their place, forced to the disk, and renamed. The other name
// begins with a dot and contains ".partial-"; it is locked as long as somebody writes, so that the next who writes under
// the same name removes what a killed process has left. What is in the files, and what may be replaced, is the caller's.
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

// Write lets fill write a file, which takes the place of another.
func Write(path string, mode fs.FileMode, fill func(io.Writer) error) error {
	return write(path, mode, fill, os.Rename)
}

// Content is a fill for what is in memory.
func Content(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// Create lets fill write a file that must not be there yet, which is fs.ErrExist otherwise, also if somebody else
// creates it meanwhile.
func Create(path string, mode fs.FileMode, fill func(io.Writer) error) error {
	if _, err := os.Lstat(path); err == nil {
		return exists(path)
	}
	return write(path, mode, fill, func(temporary, path string) error {
		err := os.Link(temporary, path)
		if err == nil || errors.Is(err, fs.ErrExist) {
			return errors.Join(err, os.Remove(temporary))
		}
		// Not every file system has hard links.
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
	// Closing ends the lock, so it comes last.
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

// Folder is one that is being filled beside its place.
type Folder struct {
	// Path is where it is filled.
	Path string

	open *os.File
}

// NewFolder makes a folder inside another, which is made too if need be, for what is to become name. Release it.
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
			// Somebody who swept was faster than we were to open it: another name will do.
			return nil, fs.ErrExist
		}
		return f, err
	})
	if err != nil {
		return nil, err
	}
	return &Folder{Path: f.Name(), open: f}, nil
}

// Rename forces everything in the folder to the disk and gives it its name. Where another folder has that name, and is
// not empty, it is fs.ErrExist.
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

// Release removes what has not got another name.
func (f *Folder) Release() error { return errors.Join(os.RemoveAll(f.Path), f.open.Close()) }

// begin makes something temporary and locks it, after those that nobody writes any more are gone.
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
		// Somebody who swept may have been faster than the lock.
		if _, err := os.Lstat(f.Name()); err == nil {
			return f, nil
		} else if err := errors.Join(f.Close(), unlessMissing(err)); err != nil {
			return nil, err
		}
	}
}

// sweep removes what processes that have ended left behind.
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
		// It is gone, or another user's.
		return nil // what cannot be opened is not ours to remove
	}
	defer f.Close()
	// Without locks nobody can tell what is still written.
	if err := flockAlone(f); err != nil {
		return nil // somebody writes it
	}
	return os.RemoveAll(path)
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// SyncTree forces a folder to the disk, with all that is in it.
func SyncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return Sync(path)
	})
}

// Sync forces a file, or the names in a folder, to the disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
