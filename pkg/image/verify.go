package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/cluster-version/cvo/pkg/release"
)

// verifier reads content of a known digest and size. It reports io.EOF only if both were right, and never reads more
// than the size.
type verifier struct {
	ctx    context.Context
	inner  io.Reader
	want   release.Digest
	size   int64
	read   int64
	hash   hash.Hash
	report func(read int64)
	done   error
}

func newVerifier(ctx context.Context, inner io.Reader, want release.Digest, size int64, report func(int64)) *verifier {
	if report == nil {
		report = func(int64) {}
	}
	return &verifier{ctx: ctx, inner: inner, want: want, size: size, hash: sha256.New(), report: report}
}

// Read implements io.Reader.
func (v *verifier) Read(p []byte) (int, error) {
	if v.done != nil {
		return 0, v.done
	}
	if err := v.ctx.Err(); err != nil {
		return 0, err
	}
	// One byte more than is due shows content that is too long.
	if left := v.size - v.read + 1; int64(len(p)) > left {
		p = p[:left]
	}
	n, err := v.inner.Read(p)
	v.read += int64(n)
	if v.read > v.size {
		v.done = fmt.Errorf("%w: %s has more than the %d bytes that were announced", ErrIntegrity, v.want, v.size)
		return 0, v.done
	}
	v.hash.Write(p[:n])
	if err != nil {
		v.done = v.judge(err)
	}
	if n > 0 || v.done != nil {
		v.report(v.read)
	}
	return n, v.done
}

// judge says what the end of the content means. The library may have noticed a wrong digest itself, so its error is
// looked at last.
func (v *verifier) judge(err error) error {
	got := release.Digest("sha256:" + hex.EncodeToString(v.hash.Sum(nil)))
	switch {
	case v.read == v.size && got == v.want:
		return io.EOF
	case v.read == v.size:
		return fmt.Errorf("%w: content of %s has the digest %s: it was changed on its way or in the registry", ErrIntegrity, v.want, got)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %s ends after %d of %d bytes", ErrIntegrity, v.want, v.read, v.size)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("connection closed after %d of %d bytes of %s: %w", v.read, v.size, v.want, err)
	default:
		return fmt.Errorf("reading %s: %w", v.want, err)
	}
}

// finish reads what is left and returns nil if the content was right.
func (v *verifier) finish() error {
	_, err := io.Copy(io.Discard, v)
	return err
}
