package assemble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cluster-version/cvo/internal/atomicfile"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/layer"
	"github.com/cluster-version/cvo/pkg/author/assemble/publish"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// Push writes the release to a registry under a tag. It returns the pullspec and digest of the release.
func (r *Result) Push(ctx context.Context, access *registry.Access, pullspec string) (release.Image, error) {
	if r.Index == nil {
		return publish.Push(ctx, access, r.Image, pullspec)
	}
	return publish.PushIndex(ctx, access, r.Index, pullspec)
}

// WriteLayout adds the release to an OCI image layout, named by its version. It fails if the layout has another release with the same
// version.
func (r *Result) WriteLayout(dir string) error {
	if r.Index != nil {
		return publish.IndexToLayout(r.Index, dir, r.Version)
	}
	return publish.ToLayout(r.Image, dir, r.Version)
}

// WriteFolder writes manifests/ and release-manifests/ to a folder, which must be new or empty. If it fails, it leaves no files.
func (r *Result) WriteFolder(dir string) error {
	operator := r.operator
	if r.base != nil && operator == nil {
		var err error
		if operator, err = layer.Files(r.base, payload.OperatorDir); err != nil {
			return fmt.Errorf("reading the base image: %w", err)
		}
	}
	return atomicfile.Appear(dir, func(staged string) error {
		if err := writeFolders(staged, map[string][]input.File{payload.OperatorDir: operator, payload.ReleaseDir: r.releaseFiles()}); err != nil {
			return err
		}
		return filepath.WalkDir(staged, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Chtimes(path, r.Created, r.Created))
		})
	})
}

// WriteLayer writes the release's layer as a compressed tar archive.
func (r *Result) WriteLayer(w io.Writer) (err error) {
	content, err := r.Layer.Compressed()
	if err != nil {
		return fmt.Errorf("writing the release's layer: %w", err)
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	if _, err := io.Copy(w, content); err != nil {
		return fmt.Errorf("writing the release's layer: %w", err)
	}
	return nil
}

func writeFolders(dir string, folders map[string][]input.File) error {
	for _, folder := range []string{payload.OperatorDir, payload.ReleaseDir} {
		sub := filepath.Join(dir, folder)
		if _, err := os.Lstat(sub); err == nil {
			return fmt.Errorf("%s already exists: choose an empty or new folder", sub)
		}
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return fmt.Errorf("writing the release: %w", err)
		}
		for _, file := range folders[folder] {
			if err := os.WriteFile(filepath.Join(sub, file.Name), file.Data, 0o644); err != nil {
				return fmt.Errorf("writing the release: %w", err)
			}
		}
	}
	return nil
}
