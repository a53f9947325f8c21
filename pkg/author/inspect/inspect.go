// Package inspect reads releases without changing them. Describe describes a release and its component images. The package reads images
// through package image. Callers verify signatures and print the results.
package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cluster-version/cvo/internal/folder"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/image/layer"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// ErrNoRelease means that an image or a folder does not contain a release.
var ErrNoRelease = errors.New("not a release")

// Release is a release to inspect. It reads parts of an image on demand. It is for a single operation and not safe for concurrent use.
type Release struct {
	// Image is the resolved image. For a folder, only Pullspec is set: to the folder's name.
	Image release.Image

	images *image.Reader // nil for a folder
	files  fs.FS         // nil for an image that has not been completely read yet
}

// Open returns a release image from a registry or a local OCI layout. All content is verified against the image's digest. Signatures are
// not verified.
func Open(images *image.Reader, img release.Image) *Release {
	return &Release{Image: img, images: images}
}

// OpenFS returns a release from a file system with the same structure as the root of a release image. name appears in messages.
func OpenFS(name string, root fs.FS) *Release {
	return &Release{Image: release.Image{Pullspec: name}, files: root}
}

// OpenFolder returns a release from a folder. The folder contains either release-manifests/ and optionally manifests/, or, like an
// extracted release, only the files of release-manifests/.
func OpenFolder(dir string) (*Release, error) {
	files, err := folder.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("reading folder %s: %w", dir, err)
	}
	switch info, err := fs.Stat(files, payload.ReleaseDir); {
	case err == nil && info.IsDir():
		return OpenFS(dir, files), nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("reading folder %s: %w", dir, err)
	}
	switch _, err := fs.Stat(files, path.Base(payload.MetadataFile)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("reading folder %s: %w: it contains neither %s/ nor %s: %w",
			dir, ErrNoRelease, payload.ReleaseDir, path.Base(payload.MetadataFile), fs.ErrNotExist)
	case err != nil:
		return nil, fmt.Errorf("reading folder %s: %w", dir, err)
	}
	return OpenFS(dir, flatFolder{files}), nil
}

// Flat reports whether the release is a folder with only the files of release-manifests/.
func (r *Release) Flat() bool {
	_, flat := r.files.(flatFolder)
	return flat
}

// Files returns the root of the release, with manifests/ and release-manifests/ if they exist. It holds the files of an image in memory.
func (r *Release) Files(ctx context.Context) (fs.FS, error) {
	if r.files != nil {
		return r.files, nil
	}
	files, err := r.images.Manifests(ctx, r.Image)
	if err != nil {
		return nil, err
	}
	if _, err := fs.Stat(files, payload.ReleaseDir); err != nil {
		return nil, r.noRelease()
	}
	r.files = files
	return files, nil
}

func (r *Release) noRelease() error {
	return fmt.Errorf("reading %s: %w: the image has no folder %s", r.Image.Pullspec, ErrNoRelease, payload.ReleaseDir)
}

// File returns the content of a file. name either includes the folder or is a base name. Files in release-manifests/ take precedence over
// files in manifests/.
func (r *Release) File(ctx context.Context, name string) ([]byte, error) {
	candidates := []string{path.Join(payload.ReleaseDir, name), path.Join(payload.OperatorDir, name)}
	if strings.Contains(name, "/") {
		candidates = []string{strings.TrimPrefix(path.Clean("/"+name), "/")}
	}
	// The files are read sequentially. The first is in the topmost layer, and the layer below may contain the large binary.
	for _, candidate := range candidates {
		found, err := r.read(ctx, candidate)
		if err != nil {
			return nil, err
		}
		if data, ok := found[candidate]; ok {
			return data, nil
		}
	}
	return nil, fmt.Errorf("image did not contain %s: %w", name, fs.ErrNotExist)
}

// read returns the named files. It omits files that do not exist.
func (r *Release) read(ctx context.Context, names ...string) (map[string][]byte, error) {
	if r.files == nil {
		return r.images.ReadFiles(ctx, r.Image, names...)
	}
	found := map[string][]byte{}
	for _, name := range names {
		switch data, err := fs.ReadFile(r.files, name); {
		case err == nil:
			found[name] = data
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid):
			return nil, fmt.Errorf("reading %s: %w", r.Image.Pullspec, err)
		}
	}
	return found, nil
}

// Walk visits all files in arbitrary order. Content is valid until visit returns. After an error, the caller must discard the visited
// files. The error is ErrNoRelease if there is no file in release-manifests/.
func (r *Release) Walk(ctx context.Context, visit func(layer.File) error) error {
	found := false
	err := r.walk(ctx, func(f layer.File) error {
		found = found || path.Dir(f.Name) == payload.ReleaseDir
		return visit(f)
	})
	if err == nil && !found {
		err = r.noRelease()
	}
	return err
}

func (r *Release) walk(ctx context.Context, visit func(layer.File) error) error {
	if r.files == nil {
		return r.images.Walk(ctx, r.Image, visit)
	}
	for _, folder := range []string{payload.ReleaseDir, payload.OperatorDir} {
		entries, err := fs.ReadDir(r.files, folder)
		if errors.Is(err, fs.ErrNotExist) && folder == payload.OperatorDir {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", r.Image.Pullspec, err)
		}
		for _, e := range entries {
			if err := r.visitFile(path.Join(folder, e.Name()), visit); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Release) visitFile(name string, visit func(layer.File) error) error {
	f, err := r.files.Open(name)
	if err != nil {
		return fmt.Errorf("reading %s: %w", r.Image.Pullspec, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("reading %s: %w", r.Image.Pullspec, err)
	}
	if info.IsDir() {
		return nil
	}
	return visit(layer.File{Name: name, Size: info.Size(), ModTime: info.ModTime(), Content: f})
}

// head is the start of a release: the two metadata files, and the names of the files in the layers read so far.
type head struct {
	files memory
	names []string
}

// head reads layers until it has the metadata, which normally is in the topmost layer. The names are from the layers that it read.
func (r *Release) head(ctx context.Context) (*head, error) {
	h := &head{files: memory{}}
	visit := func(f layer.File) error {
		dir, base := path.Split(f.Name)
		if dir != payload.ReleaseDir+"/" {
			return nil
		}
		h.names = append(h.names, base)
		if f.Name != payload.MetadataFile && f.Name != payload.ReferencesFile {
			return nil
		}
		data, err := io.ReadAll(f.Content)
		h.files[f.Name] = data
		return err
	}
	err := error(nil)
	if r.files != nil {
		err = r.walk(ctx, visit)
	} else {
		err = r.images.WalkUntil(ctx, r.Image, visit, func() bool { return len(h.files) == 2 })
	}
	if err == nil && len(h.names) == 0 {
		err = r.noRelease()
	}
	slices.Sort(h.names)
	return h, err
}

// Names returns the names of the files in release-manifests/.
func (r *Release) Names(ctx context.Context) ([]string, error) {
	h, err := r.head(ctx)
	if err != nil {
		return nil, err
	}
	return h.names, nil
}

// memory is a file system without folders. It maps full names to content.
type memory map[string][]byte

// Open implements fs.FS.
func (m memory) Open(name string) (fs.File, error) {
	data, ok := m[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memoryFile{Reader: bytes.NewReader(data), name: path.Base(name)}, nil
}

type memoryFile struct {
	*bytes.Reader
	name string
}

func (f *memoryFile) Stat() (fs.FileInfo, error) {
	return memoryInfo{name: f.name, size: f.Size()}, nil
}
func (f *memoryFile) Close() error { return nil }

type memoryInfo struct {
	name string
	size int64
}

func (i memoryInfo) Name() string       { return i.name }
func (i memoryInfo) Size() int64        { return i.size }
func (i memoryInfo) Mode() fs.FileMode  { return 0o444 }
func (i memoryInfo) ModTime() time.Time { return time.Time{} }
func (i memoryInfo) IsDir() bool        { return false }
func (i memoryInfo) Sys() any           { return nil }

// flatFolder is a file system with a folder at release-manifests/.
type flatFolder struct{ inner fs.FS }

// Open implements fs.FS.
func (f flatFolder) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if name == payload.ReleaseDir {
		return f.inner.Open(".")
	}
	inner, ok := strings.CutPrefix(name, payload.ReleaseDir+"/")
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f.inner.Open(inner)
}
