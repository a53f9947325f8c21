// Package cache keeps the content of images in a folder on disk, which several processes may share. It takes documents and blobs by digest
// and returns them unverified; readers check digests. It prunes the least recently used content. Other packages fetch content.
package cache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/atomicfile"
	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/release"
)

// abandonedAfter is the age from which an unlocked temporary file is treated as left by a dead process. A live process needs a moment
// between creating a file and locking it.
const abandonedAfter = time.Minute

// touchAfter is how old a recorded last use must be before it is updated, which saves writes.
const touchAfter = time.Minute

// Folder is an OCI image layout on disk (OCI image specification, image-layout.md). It stores content under its digest: it writes and
// syncs a temporary file, renames it and syncs the folder. If a process is killed, its content is either complete or missing, and readers
// verify digests anyway. Several processes may share the folder. A reader or writer holds a shared lock on a file to mark it as in use. A
// file's modification time is the time of its last use.
type Folder struct {
	dir   string
	clock clock.PassiveClock
}

// Open prepares a cache folder. It fails if it cannot use the folder.
func Open(dir string, c clock.PassiveClock) (*Folder, error) {
	k := &Folder{dir: dir, clock: c}
	for _, step := range []func() error{
		func() error { return makeFolder(filepath.Join(dir, layout.BlobsDir)) },
		func() error { return makeFolder(k.tempDir()) },
		func() error {
			return k.write(filepath.Join(dir, layout.MarkerFile), []byte(layout.MarkerContent))
		},
		k.sweep,
	} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("preparing image cache: %w", err)
		}
	}
	return k, nil
}

func (c *Folder) tempDir() string { return filepath.Join(c.dir, "tmp") }
func (c *Folder) path(d release.Digest) string {
	return layout.Path(c.dir, d)
}

// makeFolder creates a folder and its parents, and syncs their parent folders to disk.
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

// Get returns stored content without verifying it; ok is false if there is none. The file stays locked until it is closed.
func (c *Folder) Get(d release.Digest) (f *os.File, ok bool, err error) {
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
	// In a read-only folder, setting the time of last use fails, which is harmless.
	if info, err := f.Stat(); err == nil && c.clock.Since(info.ModTime()) > touchAfter {
		_ = os.Chtimes(c.path(d), time.Time{}, c.clock.Now())
	}
	return f, true, nil
}

// Remove removes content that does not match its digest.
func (c *Folder) Remove(d release.Digest) error {
	if err := os.Remove(c.path(d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a broken file from the image cache: %w", err)
	}
	return nil
}

// Store stores a document under its digest.
func (c *Folder) Store(d release.Digest, raw []byte) error { return c.write(c.path(d), raw) }

// Fill stores the content that fill writes. The returned file stays locked until it is closed. Its offset is where fill left it.
func (c *Folder) Fill(d release.Digest, fill func(*os.File) error) (*os.File, error) {
	return c.commit(c.path(d), fill)
}

// write replaces a small file unless it already has that content.
func (c *Folder) write(path string, data []byte) error {
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

// commit renames a file to its final name once it is complete and synced to disk.
func (c *Folder) commit(path string, fill func(*os.File) error) (*os.File, error) {
	f, err := os.CreateTemp(c.tempDir(), filepath.Base(path)+"-*")
	if err != nil {
		return nil, fmt.Errorf("writing image cache: %w", err)
	}
	temporary := f.Name()
	var now time.Time // from the same clock as later uses
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
			if i == 1 && !isFull(err) {
				return nil, err // fill's errors already have context
			}
			return nil, c.explain(err)
		}
	}
	return f, nil
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// explain adds context to an error of a write, and for a full disk the remedy.
func (c *Folder) explain(err error) error {
	if isFull(err) {
		return fmt.Errorf("writing image cache: %w: free space in %s, or move the cache with --payload-cache", err, c.dir)
	}
	return fmt.Errorf("writing image cache: %w", err)
}

// sweep removes temporary files of killed processes. It compares only times of the file system, whose clock may differ from the system's.
func (c *Folder) sweep() error {
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

// removeUnused removes a file unless a process has locked it.
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

// edit changes index.json, which lists the layout's content for other tools, under a lock that excludes other processes. It replaces a
// malformed index.json. Nothing is lost, because readers in this module find content by digest.
func (c *Folder) edit(change func([]v1.Descriptor) []v1.Descriptor) error {
	f, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("writing image cache: %w", err)
	}
	defer f.Close()
	err = atomicfile.Lock(f)
	if err == nil {
		err = layout.WriteIndex(c.dir, 0o600, v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: change(c.listed())})
	}
	if err != nil {
		return c.explain(err)
	}
	return nil
}

// listed returns the entries of index.json, none if it is malformed. It skips entries that it cannot parse, such as a digest with a newer
// algorithm.
func (c *Folder) listed() (listed []v1.Descriptor) {
	var raw struct {
		Manifests []json.RawMessage `json:"manifests"`
	}
	if data, err := os.ReadFile(filepath.Join(c.dir, layout.IndexFile)); err != nil || json.Unmarshal(data, &raw) != nil {
		return nil
	}
	for _, entry := range raw.Manifests {
		desc := v1.Descriptor{}
		if json.Unmarshal(entry, &desc) == nil {
			listed = append(listed, desc)
		}
	}
	return listed
}

// Document returns a document of at most limit bytes, or nil if there is no valid copy. It removes an invalid copy.
func (c *Folder) Document(d release.Digest, limit int64) ([]byte, error) {
	f, ok, err := c.Get(d)
	if err != nil || !ok {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, fmt.Errorf("reading image cache: %w", err)
	}
	if document.DigestOf(raw) != d {
		return nil, c.Remove(d)
	}
	return raw, nil
}

// List adds an image to index.json under its pullspec unless its digest is already listed.
func (c *Folder) List(pullspec string, desc v1.Descriptor) error {
	desc.Annotations = map[string]string{layout.NameAnnotation: pullspec}
	return c.edit(func(listed []v1.Descriptor) []v1.Descriptor {
		if slices.ContainsFunc(listed, func(m v1.Descriptor) bool { return m.Digest == desc.Digest }) {
			return listed
		}
		return append(listed, desc)
	})
}
