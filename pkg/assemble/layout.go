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

	"github.com/cluster-version/cvo/pkg/atomicfile"
	"github.com/cluster-version/cvo/pkg/image"
)

const layoutIndexFile = "index.json"

// appear lets fill write a folder that must be new or empty. It appears as a whole.
func appear(dir string, fill func(staged string) error) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("writing %s: %w: name an empty or new folder", dir, err)
	case len(entries) > 0:
		return fmt.Errorf("%s is there already and not empty: name an empty or new folder", dir)
	}
	staged, err := atomicfile.NewFolder(filepath.Dir(dir), filepath.Base(dir))
	if err != nil {
		return fmt.Errorf("writing %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, staged.Release()) }()
	if err := fill(staged.Path); err != nil {
		return err
	}
	if err := staged.Rename(dir); err != nil {
		return fmt.Errorf("writing %s: %w", dir, err)
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
	if _, err := layoutIndex(dir); err != nil {
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
	added, err := layoutIndex(staged.Path)
	if err != nil {
		return err
	}
	if err := list(dir, as, added.Manifests); err != nil {
		return fmt.Errorf("writing the OCI layout %s: %w", dir, err)
	}
	return nil
}

// list names images in a layout, one process after the other: what somebody else has added since is kept.
func list(dir, as string, added []v1.Descriptor) (err error) {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	if err := atomicfile.Lock(folder); err != nil {
		return err
	}
	index, err := layoutIndex(dir)
	if err != nil {
		return err
	}
	index.Manifests = slices.DeleteFunc(index.Manifests, func(m v1.Descriptor) bool { return m.Annotations[image.RefNameAnnotation] == as })
	index.Manifests = append(index.Manifests, added...)
	return atomicfile.Write(filepath.Join(dir, layoutIndexFile), 0o644, func(w io.Writer) error { return json.NewEncoder(w).Encode(index) })
}

func moveBlobs(from, to string) error {
	if err := atomicfile.SyncTree(from); err != nil {
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
	return atomicfile.Sync(filepath.Join(to, blobs))
}
