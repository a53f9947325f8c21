package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/cluster-version/cvo/internal/atomicfile"
)

// Add adds an image or index to a layout, and replaces an image with the same name. It stages the content in a folder next to the layout.
// Then it moves the files, each complete under its digest, and finally updates the list of images.
func Add(dir, as string, add func(layout.Path, layout.Option) error) (err error) {
	if _, err := ReadIndex(dir); err != nil {
		return err
	}
	named := layout.WithAnnotations(map[string]string{NameAnnotation: as})
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
	if _, err := os.Stat(filepath.Join(dir, IndexFile)); errors.Is(err, fs.ErrNotExist) {
		return atomicfile.Appear(dir, fill)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	staged, err := atomicfile.NewFolder(filepath.Dir(dir), filepath.Base(dir))
	if err != nil {
		return fmt.Errorf("writing the OCI layout %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, staged.Release()) }()
	if err := fill(staged.Path); err != nil {
		return err
	}
	if err := moveBlobs(staged.Path, dir); err != nil {
		return fmt.Errorf("writing the OCI layout %s: %w", dir, err)
	}
	added, err := ReadIndex(staged.Path)
	if err != nil {
		return err
	}
	if err := list(dir, as, added.Manifests); err != nil {
		return fmt.Errorf("writing the OCI layout %s: %w", dir, err)
	}
	return nil
}

// list adds images to a layout's list under a lock, so that concurrent additions by other processes are kept.
func list(dir, as string, added []v1.Descriptor) (err error) {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	if err := atomicfile.Lock(folder); err != nil {
		return err
	}
	index, err := ReadIndex(dir)
	if err != nil {
		return err
	}
	index.Manifests = append(withoutName(index.Manifests, as), added...)
	return WriteIndex(dir, 0o644, *index)
}

func moveBlobs(from, to string) error {
	if err := atomicfile.SyncTree(from); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(from, BlobsDir))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(to, BlobsDir), 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(from, BlobsDir, e.Name()), filepath.Join(to, BlobsDir, e.Name())); err != nil {
			return err
		}
	}
	return atomicfile.Sync(filepath.Join(to, BlobsDir))
}
