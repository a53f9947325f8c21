package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/atomicfile"
	"github.com/cluster-version/cvo/pkg/release"
)

// Temporary files that nobody holds belong to a process that is gone, once they are as old as this. A process needs a
// moment between making a file and holding it.
const abandonedAfter = time.Minute

// touchAfter is how old the time of last use must be to be worth a write.
const touchAfter = time.Minute

// cache is an OCI image layout on disk (OCI image specification, image-layout.md). Content is stored under its digest
// by writing a temporary file, syncing it, renaming it and syncing the folder, so a process killed at any moment leaves
// either all of it or nothing; readers check digests anyway. Several processes may share the folder: whoever reads or
// writes a file holds a shared lock on it, which also says that it is in use. A file's modification time is that of its
// last use.
type cache struct {
	dir   string
	clock clock.PassiveClock
}

func openCache(dir string, c clock.PassiveClock) (*cache, error) {
	k := &cache{dir: dir, clock: c}
	for _, step := range []func() error{
		func() error { return makeFolder(filepath.Join(dir, "blobs", "sha256")) },
		func() error { return makeFolder(k.tempDir()) },
		func() error {
			return k.write(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`))
		},
		k.sweep,
	} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("preparing image cache: %w", err)
		}
	}
	return k, nil
}

func (c *cache) tempDir() string { return filepath.Join(c.dir, "tmp") }
func (c *cache) path(d release.Digest) string {
	return filepath.Join(c.dir, "blobs", "sha256", d.Hex())
}

// makeFolder makes a folder and those above it, and has their names on disk.
func makeFolder(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := makeFolder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return atomicfile.Sync(filepath.Dir(dir))
}

// open returns stored content, not yet checked; ok is false if there is none. It is in use until it is closed.
func (c *cache) open(d release.Digest) (f *os.File, ok bool, err error) {
	f, err = os.Open(c.path(d))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading image cache: %w", err)
	}
	if err := atomicfile.LockShared(f); err != nil {
		_ = f.Close()
		return nil, false, fmt.Errorf("reading image cache: %w", err)
	}
	// Whoever may only read the folder does not touch it.
	if info, err := f.Stat(); err == nil && c.clock.Since(info.ModTime()) > touchAfter {
		_ = os.Chtimes(c.path(d), time.Time{}, c.clock.Now())
	}
	return f, true, nil
}

// remove forgets content that is not what it should be.
func (c *cache) remove(d release.Digest) error {
	if err := os.Remove(c.path(d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a broken file from the image cache: %w", err)
	}
	return nil
}

// store keeps a document.
func (c *cache) store(d release.Digest, raw []byte) error { return c.write(c.path(d), raw) }

// fill keeps what fill writes, and returns it to be read from where fill left off. It is in use until it is closed.
func (c *cache) fill(d release.Digest, fill func(*os.File) error) (*os.File, error) {
	return c.commit(c.path(d), fill)
}

// write replaces a small file, unless it has that content already.
func (c *cache) write(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	f, err := c.commit(path, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return f.Close()
}

// commit makes a file appear under its name only when it is complete and on disk.
func (c *cache) commit(path string, fill func(*os.File) error) (*os.File, error) {
	f, err := os.CreateTemp(c.tempDir(), filepath.Base(path)+"-*")
	if err != nil {
		return nil, fmt.Errorf("writing image cache: %w", err)
	}
	temporary := f.Name()
	var now time.Time // the clock's, which later uses are measured by
	for i, step := range []func() error{
		func() error { return atomicfile.LockShared(f) },
		func() error { return fill(f) },
		func() error { now = c.clock.Now(); return os.Chtimes(temporary, now, now) },
		f.Sync,
		func() error { return os.Rename(temporary, path) },
		func() error { return atomicfile.Sync(filepath.Dir(path)) },
	} {
		if err := step(); err != nil {
			_ = f.Close()
			_ = os.Remove(temporary)
			if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
				return nil, fmt.Errorf("writing image cache: %w: make room in %s, or keep the cache elsewhere with --payload-cache", err, c.dir)
			}
			if i == 1 {
				return nil, err // fill knows what it is about
			}
			return nil, fmt.Errorf("writing image cache: %w", err)
		}
	}
	return f, nil
}

// sweep removes temporary files that killed processes left behind. Ages are compared within the file system, whose
// clock need not be ours.
func (c *cache) sweep() error {
	fresh, err := os.CreateTemp(c.tempDir(), "sweep-*")
	if err != nil {
		return err
	}
	now, err := fresh.Stat()
	if err := errors.Join(err, fresh.Close(), os.Remove(fresh.Name())); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.tempDir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && now.ModTime().Sub(info.ModTime()) > abandonedAfter {
			_, _ = removeUnused(filepath.Join(c.tempDir(), e.Name()))
		}
	}
	return nil
}

// removeUnused removes a file unless somebody has it in use.
func removeUnused(path string) (removed bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if ok, err := atomicfile.TryLock(f); !ok || err != nil {
		return false, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, nil
}

// alone runs what changes index.json, one process at a time.
func (c *cache) alone(change func() error) error {
	f, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("writing image cache: %w", err)
	}
	defer f.Close()
	if err := atomicfile.Lock(f); err != nil {
		return fmt.Errorf("writing image cache: %w", err)
	}
	return change()
}

// edit changes index.json, by which other tools find what is in the layout. A broken one is replaced: it holds nothing
// that is not found by digest.
func (c *cache) edit(change func([]v1.Descriptor) []v1.Descriptor) error {
	return c.alone(func() error {
		index := c.index()
		index.SchemaVersion, index.MediaType = 2, types.OCIImageIndex
		index.Manifests = change(index.Manifests)
		if index.Manifests == nil {
			index.Manifests = []v1.Descriptor{}
		}
		data, err := json.Marshal(index)
		if err != nil {
			return fmt.Errorf("writing image cache: %w", err)
		}
		return c.write(c.indexPath(), data)
	})
}

func (c *cache) indexPath() string { return filepath.Join(c.dir, "index.json") }

// index is what index.json has; nothing if it is broken. What cannot be read of it alone, such as a digest by an algorithm
// that another version has written, is left out.
func (c *cache) index() v1.IndexManifest {
	var raw struct {
		Manifests []json.RawMessage `json:"manifests"`
	}
	if data, err := os.ReadFile(c.indexPath()); err != nil || json.Unmarshal(data, &raw) != nil {
		return v1.IndexManifest{}
	}
	index := v1.IndexManifest{}
	for _, entry := range raw.Manifests {
		desc := v1.Descriptor{}
		if json.Unmarshal(entry, &desc) == nil {
			index.Manifests = append(index.Manifests, desc)
		}
	}
	return index
}

// list names an image.
func (c *cache) list(pullspec string, desc v1.Descriptor) error {
	desc.Annotations = map[string]string{RefNameAnnotation: pullspec}
	return c.edit(func(listed []v1.Descriptor) []v1.Descriptor {
		if slices.ContainsFunc(listed, func(m v1.Descriptor) bool { return m.Digest == desc.Digest }) {
			return listed
		}
		return append(listed, desc)
	})
}
