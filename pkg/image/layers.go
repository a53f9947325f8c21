package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// The folders that are read; everything else in an image is passed over.
const (
	operatorDir = "manifests"
	releaseDir  = "release-manifests"
)

// Names by which a layer takes away what lower layers brought (OCI image specification, layer.md).
const (
	whiteoutPrefix = ".wh."
	opaqueWhiteout = ".wh..wh..opq"
)

// ratioFloor is how much a layer may unpack to before its compression ratio counts: small files compress well.
const ratioFloor = 64 << 20

// Bounds of names, as file systems have them.
const (
	maxPath = 4096
	maxName = 255
)

// File is a regular file of one of the two manifest folders, while it is read.
type File struct {
	// Name begins with its folder, such as "release-manifests/image-references".
	Name    string
	Size    int64
	Mode    fs.FileMode
	ModTime time.Time
	// Content serves until the function that was given the file returns.
	Content io.Reader
}

// walker goes through the layers of one image from the topmost down, and gives each file that no layer above replaces
// or takes away.
type walker struct {
	limits Limits
	visit  func(File) error
	// hidden are the files that upper layers replace or take away, and the folders that they empty; done if nothing
	// below counts.
	hidden map[string]bool
	done   bool
	// enough says between layers that the rest is not wanted.
	enough func() bool
	// What was read so far, over all layers.
	unpacked, bytes int64
	entries, files  int
}

func newWalker(limits Limits, visit func(File) error) *walker {
	return &walker{limits: limits, visit: visit, hidden: map[string]bool{}, enough: func() bool { return false }}
}

// changes are what one layer does to the folders. They concern lower layers only, wherever in the layer a whiteout
// stands, so they are collected and applied when the layer has been read.
type changes struct {
	added  map[string]bool
	hidden map[string]bool
	opaque bool // everything goes
}

// layer reads one layer, compressed or not.
func (w *walker) layer(compressed io.Reader, size int64) error {
	plain, closePlain, err := decompress(compressed)
	if err != nil {
		return err
	}
	defer closePlain()
	return w.plain(&boundedReader{inner: plain, walker: w, compressed: func() int64 { return size }})
}

// plain reads a layer that is decompressed.
func (w *walker) plain(plain *boundedReader) error {
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

// broken says that content cannot be read, unless the reason is a limit.
func broken(what string, err error) error {
	switch {
	case errors.Is(err, ErrLimit):
		return err
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("%w: a zstd layer wants more than %d bytes of memory to be read: compress it with level 19 or lower: %w", ErrLimit, maxWindow, err)
	}
	return fmt.Errorf("%w: reading %s: %w", ErrIntegrity, what, err)
}

func (w *walker) entry(c *changes, header *tar.Header, content io.Reader) error {
	if w.entries++; w.entries > w.limits.Entries {
		return fmt.Errorf("%w: the image has more than %d files", ErrLimit, w.limits.Entries)
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
		return fmt.Errorf("%w: %q: absolute path", ErrIntegrity, header.Name)
	}
	if len(parts) == 1 {
		if header.Typeflag != tar.TypeDir {
			return fmt.Errorf("%w: %q is a %s, it must be a folder", ErrIntegrity, header.Name, kind(header))
		}
		return nil
	}
	if len(parts[1]) > maxName {
		return fmt.Errorf("%w: %.60q…: a file name of %d bytes, the limit is %d", ErrLimit, parts[1], len(parts[1]), maxName)
	}
	if len(c.added)+len(c.hidden) > w.limits.Files {
		return w.tooMany()
	}
	return w.member(c, header, path.Join(parts[0], parts[1]), len(parts) > 2, content)
}

// member takes an entry inside one of the folders; file is the name at the folder's top that it concerns.
func (w *walker) member(c *changes, header *tar.Header, file string, deeper bool, content io.Reader) error {
	base := path.Base(file)
	switch {
	case deeper || header.Typeflag == tar.TypeDir:
		// A folder replaces a file of its name in a lower layer. What is in it is not read, as the original does not.
		c.hidden[file] = true
		return nil
	case base == opaqueWhiteout:
		c.hidden[path.Dir(file)] = true
		return nil
	case strings.HasPrefix(base, whiteoutPrefix):
		c.hidden[path.Join(path.Dir(file), strings.TrimPrefix(base, whiteoutPrefix))] = true
		return nil
	case kind(header) != regular:
		return fmt.Errorf("%w: %q is a %s, only regular files belong there", ErrIntegrity, header.Name, kind(header))
	case header.Size > w.limits.FileBytes:
		return fmt.Errorf("%w: %q has %d bytes, the limit is %d", ErrLimit, header.Name, header.Size, w.limits.FileBytes)
	case c.added[file]:
		return fmt.Errorf("%w: %q stands twice in one layer: which one counts depends on who reads it: rebuild the image", ErrIntegrity, header.Name)
	}
	c.added[file] = true
	if w.hidden[file] || w.hidden[path.Dir(file)] {
		return nil
	}
	if w.bytes += header.Size; w.bytes > w.limits.TotalBytes {
		return fmt.Errorf("%w: the manifest folders hold more than %d bytes", ErrLimit, w.limits.TotalBytes)
	}
	if w.files++; w.files > w.limits.Files {
		return w.tooMany()
	}
	return w.visit(File{
		Name: file, Size: header.Size, Mode: header.FileInfo().Mode().Perm(), ModTime: header.ModTime,
		Content: fileReader{inner: content, name: header.Name},
	})
}

func (w *walker) tooMany() error {
	return fmt.Errorf("%w: the manifest folders hold more than %d files", ErrLimit, w.limits.Files)
}

// apply hides from lower layers what a whole layer replaces or takes away.
func (w *walker) apply(c *changes) {
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

// split cuts a path into its parts and refuses ".." anywhere, also where the entry itself would be passed over: no
// honest layer holds it.
func split(name string) ([]string, error) {
	if len(name) > maxPath {
		return nil, fmt.Errorf("%w: %.60q…: a path of %d bytes, the limit is %d", ErrLimit, name, len(name), maxPath)
	}
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return nil, fmt.Errorf("%w: file name %.200q is not UTF-8 text", ErrIntegrity, name)
	}
	parts := strings.Split(name, "/")
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" || p == "." })
	if slices.Contains(parts, "..") {
		return nil, fmt.Errorf("%w: %.200q leads out of its folder", ErrIntegrity, name)
	}
	return parts, nil
}

const regular = "regular file"

// kind names a tar entry's type. A sparse file is one that takes less room than it says.
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

// maxWindow bounds what a zstd layer may have the reader hold in memory: that of zstd's highest ordinary level.
const maxWindow = 32 << 20

// decompress tells gzip, zstd and plain tar by their first bytes: media types in real images are not always right.
func decompress(r io.Reader) (plain io.Reader, done func(), err error) {
	buffered := bufio.NewReaderSize(r, 1<<16)
	magic, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		zr, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: reading gzip: %w", ErrIntegrity, err)
		}
		return zr, func() { _ = zr.Close() }, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		zr, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, fmt.Errorf("%w: reading zstd: %w", ErrIntegrity, err)
		}
		return zr, zr.Close, nil
	}
	return buffered, func() {}, nil
}

// boundedReader counts what a layer unpacks to.
type boundedReader struct {
	inner  io.Reader
	walker *walker
	// compressed is how many bytes it was at most that the layer is made of.
	compressed func() int64
	read       int64
}

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.inner.Read(p)
	b.read += int64(n)
	b.walker.unpacked += int64(n)
	limits := b.walker.limits
	switch {
	case b.walker.unpacked > limits.UnpackedBytes:
		return 0, fmt.Errorf("%w: the image unpacks to more than %d bytes", ErrLimit, limits.UnpackedBytes)
	case b.read > ratioFloor && b.read/limits.Ratio > b.compressed():
		return 0, fmt.Errorf("%w: a layer of %d bytes unpacks to more than %d times as much", ErrLimit, b.compressed(), limits.Ratio)
	}
	return n, err
}
