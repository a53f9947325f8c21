package layer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/cluster-version/cvo/pkg/oci/failure"
)

// maxWindow is the maximum memory in bytes for reading a zstd layer: the window of zstd's highest regular level.
const maxWindow = 32 << 20

// decompress detects gzip, zstd and plain tar by the first bytes, because media types of real images are sometimes wrong.
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
			return nil, nil, fmt.Errorf("%w: reading gzip: %w", failure.ErrIntegrity, err)
		}
		return zr, func() { _ = zr.Close() }, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		zr, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, fmt.Errorf("%w: reading zstd: %w", failure.ErrIntegrity, err)
		}
		return zr, zr.Close, nil
	}
	return buffered, func() {}, nil
}

// boundedReader counts the unpacked bytes of a layer and enforces the limits.
type boundedReader struct {
	inner  io.Reader
	walker *Walker
	// compressed returns an upper bound for the layer's compressed size in bytes.
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
		return 0, fmt.Errorf("%w: the image unpacks to more than %d bytes", failure.ErrLimit, limits.UnpackedBytes)
	case b.read > ratioFloor && b.read/limits.Ratio > b.compressed():
		return 0, fmt.Errorf("%w: a layer of %d bytes unpacks to more than %d times as much", failure.ErrLimit, b.compressed(), limits.Ratio)
	}
	return n, err
}
