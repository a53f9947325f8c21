//go:build linux

package tree

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// Watch watches the entries at paths, and the folders that lead to them. changed is closed at the first event of one of them, or if an event may be
// lost. Then it watches no longer. An event does not mean that the entry differs. A change by another hard link or by mmap(2) is no event. The caller
// must call stop. An error is mostly a limit of inotify(7).
func (t *Tree) Watch(paths []string) (changed <-chan struct{}, stop func(), err error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, fmt.Errorf("watching files: %w", err)
	}
	w := watch{t, notify, map[string]*folder{}, map[inode]*folder{}}
	known := map[string]bool{"/": true}
	for _, name := range paths {
		var missing []string
		for ; !known[name]; name = path.Dir(name) {
			known[name] = true
			missing = append(missing, name)
		}
		for _, name := range slices.Backward(missing) { // a folder that is replaced meanwhile is an event of the one above
			if err := w.add(name); err != nil {
				w.stop()
				return nil, nil, err
			}
		}
	}
	events := make(chan struct{})
	go func() {
		defer close(events)
		w.wait()
	}()
	return events, w.stop, nil
}

// watch watches folders.
type watch struct {
	tree   *Tree
	notify *fsnotify.Watcher
	// folders are by the path with which the kernel opens them.
	folders map[string]*folder
	inodes  map[inode]*folder
}

// folder is a folder with the names of its watched entries.
type folder struct {
	file  *os.File
	names map[string]bool
}

// inode identifies a folder that several paths lead to. inotify watches it once.
type inode struct{ device, number uint64 }

// add adds an entry, unless its folder does not exist.
func (w watch) add(name string) error {
	f, err := w.tree.OpenFolder(path.Dir(name))
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		_ = f.Close()
		return &fs.PathError{Op: "watch", Path: path.Dir(name), Err: err}
	}
	id := inode{stat.Dev, stat.Ino}
	if known, ok := w.inodes[id]; ok {
		known.names[path.Base(name)] = true
		return f.Close()
	}
	// The kernel resolves links in a path from another root. The open file leads to the right folder.
	link := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	added := &folder{f, map[string]bool{path.Base(name): true}}
	w.folders[link], w.inodes[id] = added, added
	if err := w.notify.Add(link); err != nil {
		return &fs.PathError{Op: "watch", Path: path.Dir(name), Err: err}
	}
	return nil
}

// wait returns after the first event that counts, or after stop.
func (w watch) wait() {
	for {
		select {
		case e, isOpen := <-w.notify.Events:
			if !isOpen {
				return
			}
			f, isEntry := w.folders[path.Dir(e.Name)]
			if !isEntry || f.names[path.Base(e.Name)] { // an event of a folder itself has its path
				return
			}
		case <-w.notify.Errors: //nolint:errcheck // whatever it is, an event may be lost
			return
		}
	}
}

func (w watch) stop() {
	_ = w.notify.Close()
	for _, f := range w.folders {
		_ = f.file.Close()
	}
}
