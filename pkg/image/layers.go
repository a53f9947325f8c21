package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
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

// unpacker walks the layers of one image from the lowest up and keeps what lies in the two folders.
type unpacker struct {
	limits   Limits
	files    map[string]packed
	unpacked int64
	entries  int
}

func newUnpacker(limits Limits) *unpacker {
	return &unpacker{limits: limits, files: map[string]packed{}}
}

// clone returns an unpacker in the same state, which goes its own way from there.
func (u *unpacker) clone() *unpacker {
	c := *u
	c.files = maps.Clone(u.files)
	return &c
}

// changes are what one layer does to the folders. Whiteouts concern lower layers only, wherever in the layer they
// stand, so they are collected and applied before the layer's own files.
type changes struct {
	added   map[string]packed
	removed map[string]bool // files, or folders with all that is in them
	opaque  bool            // everything goes
	bytes   int64
	// content is where each file is read to in turn, before it is packed.
	content bytes.Buffer
	packer  packer
}

// layer reads one layer, compressed or not, and applies it if it could be read to its end.
func (u *unpacker) layer(compressed io.Reader, size int64) error {
	plain, closePlain, err := decompress(compressed)
	if err != nil {
		return err
	}
	defer closePlain()
	bounded := &boundedReader{inner: plain, unpacker: u, compressed: size}
	c := changes{added: map[string]packed{}, removed: map[string]bool{}}
	reader := tar.NewReader(bounded)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			u.apply(&c)
			return nil
		}
		if err == nil {
			err = u.entry(&c, header, reader)
		} else if !errors.Is(err, ErrLimit) {
			err = fmt.Errorf("%w: reading tar: %w", ErrIntegrity, err)
		}
		if err != nil {
			return err
		}
	}
}

func (u *unpacker) entry(c *changes, header *tar.Header, content io.Reader) error {
	if u.entries++; u.entries > u.limits.Entries {
		return fmt.Errorf("%w: the image has more than %d files", ErrLimit, u.limits.Entries)
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
		c.removed[strings.TrimPrefix(base, whiteoutPrefix)] = true
		return nil
	case base != operatorDir && base != releaseDir:
		return nil
	}
	if strings.HasPrefix(header.Name, "/") {
		return fmt.Errorf("%w: %q: absolute path", ErrIntegrity, header.Name)
	}
	if len(parts) == 1 {
		if header.Typeflag != tar.TypeDir {
			return fmt.Errorf("%w: %q is a %s, it must be a folder", ErrIntegrity, header.Name, kind(header.Typeflag))
		}
		return nil
	}
	return u.member(c, header, path.Join(parts[0], parts[1]), len(parts) > 2, content)
}

// member takes an entry inside one of the folders; file is the name at the folder's top that it concerns.
func (u *unpacker) member(c *changes, header *tar.Header, file string, deeper bool, content io.Reader) error {
	base := path.Base(file)
	switch {
	case deeper || header.Typeflag == tar.TypeDir:
		// A folder replaces a file of its name in a lower layer. What is in it is not read, as the original does not.
		c.removed[file] = true
		return nil
	case base == opaqueWhiteout:
		c.removed[path.Dir(file)] = true
		return nil
	case strings.HasPrefix(base, whiteoutPrefix):
		c.removed[path.Join(path.Dir(file), strings.TrimPrefix(base, whiteoutPrefix))] = true
		return nil
	case header.Typeflag != tar.TypeReg:
		return fmt.Errorf("%w: %q is a %s, only regular files belong there", ErrIntegrity, header.Name, kind(header.Typeflag))
	case header.Size > u.limits.FileBytes:
		return fmt.Errorf("%w: %q has %d bytes, the limit is %d", ErrLimit, header.Name, header.Size, u.limits.FileBytes)
	}
	if c.bytes += header.Size; c.bytes > u.limits.TotalBytes {
		return fmt.Errorf("%w: the manifest folders hold more than %d bytes", ErrLimit, u.limits.TotalBytes)
	}
	if _, again := c.added[file]; !again && len(c.added) >= u.limits.Files {
		return fmt.Errorf("%w: the manifest folders hold more than %d files", ErrLimit, u.limits.Files)
	}
	c.content.Reset()
	c.content.Grow(int(header.Size) + bytes.MinRead)
	if _, err := io.Copy(&c.content, content); err != nil {
		if errors.Is(err, ErrLimit) {
			return err
		}
		return fmt.Errorf("%w: reading %q: %w", ErrIntegrity, header.Name, err)
	}
	c.added[file] = c.packer.pack(c.content.Bytes(), header.ModTime)
	return nil
}

// apply changes the state by one whole layer. Totals over layers are checked by check, when all are applied.
func (u *unpacker) apply(c *changes) {
	for file := range u.files {
		if c.opaque || c.removed[file] || c.removed[path.Dir(file)] {
			delete(u.files, file)
		}
	}
	maps.Copy(u.files, c.added)
}

// check holds the totals over all layers so far against the limits.
func (u *unpacker) check() error {
	var total int64
	for _, file := range u.files {
		total += file.size
	}
	switch {
	case total > u.limits.TotalBytes:
		return fmt.Errorf("%w: the manifest folders hold more than %d bytes", ErrLimit, u.limits.TotalBytes)
	case len(u.files) > u.limits.Files:
		return fmt.Errorf("%w: the manifest folders hold more than %d files", ErrLimit, u.limits.Files)
	}
	return nil
}

// split cuts a path into its parts and refuses ".." anywhere, also where the entry itself would be passed over: no
// honest layer holds it.
func split(name string) ([]string, error) {
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return nil, fmt.Errorf("%w: file name %q is not UTF-8 text", ErrIntegrity, name)
	}
	parts := strings.Split(name, "/")
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" || p == "." })
	if slices.Contains(parts, "..") {
		return nil, fmt.Errorf("%w: %q leads out of its folder", ErrIntegrity, name)
	}
	return parts, nil
}

// kind names a tar entry's type.
func kind(flag byte) string {
	switch flag {
	case tar.TypeReg:
		return "regular file"
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
		zr, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(64<<20))
		if err != nil {
			return nil, nil, fmt.Errorf("%w: reading zstd: %w", ErrIntegrity, err)
		}
		return zr, zr.Close, nil
	}
	return buffered, func() {}, nil
}

// boundedReader counts what a layer unpacks to.
type boundedReader struct {
	inner      io.Reader
	unpacker   *unpacker
	compressed int64
	read       int64
}

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.inner.Read(p)
	b.read += int64(n)
	b.unpacker.unpacked += int64(n)
	limits := b.unpacker.limits
	switch {
	case b.unpacker.unpacked > limits.UnpackedBytes:
		return 0, fmt.Errorf("%w: the image unpacks to more than %d bytes", ErrLimit, limits.UnpackedBytes)
	case b.read > ratioFloor && b.read/limits.Ratio > b.compressed:
		return 0, fmt.Errorf("%w: a layer of %d bytes unpacks to more than %d times as much", ErrLimit, b.compressed, limits.Ratio)
	}
	return n, err
}
