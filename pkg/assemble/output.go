package assemble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
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

// Push writes an image to a registry under a tag and returns what it can be pulled as. The tag is written last.
func Push(ctx context.Context, access *registry.Access, img v1.Image, pullspec string) (release.Image, error) {
	return push(access, img, pullspec, func(tag name.Tag) error { return remote.Write(tag, img, remoteOptions(ctx, access)...) })
}

// PushIndex is Push for an index and its images.
func PushIndex(ctx context.Context, access *registry.Access, index v1.ImageIndex, pullspec string) (release.Image, error) {
	return push(access, index, pullspec, func(tag name.Tag) error { return remote.WriteIndex(tag, index, remoteOptions(ctx, access)...) })
}

// Push writes the release to a registry under a tag and returns what it can be pulled as.
func (r *Result) Push(ctx context.Context, access *registry.Access, pullspec string) (release.Image, error) {
	if r.Index == nil {
		return Push(ctx, access, r.Image, pullspec)
	}
	return PushIndex(ctx, access, r.Index, pullspec)
}

func push(access *registry.Access, what interface{ Digest() (v1.Hash, error) }, pullspec string, write func(name.Tag) error) (release.Image, error) {
	ref, err := access.Reference(pullspec)
	if err != nil {
		return release.Image{}, err
	}
	tag, ok := ref.(name.Tag)
	if !ok {
		return release.Image{}, fmt.Errorf("pushing to %s: images are pushed to a tag, which decides nothing about their digest", pullspec)
	}
	if err := write(tag); err != nil {
		return release.Image{}, fmt.Errorf("pushing to %s: %w", pullspec, err)
	}
	digest, err := what.Digest()
	if err != nil {
		return release.Image{}, fmt.Errorf("computing the digest of %s: %w", pullspec, err)
	}
	return release.Image{Pullspec: pullspec, Digest: release.Digest(digest.String())}, nil
}

// WriteLayout adds an image to an OCI image layout, which is made if there is none, under a name; an image that has
// this name already is replaced.
func WriteLayout(img v1.Image, dir, as string) error {
	return writeLayout(dir, as, func(p layout.Path, o layout.Option) error { return p.AppendImage(img, o) })
}

// WriteIndexLayout is WriteLayout for an index and its images.
func WriteIndexLayout(index v1.ImageIndex, dir, as string) error {
	return writeLayout(dir, as, func(p layout.Path, o layout.Option) error { return p.AppendIndex(index, o) })
}

// WriteLayout adds the release to an OCI image layout, under its version as name. Another release of that name is
// not replaced.
func (r *Result) WriteLayout(dir string) error {
	present, err := layoutIndex(dir)
	if err != nil {
		return err
	}
	for _, m := range present.Manifests {
		if m.Annotations[image.RefNameAnnotation] == r.Version && m.Digest.String() != string(r.Digest) {
			return fmt.Errorf("the OCI layout %s has another release %s (%s): write to a new layout, or remove that one", dir, r.Version, m.Digest)
		}
	}
	if r.Index != nil {
		return WriteIndexLayout(r.Index, dir, r.Version)
	}
	return WriteLayout(r.Image, dir, r.Version)
}

// WriteFolder writes the two folders of the release, manifests/ and release-manifests/, as a folder that is new or
// empty. It appears with all that is in it or not at all.
func (r *Result) WriteFolder(dir string) error {
	operator := r.operator
	if r.base != nil {
		files, err := imageFiles(r.base, operatorFolder)
		if err != nil {
			return fmt.Errorf("reading the base image: %w", err)
		}
		operator = files[operatorFolder]
	}
	return appear(dir, func(staged string) error {
		if err := writeFolders(staged, map[string][]File{operatorFolder: operator, releaseFolder: r.releaseFiles()}); err != nil {
			return err
		}
		return filepath.WalkDir(staged, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Chtimes(path, r.Created, r.Created))
		})
	})
}

// WriteLayer writes the layer that makes the base image a release, a compressed tar archive.
func (r *Result) WriteLayer(w io.Writer) (err error) {
	content, err := r.layer.Compressed()
	if err != nil {
		return fmt.Errorf("writing the release's layer: %w", err)
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	if _, err := io.Copy(w, content); err != nil {
		return fmt.Errorf("writing the release's layer: %w", err)
	}
	return nil
}

// UnsignedClaim is the message about an image that signers of container images sign.
func UnsignedClaim(img release.Image, at time.Time) ([]byte, error) {
	return claimFor(claimAtomic, img, "", at)
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
