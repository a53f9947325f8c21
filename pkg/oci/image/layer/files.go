package layer

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// files is a read-only file system in memory with a root and one level of folders.
type files struct {
	content map[string]packed
	// folders maps each folder to its sorted file names; "." is the root.
	folders map[string][]string
}

func newFiles(content map[string]packed) *files {
	f := &files{content: content, folders: map[string][]string{".": nil}}
	for name := range content {
		dir := path.Dir(name)
		if _, ok := f.folders[dir]; !ok {
			f.folders["."] = append(f.folders["."], dir)
		}
		f.folders[dir] = append(f.folders[dir], path.Base(name))
	}
	for _, names := range f.folders {
		slices.Sort(names)
	}
	return f
}

// Open implements fs.FS.
func (f *files) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if file, ok := f.content[name]; ok {
		data, err := file.unpack()
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		return &openFile{Reader: bytes.NewReader(data), info: info{name: path.Base(name), size: file.size, modTime: file.modTime}}, nil
	}
	if _, ok := f.folders[name]; ok {
		entries, _ := f.ReadDir(name)
		return &openFolder{info: info{name: path.Base(name), dir: true}, entries: entries}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// ReadFile implements fs.ReadFileFS.
func (f *files) ReadFile(name string) ([]byte, error) {
	file, ok := f.content[name]
	if !ok {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist}
	}
	data, err := file.unpack()
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return data, nil
}

// ReadDir implements fs.ReadDirFS.
func (f *files) ReadDir(name string) ([]fs.DirEntry, error) {
	names, ok := f.folders[name]
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	entries := make([]fs.DirEntry, len(names))
	for i, base := range names {
		full := strings.TrimPrefix(path.Join(name, base), "./")
		file, ok := f.content[full]
		entries[i] = info{name: base, size: file.size, modTime: file.modTime, dir: !ok}
	}
	return entries, nil
}

// info describes a file or folder. It is also the directory entry.
type info struct {
	name    string
	size    int64
	modTime time.Time // from the layer; zero for folders
	dir     bool
}

func (i info) Name() string               { return i.name }
func (i info) Size() int64                { return i.size }
func (i info) ModTime() time.Time         { return i.modTime }
func (i info) IsDir() bool                { return i.dir }
func (i info) Sys() any                   { return nil }
func (i info) Type() fs.FileMode          { return i.Mode().Type() }
func (i info) Info() (fs.FileInfo, error) { return i, nil }

func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

type openFile struct {
	*bytes.Reader
	info info
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

type openFolder struct {
	info    info
	entries []fs.DirEntry
}

func (f *openFolder) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFolder) Close() error               { return nil }
func (f *openFolder) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: f.info.name, Err: fs.ErrInvalid}
}

// ReadDir implements fs.ReadDirFile.
func (f *openFolder) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(f.entries)
	} else if len(f.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(f.entries))
	out := slices.Clone(f.entries[:n])
	f.entries = f.entries[n:]
	return out, nil
}
