package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/release"
)

// staleAfter is how much older than a new temporary file another must be to belong to a process that is gone.
const staleAfter = 24 * time.Hour

// cache is an OCI image layout on disk (OCI image specification, image-layout.md). Content is stored under its digest
// by writing a temporary file, syncing it and renaming it, so a process killed at any moment leaves either all of it or
// nothing; readers check digests anyway. Several processes may share the folder.
type cache struct {
	dir string
	// mu keeps this process's changes of index.json apart. Another process's may get lost in a race, which costs only
	// other tools a name: content is found by digest.
	mu sync.Mutex
}

func openCache(dir string) (*cache, error) {
	c := &cache{dir: dir}
	for _, sub := range []string{c.blobDir(), c.tempDir()} {
		if err := os.MkdirAll(sub, 0o750); err != nil {
			return nil, fmt.Errorf("preparing image cache: %w", err)
		}
	}
	if err := c.write(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return nil, fmt.Errorf("preparing image cache: %w", err)
	}
	return c, nil
}

func (c *cache) blobDir() string               { return filepath.Join(c.dir, "blobs", "sha256") }
func (c *cache) tempDir() string               { return filepath.Join(c.dir, "tmp") }
func (c *cache) path(d release.Digest) string  { return filepath.Join(c.blobDir(), d.Hex()) }
func (c *cache) remove(d release.Digest) error { return os.Remove(c.path(d)) }

// open returns stored content, not yet checked; ok is false if there is none.
func (c *cache) open(d release.Digest) (f *os.File, ok bool, err error) {
	f, err = os.Open(c.path(d))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading image cache: %w", err)
	}
	return f, true, nil
}

// store keeps what the verified reader yields, if it ends well.
func (c *cache) store(d release.Digest, r io.Reader) error {
	return c.commit(c.path(d), func(f *os.File) error {
		_, err := io.Copy(f, r)
		return err
	})
}

// write replaces a small file, unless it has that content already.
func (c *cache) write(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	return c.commit(path, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

// commit makes a file appear under its name only when it is complete and on disk.
func (c *cache) commit(path string, fill func(*os.File) error) (err error) {
	f, err := os.CreateTemp(c.tempDir(), filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("writing image cache: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	c.sweep(f)
	if err := fill(f); err != nil {
		return err
	}
	for _, step := range []func() error{
		f.Sync,
		f.Close,
		func() error { return os.Rename(f.Name(), path) },
		func() error { return syncDir(filepath.Dir(path)) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("writing image cache: %w", err)
		}
	}
	return nil
}

// sweep removes temporary files that killed processes left behind. Ages are compared within the file system, whose
// clock need not be ours.
func (c *cache) sweep(fresh *os.File) {
	now, err := fresh.Stat()
	if err != nil {
		return
	}
	entries, err := os.ReadDir(c.tempDir())
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && now.ModTime().Sub(info.ModTime()) > staleAfter {
			_ = os.Remove(filepath.Join(c.tempDir(), e.Name()))
		}
	}
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// list names an image in index.json, so that other tools find it in the layout.
func (c *cache) list(pullspec string, d release.Digest, mediaType types.MediaType, size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	path := filepath.Join(c.dir, "index.json")
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{}}
	if data, err := os.ReadFile(path); err == nil {
		// A broken list is replaced: it holds nothing that is not found by digest.
		if err := json.Unmarshal(data, &index); err != nil {
			index = v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{}}
		}
	}
	hash := v1.Hash{Algorithm: "sha256", Hex: d.Hex()}
	if slices.ContainsFunc(index.Manifests, func(m v1.Descriptor) bool { return m.Digest == hash }) {
		return nil
	}
	index.Manifests = append(index.Manifests, v1.Descriptor{
		MediaType: mediaType, Digest: hash, Size: size,
		Annotations: map[string]string{"org.opencontainers.image.ref.name": pullspec},
	})
	data, err := json.Marshal(index)
	if err != nil {
		return fmt.Errorf("writing image cache: %w", err)
	}
	return c.write(path, data)
}
