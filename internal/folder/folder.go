// Package folder opens a folder as a file system and rejects symbolic links that lead out of the folder or in a circle. The
// folder may come from an untrusted source.
package folder

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
)

// errLeadsOut is the error for a symbolic link that leads out of the folder.
var errLeadsOut = errors.New("it is a symbolic link that leads out of the folder, or is behind one: replace the link with a copy")

// errLoops is the error for a symbolic link to itself, or to a folder that contains it.
var errLoops = errors.New("it is a symbolic link to itself, or to a folder that contains it: remove the link")

// errSpecial is the error for a pipe, a socket or a device. Reading from it might never end.
var errSpecial = errors.New("it is neither a file nor a folder, but a pipe, a socket or a device: remove it")

// Open returns the files of a folder. It follows symbolic links within the folder. Links out of the folder, absolute links, circular
// links, and anything but regular files result in errors that name the file.
func Open(dir string) (fs.FS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return files{dir: dir, inner: root.FS().(rootFS)}, nil // documented to implement it
}

// rootFS is the type that os.Root.FS returns.
type rootFS interface {
	fs.ReadDirFS
	fs.ReadFileFS
	fs.StatFS
}

type files struct {
	dir   string
	inner rootFS
}

// Open implements fs.FS.
func (f files) Open(name string) (fs.File, error) {
	if err := f.special(name); err != nil {
		return nil, err
	}
	file, err := f.inner.Open(name)
	return file, f.explain(name, err)
}

// ReadDir implements fs.ReadDirFS.
func (f files) ReadDir(name string) ([]fs.DirEntry, error) {
	if _, err := f.Stat(name); err != nil {
		return nil, err
	}
	entries, err := f.inner.ReadDir(name)
	return entries, f.explain(name, err)
}

// ReadFile implements fs.ReadFileFS.
func (f files) ReadFile(name string) ([]byte, error) {
	if err := f.special(name); err != nil {
		return nil, err
	}
	data, err := f.inner.ReadFile(name)
	return data, f.explain(name, err)
}

// Stat implements fs.StatFS.
func (f files) Stat(name string) (fs.FileInfo, error) {
	info, err := f.inner.Stat(name)
	if err == nil && info.IsDir() && f.contains(name, info) {
		return nil, &fs.PathError{Op: "stat", Path: filepath.Join(f.dir, name), Err: errLoops}
	}
	return info, f.explain(name, err)
}

// contains reports whether a folder is one of those in which its own name lies.
func (f files) contains(name string, info fs.FileInfo) bool {
	for above := name; above != "."; {
		above = path.Dir(above)
		if outer, err := f.inner.Stat(above); err == nil && os.SameFile(outer, info) {
			return true
		}
	}
	return false
}

// special returns an error for a name that is neither a file nor a folder. Opening a pipe waits for a writer, and no signal
// interrupts that wait.
func (f files) special(name string) error {
	info, err := f.inner.Stat(name)
	if err != nil || info.Mode().IsRegular() || info.IsDir() {
		return nil //nolint:nilerr // the caller meets the same error
	}
	return &fs.PathError{Op: "open", Path: filepath.Join(f.dir, name), Err: errSpecial}
}

// explain names the link that leads out of the folder or to itself. Package os does not export its error for the first
// case.
func (f files) explain(name string, err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok && failed.Err.Error() == "path escapes from parent" {
		return &fs.PathError{Op: failed.Op, Path: filepath.Join(f.dir, name), Err: errLeadsOut}
	}
	if errors.Is(err, syscall.ELOOP) {
		return &fs.PathError{Op: "open", Path: filepath.Join(f.dir, name), Err: errLoops}
	}
	return err
}
