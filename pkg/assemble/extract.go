package assemble

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/release"
)

// Extracted are the files of a release image, as they are in it.
type Extracted struct {
	// Image is where they come from.
	Image release.Image
	// Created is when the release says it was made; zero if it does not say.
	Created time.Time

	folders map[string][]File
}

// Extract reads the two folders of a release from a registry, by tag or digest, or from an OCI layout on this machine
// (DIR, DIR:VERSION or DIR@DIGEST). Digests are checked, signatures are not.
func Extract(ctx context.Context, images *image.Reader, ref string) (*Extracted, error) {
	e, err := extract(ctx, images, ref)
	if err != nil {
		return nil, fmt.Errorf("extracting %s: %w", ref, err)
	}
	if len(e.folders[releaseFolder]) == 0 {
		return nil, fmt.Errorf("extracting %s: the image has no folder %s, so it is no release", ref, releaseFolder)
	}
	// An image that does not say when it was made can be looked at all the same.
	if data, err := e.File(referencesFile); err == nil {
		if stream, err := parseStream(data); err == nil && !stream.CreationTimestamp.IsZero() {
			e.Created = stream.CreationTimestamp.UTC()
		}
	}
	return e, nil
}

func extract(ctx context.Context, images *image.Reader, ref string) (*Extracted, error) {
	resolved, err := images.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	fsys, err := images.Manifests(ctx, resolved)
	if err != nil {
		return nil, err
	}
	e := &Extracted{Image: resolved, folders: map[string][]File{}}
	for _, folder := range []string{operatorFolder, releaseFolder} {
		sub, err := fs.Sub(fsys, folder)
		if err != nil {
			return nil, err
		}
		if e.folders[folder], err = ReadFiles(sub); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return e, nil
}

// File returns one file, by its name or, where both folders have it, with its folder.
func (e *Extracted) File(name string) ([]byte, error) {
	folders := []string{releaseFolder, operatorFolder}
	if dir := path.Dir(name); dir != "." {
		folders = []string{strings.TrimPrefix(dir, "/")}
	}
	for _, folder := range folders {
		for _, f := range e.folders[folder] {
			if f.Name == path.Base(name) {
				return f.Data, nil
			}
		}
	}
	return nil, fmt.Errorf("image did not contain %s: %w", name, fs.ErrNotExist)
}

// WriteFolder writes manifests/ and release-manifests/ into a folder that has neither.
func (e *Extracted) WriteFolder(dir string) error { return writeFolders(dir, e.folders) }
