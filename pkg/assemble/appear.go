package assemble

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/image"
)

// What is written here gets its name last, when all of it is on the disk. A process that is killed leaves at most
// something whose name begins with a dot and contains this.
const partial = ".partial-"

const layoutIndexFile = "index.json"

// appear lets fill write a folder that must be new or empty.
func appear(dir string, fill func(staged string) error) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	exists := err == nil
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("writing %s: %w: name an empty or new folder", dir, err)
	case len(entries) > 0:
		return fmt.Errorf("%s is there already and not empty: name an empty or new folder", dir)
	}
	staged, err := stage(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staged)) }()
	if err := fill(staged); err != nil {
		return err
	}
	if err := syncTree(staged); err != nil {
		return fmt.Errorf("writing %s: %w", dir, err)
	}
	if exists {
		if err := os.Remove(dir); err != nil {
			return fmt.Errorf("writing %s: %w", dir, err)
		}
	}
	if err := os.Rename(staged, dir); err != nil {
		return fmt.Errorf("writing %s: %w", dir, err)
	}
	return syncPath(filepath.Dir(dir))
}

// stage makes a folder beside what it will become, on the same disk.
func stage(dir string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("writing %s: %w", dir, err)
	}
	staged, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+partial)
	if err != nil {
		return "", fmt.Errorf("writing %s: %w", dir, err)
	}
	// Temporary folders are closed to others; this one will not stay temporary.
	return staged, os.Chmod(staged, 0o755)
}

// WriteNewFile lets fill write a file that must not be there yet.
func WriteNewFile(path string, fill func(io.Writer) error) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s is there already: name another file, or remove it", path)
	}
	return replaceFile(path, fill)
}

// replaceFile lets fill write a file, which takes the place of another.
func replaceFile(path string, fill func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+partial)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := fill(f); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return f.Chmod(0o644) },
		f.Sync,
		f.Close,
		func() error { return os.Rename(f.Name(), path) },
		func() error { return syncPath(filepath.Dir(path)) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
	}
	return nil
}

// layoutIndex reads the list of a layout's images; a folder that is empty or not there has none.
func layoutIndex(dir string) (*v1.IndexManifest, error) {
	index := &v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{}}
	data, err := os.ReadFile(filepath.Join(dir, layoutIndexFile))
	if errors.Is(err, fs.ErrNotExist) {
		entries, err := os.ReadDir(dir)
		if err == nil && len(entries) > 0 {
			return nil, fmt.Errorf("%s is there already and is no OCI layout: name a layout, or an empty or new folder", dir)
		}
		return index, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening the OCI layout %s: %w", dir, err)
	}
	if err := json.Unmarshal(data, index); err != nil {
		return nil, fmt.Errorf("opening the OCI layout %s: %s: %w", dir, layoutIndexFile, err)
	}
	return index, nil
}

// writeLayout adds one image or index to a layout, in place of what has the same name. It is written beside the layout
// and moved there: first content, each file whole under its digest, then the list that leads to it.
func writeLayout(dir, as string, add func(layout.Path, layout.Option) error) (err error) {
	present, err := layoutIndex(dir)
	if err != nil {
		return err
	}
	named := layout.WithAnnotations(map[string]string{image.RefNameAnnotation: as})
	fill := func(staged string) error {
		path, err := layout.Write(staged, empty.Index)
		if err == nil {
			err = add(path, named)
		}
		if err != nil {
			return fmt.Errorf("writing the OCI layout %s: %w", dir, err)
		}
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, layoutIndexFile)); errors.Is(err, fs.ErrNotExist) {
		return appear(dir, fill)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	staged, err := stage(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staged)) }()
	if err := fill(staged); err != nil {
		return err
	}
	if err := moveBlobs(staged, dir); err != nil {
		return fmt.Errorf("writing the OCI layout %s: %w", dir, err)
	}
	added, err := layoutIndex(staged)
	if err != nil {
		return err
	}
	present.Manifests = slices.DeleteFunc(present.Manifests, func(m v1.Descriptor) bool { return m.Annotations[image.RefNameAnnotation] == as })
	present.Manifests = append(present.Manifests, added.Manifests...)
	return replaceFile(filepath.Join(dir, layoutIndexFile), func(w io.Writer) error { return json.NewEncoder(w).Encode(present) })
}

func moveBlobs(from, to string) error {
	if err := syncTree(from); err != nil {
		return err
	}
	blobs := filepath.Join("blobs", "sha256")
	entries, err := os.ReadDir(filepath.Join(from, blobs))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(to, blobs), 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(from, blobs, e.Name()), filepath.Join(to, blobs, e.Name())); err != nil {
			return err
		}
	}
	return syncPath(filepath.Join(to, blobs))
}

// syncTree brings files and folders to the disk.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncPath(path)
	})
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
