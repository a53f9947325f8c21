package assemble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/cluster-version/cvo/pkg/release"
)

// refNameAnnotation names an image within an OCI layout (OCI image specification, pre-defined annotation keys).
const refNameAnnotation = "org.opencontainers.image.ref.name"

// Push writes the release to a registry under a tag and returns what it can be pulled as.
func (r *Result) Push(ctx context.Context, registry Registry, pullspec string) (release.Image, error) {
	tag, err := name.NewTag(pullspec, registry.Name...)
	if err != nil {
		return release.Image{}, fmt.Errorf("release images are pushed to a tag: %w", err)
	}
	if err := remote.Write(tag, r.Image, registry.options(ctx)...); err != nil {
		return release.Image{}, fmt.Errorf("pushing to %s: %w", pullspec, err)
	}
	return release.Image{Pullspec: pullspec, Digest: r.Digest}, nil
}

// WriteLayout adds the release to an OCI image layout, which is made if there is none, under its version as name; an
// image that has this name already is replaced.
func (r *Result) WriteLayout(dir string) error {
	path, err := layout.FromPath(dir)
	if errors.Is(err, os.ErrNotExist) {
		path, err = layout.Write(dir, empty.Index)
	}
	if err != nil {
		return fmt.Errorf("opening the OCI layout %s: %w", dir, err)
	}
	named := layout.WithAnnotations(map[string]string{refNameAnnotation: r.Version})
	if err := path.ReplaceImage(r.Image, match.Name(r.Version), named); err != nil {
		return fmt.Errorf("writing the OCI layout %s: %w", dir, err)
	}
	return nil
}

// WriteFolder writes the two folders of the release, manifests/ and release-manifests/, into a folder that has neither.
func (r *Result) WriteFolder(dir string) error {
	operator := r.operator
	if r.base != nil {
		var err error
		if operator, err = imageManifests(r.base); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name  string
		files []File
	}{{operatorFolder, operator}, {releaseFolder, r.releaseFiles()}} {
		sub := filepath.Join(dir, f.name)
		if _, err := os.Lstat(sub); err == nil {
			return fmt.Errorf("%s is there already: name an empty or new folder", sub)
		}
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return fmt.Errorf("writing the release: %w", err)
		}
		for _, file := range f.files {
			if err := os.WriteFile(filepath.Join(sub, file.Name), file.Data, 0o644); err != nil {
				return fmt.Errorf("writing the release: %w", err)
			}
		}
	}
	return nil
}
