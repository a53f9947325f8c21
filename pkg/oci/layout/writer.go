package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/internal/atomicfile"
	"github.com/cluster-version/cvo/internal/sorted"
)

// partialDir is the folder for incomplete files in a layout.
const partialDir = ".partial"

// ErrUnusable means that a folder is unusable and retrying would not help.
var ErrUnusable = errors.New("cannot be used as a folder for images")

// Writer fills a layout over a long time, and the next Writer resumes after an interruption. It writes each file under a temporary name,
// syncs it to disk and renames it. Therefore, a file under its digest is always complete. Close writes the list of images last. Only one
// process at a time can write to a layout. A Writer is safe for concurrent use. Create it with NewWriter.
type Writer struct {
	dir    string
	begin  func() error
	unlock func()

	mu    sync.Mutex
	index v1.IndexManifest
}

// NewWriter returns a Writer of a folder. Begin creates the folder.
func NewWriter(dir string) *Writer {
	w := &Writer{dir: dir, index: emptyIndex()}
	w.begin = sync.OnceValue(func() error {
		if err := w.open(); err != nil {
			return fmt.Errorf("folder %s: %w: %w", dir, ErrUnusable, err)
		}
		return nil
	})
	return w
}

// Begin creates the folder if needed, and locks it against other processes until Close. Further calls have no effect.
func (w *Writer) Begin() error { return w.begin() }

func (w *Writer) open() error {
	if entries, err := os.ReadDir(w.dir); err == nil && len(entries) > 0 && !Is(w.dir) && !w.begun() {
		return errors.New("it is neither empty nor an OCI layout: choose another folder")
	}
	for _, dir := range []string{partialDir, BlobsDir} {
		if err := os.MkdirAll(filepath.Join(w.dir, dir), 0o755); err != nil {
			return err
		}
	}
	unlock, err := lockFolder(filepath.Join(w.dir, partialDir))
	if err != nil {
		return err
	}
	w.unlock = unlock
	if err := w.clean(); err != nil {
		w.release()
		return err
	}
	raw, err := os.ReadFile(filepath.Join(w.dir, IndexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &w.index)
	}
	if err != nil {
		w.release()
	}
	return err
}

// lockFolder locks a folder against other processes until unlock or the end of the process.
func lockFolder(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	ok, err := atomicfile.TryLock(f)
	if err == nil && (!ok || !isSameFolder(dir, f)) {
		err = errors.New("another process is writing to it: wait until it finishes")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// isSameFolder reports whether the folder is still the opened one. A process may remove the folder when it finishes, and a lock on a removed
// folder excludes no other process.
func isSameFolder(dir string, opened *os.File) bool {
	was, err := opened.Stat()
	if err != nil {
		return false
	}
	is, err := os.Stat(dir)
	return err == nil && os.SameFile(was, is)
}

// begun reports whether an interrupted process wrote to the folder before it became a layout.
func (w *Writer) begun() bool {
	_, err := os.Stat(filepath.Join(w.dir, partialDir))
	return err == nil
}

// clean removes the temporary files of a killed process.
func (w *Writer) clean() error {
	entries, err := os.ReadDir(filepath.Join(w.dir, partialDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "new-") {
			if err := os.Remove(filepath.Join(w.dir, partialDir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Writer) release() {
	w.unlock()
	w.unlock = nil
}

// String returns the folder.
func (w *Writer) String() string { return w.dir }

func (w *Writer) path(h v1.Hash) string { return filepath.Join(w.dir, "blobs", h.Algorithm, h.Hex) }

// Has reports whether a file exists with the right size. Its content was verified before writing, and readers verify it again.
func (w *Writer) Has(desc v1.Descriptor) bool {
	info, err := os.Stat(w.path(desc.Digest))
	return err == nil && info.Mode().IsRegular() && info.Size() == desc.Size
}

// Write writes content under its digest without verifying it.
func (w *Writer) Write(desc v1.Descriptor, content io.Reader) error {
	return w.write(w.path(desc.Digest), content)
}

// Listed returns the image with a name; ok is false if there is none.
func (w *Writer) Listed(name string) (desc v1.Descriptor, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.index.Manifests, func(d v1.Descriptor) bool { return NameOf(d) == name })
	if i < 0 {
		return v1.Descriptor{}, false
	}
	return w.index.Manifests[i], true
}

// Lists reports whether an image is listed under a name.
func (w *Writer) Lists(digest v1.Hash, name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.index.Manifests, func(d v1.Descriptor) bool { return d.Digest == digest && NameOf(d) == name })
}

// List adds an image to the list, and replaces an image with the same name. name may be empty.
func (w *Writer) List(desc v1.Descriptor, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name == "" {
		w.index.Manifests = slices.DeleteFunc(w.index.Manifests, func(d v1.Descriptor) bool { return NameOf(d) == "" && d.Digest == desc.Digest })
	} else {
		desc.Annotations = map[string]string{NameAnnotation: name}
		w.index.Manifests = withoutName(w.index.Manifests, name)
	}
	w.index.Manifests = append(w.index.Manifests, desc)
}

// Close writes the list of images in a deterministic order and releases the folder.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unlock == nil {
		return nil
	}
	sorted.By(w.index.Manifests, func(a, b v1.Descriptor) int {
		return strings.Compare(NameOf(a)+" "+a.Digest.String(), NameOf(b)+" "+b.Digest.String())
	})
	err := WriteIndex(w.dir, 0o644, w.index)
	if err == nil {
		err = w.write(filepath.Join(w.dir, MarkerFile), strings.NewReader(MarkerContent+"\n"))
	}
	if err == nil {
		err = atomicfile.Sync(filepath.Join(w.dir, BlobsDir))
	}
	if err != nil {
		err = fmt.Errorf("writing the OCI layout %s: %w", w.dir, err)
	}
	if err == nil {
		// Until the layout is complete, the folder for incomplete files shows that another attempt can resume.
		err = os.RemoveAll(filepath.Join(w.dir, partialDir))
	}
	w.release()
	return err
}

// write writes a file atomically.
func (w *Writer) write(path string, content io.Reader) (err error) {
	f, err := os.CreateTemp(filepath.Join(w.dir, partialDir), "new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
