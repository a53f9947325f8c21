package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"github.com/cluster-version/cvo/pkg/oci/failure"
)

// The manifest folders. Other files in an image are ignored.
const (
	operatorDir = "manifests"
	releaseDir  = "release-manifests"
)

// File names with which a layer removes files in lower layers (OCI image specification, layer.md).
const (
	whiteoutPrefix = ".wh."
	opaqueWhiteout = ".wh..wh..opq"
)

// ratioFloor is the unpacked size in bytes above which the limit for the compression ratio applies. Small files compress well.
const ratioFloor = 64 << 20

// Limits for file names, the same as in common file systems.
const (
	maxPath = 4096
	maxName = 255
)

// File is a regular file in one of the two manifest folders.
type File struct {
	// Name includes the folder, such as "release-manifests/image-references".
	Name    string
	Size    int64
	ModTime time.Time
	// Content is valid until the function that received the file returns.
	Content io.Reader
}

// Walker reads the layers of an image from the top down. It visits each file unless a higher layer replaces or removes it.
type Walker struct {
	limits Limits
	visit  func(File) error
	// hidden holds the files that upper layers replace or remove, and the folders that they empty. done is set if lower layers no longer
	// matter.
	hidden map[string]bool
	done   bool
	// Totals of all layers so far.
	unpacked, bytes int64
	entries, files  int
}

// NewWalker returns a Walker for an image. visit may end the walk with fs.SkipAll.
func NewWalker(limits Limits, visit func(File) error) *Walker {
	return &Walker{limits: limits, visit: visit, hidden: map[string]bool{}}
}

// Done reports whether lower layers no longer matter.
func (w *Walker) Done() bool { return w.done }

// changes are the changes that a layer makes to the folders. They are collected and applied after the layer has been read, because a
// whiteout affects only lower layers, wherever it is in its own layer.
type changes struct {
	added  map[string]bool
	hidden map[string]bool
	opaque bool // an opaque whiteout at the root, which removes all files of lower layers
}

// Layer reads a layer, compressed or not. size is its transferred size in bytes.
func (w *Walker) Layer(compressed io.Reader, size int64) error {
	plain, closePlain, err := decompress(compressed)
	if err != nil {
		return err
	}
	defer closePlain()
	return w.plain(&boundedReader{inner: plain, walker: w, compressed: func() int64 { return size }})
}

// plain reads a decompressed layer.
func (w *Walker) plain(plain *boundedReader) error {
	c := changes{added: map[string]bool{}, hidden: map[string]bool{}}
	reader := tar.NewReader(plain)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			w.apply(&c)
			return nil
		}
		if err != nil {
			return broken("tar", err)
		}
		if err := w.entry(&c, header, reader); err != nil {
			return err
		}
	}
}

// broken wraps an error from unreadable content in failure.ErrIntegrity, or in failure.ErrLimit if a limit is the cause.
func broken(what string, err error) error {
	switch {
	case errors.Is(err, failure.ErrLimit):
		return err
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("%w: a zstd layer needs more than %d bytes of memory: compress it with level 19 or lower: %w", failure.ErrLimit, maxWindow, err)
	}
	return fmt.Errorf("%w: reading %s: %w", failure.ErrIntegrity, what, err)
}

func (w *Walker) entry(c *changes, header *tar.Header, content io.Reader) error {
	if w.entries++; w.entries > w.limits.Entries {
		return fmt.Errorf("%w: the image has more than %d files", failure.ErrLimit, w.limits.Entries)
	}
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	parts, err := split(header.Name)
	if err != nil || len(parts) == 0 {
		return err
	}
	switch base := parts[0]; {
	case base == opaqueWhiteout && len(parts) == 1:
		c.opaque = true
		return nil
	case len(parts) == 1 && (base == whiteoutPrefix+operatorDir || base == whiteoutPrefix+releaseDir):
		c.hidden[strings.TrimPrefix(base, whiteoutPrefix)] = true
		return nil
	case base != operatorDir && base != releaseDir:
		return nil
	}
	if strings.HasPrefix(header.Name, "/") {
		return fmt.Errorf("%w: %q is an absolute path", failure.ErrIntegrity, header.Name)
	}
	if len(parts) == 1 {
		if header.Typeflag != tar.TypeDir {
			return fmt.Errorf("%w: %q is a %s but must be a folder", failure.ErrIntegrity, header.Name, kind(header))
		}
		return nil
	}
	if len(parts[1]) > maxName {
		return fmt.Errorf("%w: %.60q…: a file name of %d bytes, the limit is %d", failure.ErrLimit, parts[1], len(parts[1]), maxName)
	}
	if len(c.added)+len(c.hidden) > w.limits.Files {
		return w.tooMany()
	}
	return w.member(c, header, path.Join(parts[0], parts[1]), len(parts) > 2, content)
}

// member handles an entry inside one of the two folders. file is the affected name directly in the folder.
func (w *Walker) member(c *changes, header *tar.Header, file string, deeper bool, content io.Reader) error {
	base := path.Base(file)
	switch {
	case deeper || header.Typeflag == tar.TypeDir:
		// A folder replaces a file with the same name in a lower layer. Its content is ignored, as in the original implementation.
		c.hidden[file] = true
		return nil
	case base == opaqueWhiteout:
		c.hidden[path.Dir(file)] = true
		return nil
	case strings.HasPrefix(base, whiteoutPrefix):
		c.hidden[path.Join(path.Dir(file), strings.TrimPrefix(base, whiteoutPrefix))] = true
		return nil
	case kind(header) != regular:
		return fmt.Errorf("%w: %q is a %s, but only regular files are allowed there", failure.ErrIntegrity, header.Name, kind(header))
	case header.Size > w.limits.FileBytes:
		return fmt.Errorf("%w: %q has %d bytes, the limit is %d", failure.ErrLimit, header.Name, header.Size, w.limits.FileBytes)
	case c.added[file]:
		return fmt.Errorf("%w: %q occurs twice in a layer, and readers may use either: rebuild the image", failure.ErrIntegrity, header.Name)
	}
	c.added[file] = true
	if w.hidden[file] || w.hidden[path.Dir(file)] {
		return nil
	}
	if w.bytes += header.Size; w.bytes > w.limits.TotalBytes {
		return fmt.Errorf("%w: the manifest folders contain more than %d bytes", failure.ErrLimit, w.limits.TotalBytes)
	}
	if w.files++; w.files > w.limits.Files {
		return w.tooMany()
	}
	return w.visit(File{
		Name: file, Size: header.Size, ModTime: header.ModTime,
		Content: fileReader{inner: content, name: header.Name},
	})
}

func (w *Walker) tooMany() error {
	return fmt.Errorf("%w: the manifest folders contain more than %d files", failure.ErrLimit, w.limits.Files)
}

// apply hides files from lower layers that a completely read layer replaces or removes.
func (w *Walker) apply(c *changes) {
	w.done = w.done || c.opaque
	maps.Copy(w.hidden, c.hidden)
	maps.Copy(w.hidden, c.added)
}

// fileReader reads one file of a layer.
type fileReader struct {
	inner io.Reader
	name  string
}

// Read implements io.Reader.
func (r fileReader) Read(p []byte) (int, error) {
	n, err := r.inner.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = broken(fmt.Sprintf("%q", r.name), err)
	}
	return n, err
}

// split splits a path. It rejects ".." even in entries that are otherwise ignored, because no legitimate layer contains it.
func split(name string) ([]string, error) {
	if len(name) > maxPath {
		return nil, fmt.Errorf("%w: %.60q…: a path of %d bytes, the limit is %d", failure.ErrLimit, name, len(name), maxPath)
	}
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return nil, fmt.Errorf("%w: file name %.200q is not UTF-8 text", failure.ErrIntegrity, name)
	}
	parts := strings.Split(name, "/")
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" || p == "." })
	if slices.Contains(parts, "..") {
		return nil, fmt.Errorf("%w: %.200q leads out of its folder", failure.ErrIntegrity, name)
	}
	return parts, nil
}

const regular = "regular file"

// kind names the type of a tar entry. A sparse file is a separate type, because it needs less space than its declared size.
func kind(header *tar.Header) string {
	for record := range header.PAXRecords {
		if strings.HasPrefix(record, "GNU.sparse.") {
			return "sparse file"
		}
	}
	switch flag := header.Typeflag; flag {
	case tar.TypeReg:
		return regular
	case tar.TypeGNUSparse:
		return "sparse file"
	case tar.TypeLink:
		return "hard link"
	case tar.TypeSymlink:
		return "symbolic link"
	case tar.TypeChar, tar.TypeBlock:
		return "device"
	case tar.TypeFifo:
		return "pipe"
	case tar.TypeDir:
		return "folder"
	default:
		return fmt.Sprintf("tar entry of type %q", flag)
	}
}
