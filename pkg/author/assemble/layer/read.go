package layer

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/oci/image/layer"
	"github.com/cluster-version/cvo/pkg/payload"
)

// maxImageFiles is the maximum number of files that Files reads.
const maxImageFiles = 10_000

// Files returns the regular files at the top of a folder in an image, with all layers applied.
func Files(img v1.Image, folder string) (files []input.File, err error) {
	err = layer.WalkImage(img, func(f layer.File) error {
		if path.Dir(f.Name) != folder {
			return nil
		}
		if len(files) == maxImageFiles {
			return fmt.Errorf("the image has more than %d files in %s", maxImageFiles, folder)
		}
		data, err := io.ReadAll(f.Content)
		if err != nil {
			return fmt.Errorf("reading %s: %w", f.Name, err)
		}
		files = append(files, input.File{Name: path.Base(f.Name), Data: data, ModTime: f.ModTime})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the layers: %w", err)
	}
	input.SortFiles(files)
	return files, nil
}

// FS returns an in-memory file system with the two folders of a release. It is backed by a zip archive.
func FS(folders map[string][]input.File) (fs.FS, error) {
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, folder := range []string{payload.OperatorDir, payload.ReleaseDir} {
		if _, err := w.CreateHeader(&zip.FileHeader{Name: folder + "/"}); err != nil {
			return nil, err
		}
		for _, f := range folders[folder] {
			entry, err := w.CreateHeader(&zip.FileHeader{Name: folder + "/" + f.Name, Method: zip.Store})
			if err != nil {
				return nil, err
			}
			if _, err := entry.Write(f.Data); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
}
