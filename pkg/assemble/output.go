package assemble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// remoteOptions are those of one operation.
func remoteOptions(ctx context.Context, access *registry.Access) []remote.Option {
	return append(access.Remote(), remote.WithContext(ctx))
}

// digestReference is an image's reference by digest.
func digestReference(access *registry.Access, img release.Image) (name.Digest, error) {
	ref, err := access.Reference(img.ByDigest())
	if err != nil {
		return name.Digest{}, err
	}
	byDigest, ok := ref.(name.Digest)
	if !ok {
		return name.Digest{}, fmt.Errorf("image %q: not a reference by digest", img.ByDigest())
	}
	return byDigest, nil
}

// Push writes an image to a registry under a tag and returns what it can be pulled as.
func Push(ctx context.Context, access *registry.Access, img v1.Image, pullspec string) (release.Image, error) {
	ref, err := access.Reference(pullspec)
	if err != nil {
		return release.Image{}, err
	}
	tag, ok := ref.(name.Tag)
	if !ok {
		return release.Image{}, fmt.Errorf("pushing to %s: images are pushed to a tag, which decides nothing about their digest", pullspec)
	}
	if err := remote.Write(tag, img, remoteOptions(ctx, access)...); err != nil {
		return release.Image{}, fmt.Errorf("pushing to %s: %w", pullspec, err)
	}
	digest, err := img.Digest()
	if err != nil {
		return release.Image{}, fmt.Errorf("computing the digest of %s: %w", pullspec, err)
	}
	return release.Image{Pullspec: pullspec, Digest: release.Digest(digest.String())}, nil
}

// WriteLayout adds an image to an OCI image layout, which is made if there is none, under a name; an image that has
// this name already is replaced.
func WriteLayout(img v1.Image, dir, as string) error {
	path, err := layout.FromPath(dir)
	if errors.Is(err, os.ErrNotExist) {
		path, err = layout.Write(dir, empty.Index)
	}
	if err != nil {
		return fmt.Errorf("opening the OCI layout %s: %w", dir, err)
	}
	named := layout.WithAnnotations(map[string]string{image.RefNameAnnotation: as})
	if err := path.ReplaceImage(img, match.Name(as), named); err != nil {
		return fmt.Errorf("writing the OCI layout %s: %w", dir, err)
	}
	return nil
}

// Push writes the release to a registry under a tag and returns what it can be pulled as.
func (r *Result) Push(ctx context.Context, access *registry.Access, pullspec string) (release.Image, error) {
	return Push(ctx, access, r.Image, pullspec)
}

// WriteLayout adds the release to an OCI image layout, under its version as name.
func (r *Result) WriteLayout(dir string) error { return WriteLayout(r.Image, dir, r.Version) }

// WriteFolder writes the two folders of the release, manifests/ and release-manifests/, into a folder that has neither.
func (r *Result) WriteFolder(dir string) error {
	operator := r.operator
	if r.base != nil {
		files, err := imageFiles(r.base, operatorFolder)
		if err != nil {
			return fmt.Errorf("reading the base image: %w", err)
		}
		operator = files[operatorFolder]
	}
	return writeFolders(dir, map[string][]File{operatorFolder: operator, releaseFolder: r.releaseFiles()})
}

func writeFolders(dir string, folders map[string][]File) error {
	for _, folder := range []string{operatorFolder, releaseFolder} {
		sub := filepath.Join(dir, folder)
		if _, err := os.Lstat(sub); err == nil {
			return fmt.Errorf("%s is there already: name an empty or new folder", sub)
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
