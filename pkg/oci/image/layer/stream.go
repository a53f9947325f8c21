package layer

import (
	"context"
	"fmt"
	"io"

	"github.com/cluster-version/cvo/pkg/oci/failure"
)

// Stream reads the files from a tar stream, compressed or not. The sender has already applied the layers. Stream reads the stream to its
// end. A truncated stream and a stream without files are errors.
func (w *Walker) Stream(ctx context.Context, stream io.Reader) error {
	in := &received{ctx: ctx, inner: stream, limit: w.limits.LayerBytes}
	plain, closePlain, err := decompress(in)
	if err != nil {
		return err
	}
	defer closePlain()
	bounded := &boundedReader{inner: plain, walker: w, compressed: func() int64 { return in.bytes }}
	if err := w.plain(bounded); err != nil {
		return err
	}
	// The data after the end of the tar archive includes the checksum of the compression.
	if _, err := io.Copy(io.Discard, bounded); err != nil {
		return broken("the end of the stream", err)
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return broken("the end of the stream", err)
	}
	if w.files == 0 {
		return fmt.Errorf("%w: no files in %s/ and %s/: check that the sender has a release image", failure.ErrIntegrity, operatorDir, releaseDir)
	}
	return nil
}

// received counts the received bytes and enforces the size limit of a layer.
type received struct {
	ctx   context.Context
	inner io.Reader
	limit int64
	bytes int64
}

// Read implements io.Reader.
func (r *received) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.inner.Read(p)
	if r.bytes += int64(n); r.bytes > r.limit {
		return 0, fmt.Errorf("%w: the sender sent more than %d bytes", failure.ErrLimit, r.limit)
	}
	return n, err
}
