//go:build linux

// Package tree reads and replaces single entries of a file system below a root folder: files, links and folders. It resolves absolute paths
// like a process whose root is that folder: a link such as /var/run → /run works, and no link leads out of the root (openat2 with
// RESOLVE_IN_ROOT). An entry is replaced atomically and synced to disk, with mode, owner and extended attributes. Package host decides
// which entries change and in which order. Linux only.
package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Options of a tree. The zero value is for production.
type Options struct {
	// Step is called before each operation that changes the file system or syncs it, with the path of the entry. Its error fails the
	// operation. Tests kill the process there. Default: nothing.
	Step func(operation, path string) error
	// Sync writes a file's data, or the names in a folder, to the disk. Default: fsync(2).
	Sync func(*os.File) error
}

// Tree is an open root folder. Its methods return errors of type *fs.PathError with the path below the root and the errno.
type Tree struct {
	root    *os.File
	options Options
}

// Open opens the root folder. The caller must call Close.
func Open(root string, options Options) (*Tree, error) {
	f, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if options.Step == nil {
		options.Step = func(string, string) error { return nil }
	}
	if options.Sync == nil {
		options.Sync = (*os.File).Sync
	}
	return &Tree{f, options}, nil
}

// Close closes the root folder.
func (t *Tree) Close() error { return t.root.Close() }

// OpenFolder opens an existing folder. It follows links.
func (t *Tree) OpenFolder(name string) (*os.File, error) {
	return t.open("open folder", name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// IsFolder reports whether a path leads to a folder. It follows links.
func (t *Tree) IsFolder(name string) (bool, error) {
	f, err := t.open("open folder", name, unix.O_PATH|unix.O_DIRECTORY)
	if isMissing(err) || errors.Is(err, unix.ELOOP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// OpenFile opens a file for reading. It follows links.
func (t *Tree) OpenFile(name string) (*os.File, error) {
	return t.open("open", name, unix.O_RDONLY|unix.O_NONBLOCK)
}

func (t *Tree) open(operation, name string, flags uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(int(t.root.Fd()), name, &how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			// EAGAIN: another process renamed a folder while the kernel resolved "..".
			continue
		case err != nil:
			return nil, &fs.PathError{Op: operation, Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// place is the position of one entry: its open parent folder and its name there.
type place struct {
	*Tree
	path   string
	name   string
	parent *os.File
	fd     int
}

func (t *Tree) place(name string) (*place, error) {
	if !path.IsAbs(name) || path.Clean(name) != name || name == "/" || strings.ContainsRune(name, 0) {
		return nil, &fs.PathError{Op: "resolve", Path: name, Err: unix.EINVAL}
	}
	parent, err := t.OpenFolder(path.Dir(name))
	if err != nil {
		return nil, &fs.PathError{Op: "resolve", Path: name, Err: errno(err)}
	}
	return &place{t, name, path.Base(name), parent, int(parent.Fd())}, nil
}

func (p *place) fail(operation string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: operation, Path: p.path, Err: errno(err)}
}

func errno(err error) error {
	if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// isMissing reports whether a path has no entry: one of its parents is missing or is not a folder.
func isMissing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

// Read returns the state of an entry without following a link there. A path in a missing folder is Absent.
func (t *Tree) Read(name string) (Entry, error) {
	p, err := t.place(name)
	if isMissing(err) {
		return Entry{Kind: Absent}, nil
	}
	if err != nil {
		return Entry{}, err
	}
	defer p.parent.Close()
	e, err := p.read()
	return e, p.fail("read", err)
}

func (p *place) read() (Entry, error) {
	e, err := p.stat()
	if err != nil {
		return Entry{}, err
	}
	switch e.Kind {
	case Absent, Other:
		return e, nil
	case File:
		f, err := p.openFile()
		if err != nil {
			return Entry{}, err
		}
		defer f.Close()
		digest := sha256.New()
		if _, err := io.Copy(digest, f); err != nil {
			return Entry{}, err
		}
		e.Digest = text(digest)
	case Link:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(p.fd, p.name, target)
		if err != nil {
			return Entry{}, err
		}
		e.Target = string(target[:n])
	case Folder:
	}
	e.XAttrs, err = readXAttrs(p.attributePath(p.name))
	return e, err
}

// stat returns the kind, the mode and the owner of the entry.
func (p *place) stat() (Entry, error) {
	var stat unix.Stat_t
	err := unix.Fstatat(p.fd, p.name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return Entry{Kind: Absent}, nil
	}
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Mode: stat.Mode & 0o7777, UID: int(stat.Uid), GID: int(stat.Gid)}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Kind = File
	case unix.S_IFDIR:
		e.Kind = Folder
	case unix.S_IFLNK:
		e.Kind, e.Mode = Link, 0
	default:
		e.Kind = Other
	}
	return e, nil
}

// openFile opens a file for reading. It does not follow links, and never waits for the other end of a pipe.
func (p *place) openFile() (*os.File, error) {
	fd, err := unix.Openat(p.fd, p.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), p.path), nil
}

// attributePath returns a path for system calls on extended attributes, which take no folder descriptor.
func (p *place) attributePath(name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", p.fd, name)
}

func text(digest hash.Hash) string { return hex.EncodeToString(digest.Sum(nil)) }

// Put makes an entry match e by a rename, so another process sees the former entry or the new one. Data is the content of a file and must
// have the digest of e, unless that is empty. Put replaces a file or a link, but neither a folder (EISDIR) nor anything of kind Other
// (EEXIST). The parent folder must exist. On success the entry is on the disk.
//
// A file keeps the SELinux label of the file that it replaces, unless e sets extended attributes. Other attributes are lost, because they
// belong to the replaced data.
func (t *Tree) Put(name string, e Entry, data io.Reader) error {
	if e.Kind == Absent {
		return t.Remove(name)
	}
	p, err := t.place(name)
	if err != nil {
		return err
	}
	defer p.parent.Close()
	if err := p.put(e, data); err != nil {
		return p.fail("write", errors.Join(err, p.clean()))
	}
	return nil
}

func (p *place) put(e Entry, data io.Reader) error {
	former, err := p.stat()
	switch {
	case err != nil:
		return err
	case former.Kind == Folder:
		return unix.EISDIR
	case former.Kind == Other || former.Kind != Absent && e.Kind == Folder:
		return unix.EEXIST
	}
	if err := p.clean(); err != nil {
		return err
	}
	if err := p.create(e, data); err != nil {
		return err
	}
	if e.XAttrs == nil && former.Kind == File {
		if err := copyLabel(p.attributePath(p.name), p.attributePath(p.temporary())); err != nil {
			return err
		}
	}
	if err := p.options.Step("rename", p.path); err != nil {
		return err
	}
	// Never replace a folder that another process has created in the meantime.
	flags := uint(0)
	if e.Kind == Folder {
		flags = unix.RENAME_NOREPLACE
	}
	if err := unix.Renameat2(p.fd, p.temporary(), p.fd, p.name, flags); err != nil {
		return err
	}
	return p.sync(p.parent)
}

// temporary returns the name of the entry that replaces this one. It depends only on the name, so that a later process finds it. The dot
// hides it from systemd and the kubelet. A digest keeps it within the limit of 255 bytes.
func (p *place) temporary() string {
	digest := sha256.Sum256([]byte(p.name))
	return ".cvo-node-" + hex.EncodeToString(digest[:8])
}

// create makes the temporary entry, complete with data and attributes, and syncs it.
func (p *place) create(e Entry, data io.Reader) error {
	if err := p.options.Step("create", p.path); err != nil {
		return err
	}
	name := p.temporary()
	switch e.Kind {
	case Link:
		if err := unix.Symlinkat(e.Target, p.fd, name); err != nil {
			return err
		}
		return p.attributes(name, e)
	case Folder:
		if err := unix.Mkdirat(p.fd, name, 0o700); err != nil {
			return err
		}
	case File:
	default:
		return unix.EINVAL
	}
	flags := unix.O_RDONLY | unix.O_DIRECTORY
	if e.Kind == File {
		flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL
	}
	fd, err := unix.Openat(p.fd, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), p.path)
	defer f.Close()
	if e.Kind == File {
		digest := sha256.New()
		if _, err := io.Copy(io.MultiWriter(f, digest), data); err != nil {
			return err
		}
		if got := text(digest); e.Digest != "" && got != e.Digest {
			return fmt.Errorf("its data has digest %s instead of %s", got, e.Digest)
		}
	}
	if err := p.attributes(name, e); err != nil {
		return err
	}
	return p.sync(f)
}

// attributes sets owner, extended attributes and mode, in this order: chown clears capabilities and setuid bits, and an access control list
// changes the mode.
func (p *place) attributes(name string, e Entry) error {
	if err := unix.Fchownat(p.fd, name, e.UID, e.GID, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if e.XAttrs != nil {
		if err := writeXAttrs(p.attributePath(name), e.XAttrs); err != nil {
			return err
		}
	}
	if e.Kind == Link {
		return nil
	}
	return unix.Fchmodat(p.fd, name, e.Mode, 0)
}

func (p *place) sync(f *os.File) error {
	if err := p.options.Step("sync", p.path); err != nil {
		return err
	}
	return p.options.Sync(f)
}

// Remove removes a file, a link or an empty folder, and syncs its parent. It does nothing if the path has no entry.
func (t *Tree) Remove(name string) error {
	p, err := t.place(name)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.parent.Close()
	return p.fail("remove", p.remove())
}

func (p *place) remove() error {
	if err := p.clean(); err != nil {
		return err
	}
	e, err := p.stat()
	switch {
	case err != nil:
		return err
	case e.Kind == Absent:
		return nil
	case e.Kind == Other:
		return unix.EEXIST
	}
	if err := p.options.Step("remove", p.path); err != nil {
		return err
	}
	if err := p.unlink(e.Kind); err != nil {
		return err
	}
	return p.sync(p.parent)
}

// Finish completes the work of a killed process on an entry: it removes the temporary entry and syncs the parent folder, because the killed
// process may have renamed without sync.
func (t *Tree) Finish(name string) error {
	p, err := t.place(name)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.parent.Close()
	if err := p.clean(); err != nil {
		return p.fail("clean up", err)
	}
	return p.fail("sync", p.sync(p.parent))
}

// clean removes the temporary entry.
func (p *place) clean() error {
	temporary := *p
	temporary.name = p.temporary()
	e, err := temporary.stat()
	if err != nil || e.Kind == Absent {
		// A read-only file system refuses to remove even a missing entry.
		return err
	}
	return temporary.unlink(e.Kind)
}

func (p *place) unlink(kind Kind) error {
	flags := 0
	if kind == Folder {
		flags = unix.AT_REMOVEDIR
	}
	return unix.Unlinkat(p.fd, p.name, flags)
}
