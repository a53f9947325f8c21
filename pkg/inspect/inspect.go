// Package inspect looks into releases and changes none: what a release says of itself and of its component images
// (Describe), which files it brings and how they come out of it (Extract), and what is different in another one
// (Compare). It reads through package image; whether anybody signed a release, what a cluster is like and how a result
// is printed are for its callers.
package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// ErrNoRelease is what an image or a folder without a release is, in the sense of errors.Is.
var ErrNoRelease = errors.New("it is no release")

// Release is a release to look into. Nothing of an image is read before it is asked for, and no more than that. It
// serves one operation, and one goroutine at a time.
type Release struct {
	// Image is where it is, resolved; a folder has a Pullspec only, its name.
	Image release.Image

	images *image.Reader // nil for a folder
	files  fs.FS         // nil for an image that was not read as a whole yet
}

// Open looks into a release image, or one in an OCI layout on this machine. Its digest is checked with everything that
// is read of it; its signatures are not.
func Open(images *image.Reader, img release.Image) *Release {
	return &Release{Image: img, images: images}
}

// OpenFS looks into what is laid out like the root of a release image; the name is for messages.
func OpenFS(name string, root fs.FS) *Release {
	return &Release{Image: release.Image{Pullspec: name}, files: root}
}

// OpenFolder looks into a folder that holds release-manifests/, and manifests/ beside it; or only what is in
// release-manifests/, as extracting a release leaves it.
func OpenFolder(dir string) (*Release, error) {
	r := OpenFS(dir, os.DirFS(dir))
	if info, err := os.Stat(filepath.Join(dir, payload.ReleaseDir)); err == nil && info.IsDir() {
		return r, nil
	}
	if _, err := os.Stat(filepath.Join(dir, path.Base(payload.MetadataFile))); err != nil {
		return nil, fmt.Errorf("looking into folder %s: %w: neither %s/ nor %s is in it: %w",
			dir, ErrNoRelease, payload.ReleaseDir, path.Base(payload.MetadataFile), fs.ErrNotExist)
	}
	r.files = flatFolder{r.files}
	return r, nil
}

// Flat reports whether there is nothing but what is in release-manifests/, in a folder.
func (r *Release) Flat() bool {
	_, flat := r.files.(flatFolder)
	return flat
}

// Files is the root of the release, or what there is of it: manifests/ and release-manifests/, held in memory if it comes
// out of an image.
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
	return fmt.Errorf("looking into %s: %w: the image has no folder %s", r.Image.Pullspec, ErrNoRelease, payload.ReleaseDir)
}

// File returns one file as it is in the release: by its name alone from release-manifests/, then manifests/, or by its
// folder and name.
func (r *Release) File(ctx context.Context, name string) ([]byte, error) {
	candidates := []string{path.Join(payload.ReleaseDir, name), path.Join(payload.OperatorDir, name)}
	if strings.Contains(name, "/") {
		candidates = []string{strings.TrimPrefix(path.Clean("/"+name), "/")}
	}
	// One at a time: the first is in the topmost layer, and the one below may be the binary.
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

// read returns those of the named files that are there.
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
			return nil, fmt.Errorf("looking into %s: %w", r.Image.Pullspec, err)
		}
	}
	return found, nil
}

// walk gives all files, one at a time, in no useful order. Content serves until visit returns. After an error what
// visit was given does not count.
func (r *Release) walk(ctx context.Context, visit func(image.File) error) error {
	if r.files == nil {
		return r.images.Walk(ctx, r.Image, visit)
	}
	for _, folder := range []string{payload.ReleaseDir, payload.OperatorDir} {
		entries, err := fs.ReadDir(r.files, folder)
		if errors.Is(err, fs.ErrNotExist) && folder == payload.OperatorDir {
			continue
		}
		if err != nil {
			return fmt.Errorf("looking into %s: %w", r.Image.Pullspec, err)
		}
		for _, e := range entries {
			if err := r.visitFile(path.Join(folder, e.Name()), visit); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Release) visitFile(name string, visit func(image.File) error) error {
	f, err := r.files.Open(name)
	if err != nil {
		return fmt.Errorf("looking into %s: %w", r.Image.Pullspec, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("looking into %s: %w", r.Image.Pullspec, err)
	}
	if info.IsDir() {
		return nil
	}
	return visit(image.File{Name: name, Size: info.Size(), Mode: info.Mode(), ModTime: info.ModTime(), Content: f})
}

// head is what a release begins with: its two metadata files, and the names of the manifests and others around them.
type head struct {
	files memory
	names []string
}

// head reads no more layers of an image than it takes to find the metadata. That is one, the topmost, in all that are
// built as releases are; the names are those of what is in these layers.
func (r *Release) head(ctx context.Context) (*head, error) {
	h := &head{files: memory{}}
	visit := func(f image.File) error {
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

// Names are those of the files in release-manifests/.
func (r *Release) Names(ctx context.Context) ([]string, error) {
	h, err := r.head(ctx)
	if err != nil {
		return nil, err
	}
	return h.names, nil
}

// memory is a file system of some files, by their full names; it has no folders.
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

// flatFolder shows a folder as the release-manifests/ of a root.
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
