// Package integrity verifies the digest and size of content while it is read. It wraps a stream from any source. The wrapped stream ends
// without an error only if both match.
package integrity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/release"
)

// Reader reads content with a known digest and size. It returns io.EOF only if both match, and never returns more bytes than the size.
type Reader struct {
	ctx    context.Context
	inner  io.Reader
	want   release.Digest
	size   int64
	read   int64
	hash   hash.Hash
	report func(read int64)
	done   error
}

// NewReader returns a Reader of inner. report, if set, receives the number of bytes read so far.
func NewReader(ctx context.Context, inner io.Reader, want release.Digest, size int64, report func(int64)) *Reader {
	if report == nil {
		report = func(int64) {}
	}
	return &Reader{ctx: ctx, inner: inner, want: want, size: size, hash: sha256.New(), report: report}
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if r.done != nil {
		return 0, r.done
	}
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	// Reading one extra byte detects content that is too long.
	if left := r.size - r.read + 1; int64(len(p)) > left {
		p = p[:left]
	}
	n, err := r.inner.Read(p)
	r.read += int64(n)
	if r.read > r.size {
		r.done = fmt.Errorf("%w: %s has more than the %d bytes expected", failure.ErrIntegrity, r.want, r.size)
		return 0, r.done
	}
	r.hash.Write(p[:n])
	if err != nil {
		r.done = r.judge(err)
	}
	if n > 0 || r.done != nil {
		r.report(r.read)
	}
	return n, r.done
}

// judge returns the final result at the end of the content. It checks the size and digest itself first, because the library may have
// reported a wrong digest with its own error.
func (r *Reader) judge(err error) error {
	got := release.Digest("sha256:" + hex.EncodeToString(r.hash.Sum(nil)))
	switch {
	case r.read == r.size && got == r.want:
		return io.EOF
	case r.read == r.size:
		return fmt.Errorf("%w: content of %s has the digest %s: it was changed in transit or in the registry", failure.ErrIntegrity, r.want, got)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %s ends after %d of %d bytes", failure.ErrIntegrity, r.want, r.read, r.size)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("connection closed after %d of %d bytes of %s: %w", r.read, r.size, r.want, err)
	default:
		return fmt.Errorf("reading %s: %w", r.want, err)
	}
}

// Finish reads the rest. It returns nil if the content matches its digest and size.
func (r *Reader) Finish() error {
	_, err := io.Copy(io.Discard, r)
	return err
}
