package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// Collection holds visited files in memory.
type Collection struct {
	content map[string]packed
	buffer  bytes.Buffer
	packer  packer
}

// NewCollection returns an empty collection.
func NewCollection() *Collection { return &Collection{content: map[string]packed{}} }

// Add adds a visited file.
func (c *Collection) Add(f File) error {
	c.buffer.Reset()
	c.buffer.Grow(int(f.Size) + bytes.MinRead)
	if _, err := c.buffer.ReadFrom(f.Content); err != nil {
		return err
	}
	c.content[f.Name] = c.packer.pack(c.buffer.Bytes(), f.ModTime)
	return nil
}

// FS returns the files as a file system. The caller must not add files after this call.
func (c *Collection) FS() fs.FS { return newFiles(c.content) }

// Layer returns the files as a layer. It sorts them by name, so the same files always result in the same layer.
func (c *Collection) Layer() ([]byte, error) {
	var layer bytes.Buffer
	compressed, err := zstd.NewWriter(&layer, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	out := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(c.content)) {
		content, err := c.content[name].unpack()
		if err != nil {
			return nil, err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644, ModTime: c.content[name].modTime}
		if err := out.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := out.Write(content); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(out.Close(), compressed.Close()); err != nil {
		return nil, err
	}
	return layer.Bytes(), nil
}

// packed is the compressed content of a file. A release's files are text and stay in memory until all have been read. Compression reduces
// them to a fifth.
type packed struct {
	data    []byte
	size    int64
	modTime time.Time
}

// packer compresses files sequentially and reuses one buffer.
type packer struct{ scratch []byte }

func (p *packer) pack(content []byte, modTime time.Time) packed {
	p.scratch = s2.Encode(p.scratch[:cap(p.scratch)], content)
	return packed{data: bytes.Clone(p.scratch), size: int64(len(content)), modTime: modTime}
}

// unpack returns a copy that belongs to the caller.
func (p packed) unpack() ([]byte, error) { return s2.Decode(nil, p.data) }
