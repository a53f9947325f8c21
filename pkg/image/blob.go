package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/release"
)

// inMemory is up to which size content that no cache keeps is held in memory rather than in a temporary file.
const inMemory = 256 << 10

// reporter is told how much of a blob has been read, and where it comes from; empty is the cache. It may be nil.
type reporter func(read int64, from string)

func (r reporter) of(from string) func(int64) {
	if r == nil {
		return nil
	}
	return func(read int64) { r(read, from) }
}

// Blob streams a layer or a configuration. Its reader yields io.EOF only after content of the right size and digest;
// where it yields another error, what it gave before must be thrown away. A connection that breaks is taken up at the
// next place. With a cache folder, all of it is fetched and checked before the first byte is given.
func (s *Repository) Blob(ctx context.Context, desc v1.Descriptor) (io.ReadCloser, error) {
	d, err := content(desc, s.limits().LayerBytes)
	if err != nil {
		return nil, err
	}
	if s.cache() != nil {
		return s.file(ctx, desc, nil)
	}
	stream := &blobStream{ctx: ctx, repository: s, digest: d, size: desc.Size, tried: map[*candidate]error{}}
	if err := stream.next(nil); err != nil {
		return nil, err
	}
	return &verifiedStream{verifier: newVerifier(ctx, stream, d, desc.Size, nil), stream: stream}, nil
}

// file gives content that was checked to its end, from this machine's disk or memory.
func (s *Repository) file(ctx context.Context, desc v1.Descriptor, report reporter) (io.ReadCloser, error) {
	d, err := content(desc, s.limits().LayerBytes)
	if err != nil {
		return nil, err
	}
	if dir, ok := s.places[0].place.(*layoutPlace); ok {
		return s.stored(ctx, dir, d, desc.Size, report)
	}
	if s.cache() != nil {
		return s.kept(ctx, d, desc.Size, report)
	}
	if desc.Size <= inMemory {
		var data bytes.Buffer
		err := s.fetch(ctx, d, desc.Size, report, &data, func() error { data.Reset(); return nil })
		return io.NopCloser(&data), err
	}
	f, err := os.CreateTemp("", "cvo-layer-*")
	if err != nil {
		return nil, fmt.Errorf("fetching %s: %w: set TMPDIR to a folder that can be written to", d, err)
	}
	// Where a file may lose its name while it is open, it is gone with the process, however that ends.
	t := &temporary{File: f, gone: os.Remove(f.Name()) == nil}
	if err := s.fetchFile(ctx, d, desc.Size, report, f); err != nil {
		_ = t.Close()
		return nil, err
	}
	return t, nil
}

// temporary is a file that is gone once it is closed.
type temporary struct {
	*os.File
	gone bool
}

// Close implements io.Closer.
func (t *temporary) Close() error {
	err := t.File.Close()
	if t.gone {
		return err
	}
	return errors.Join(err, os.Remove(t.Name()))
}

// stored checks and gives a file of an OCI layout.
func (s *Repository) stored(ctx context.Context, dir *layoutPlace, d release.Digest, size int64, report reporter) (io.ReadCloser, error) {
	f, err := dir.open(dir.path(d))
	if err != nil {
		return nil, err
	}
	err = newVerifier(ctx, f, d, size, report.of(dir.dir)).finish()
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("reading the OCI layout %s: %w", dir, err)
	}
	s.learn(ctx, s.places[0], nil, true)
	return f, nil
}

// kept gives a file of the cache, which is filled where it has no good copy.
func (s *Repository) kept(ctx context.Context, d release.Digest, size int64, report reporter) (io.ReadCloser, error) {
	f, ok, err := s.cache().open(d)
	if err != nil {
		return nil, err
	}
	if ok {
		err := newVerifier(ctx, f, d, size, report.of("")).finish()
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err == nil {
			return f, nil
		}
		_ = f.Close()
		if !errors.Is(err, ErrIntegrity) {
			return nil, fmt.Errorf("reading image cache: %w", err)
		}
		if err := s.cache().remove(d); err != nil {
			return nil, err
		}
	}
	return s.cache().fill(d, func(f *os.File) error { return s.fetchFile(ctx, d, size, report, f) })
}

// fetchFile leaves the file at its start.
func (s *Repository) fetchFile(ctx context.Context, d release.Digest, size int64, report reporter, f *os.File) error {
	restart := func() error {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return localError{err}
		}
		if err := f.Truncate(0); err != nil {
			return localError{err}
		}
		return nil
	}
	if err := s.fetch(ctx, d, size, report, f, restart); err != nil {
		return err
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

func layerWish(d release.Digest) wish { return wish{"fetching layer", string(d), true} }

// fetch writes verified content. Each place starts anew.
func (s *Repository) fetch(ctx context.Context, d release.Digest, size int64, report reporter, w io.Writer, restart func() error) error {
	return s.try(ctx, layerWish(d), func(p place) error {
		if err := restart(); err != nil {
			return err
		}
		body, err := p.blob(ctx, d)
		if err != nil {
			return err
		}
		defer body.Close()
		_, err = io.Copy(localWriter{w}, newVerifier(ctx, body, d, size, report.of(p.String())))
		return err
	})
}

// blobStream reads one blob, from the next place on where a place breaks off. What it gives is not checked.
type blobStream struct {
	ctx        context.Context //nolint:containedctx // that of the caller, who reads and closes the stream
	repository *Repository
	digest     release.Digest
	body       io.ReadCloser
	from       *candidate
	offset     int64
	size       int64
	tried      map[*candidate]error
}

// next goes on at the next place, because of an error at the one before.
func (b *blobStream) next(err error) error {
	if b.from != nil {
		_ = b.body.Close()
		b.tried[b.from] = err
		b.repository.learn(b.ctx, b.from, err, true)
		b.from, b.body = nil, io.NopCloser(bytes.NewReader(nil))
	}
	for _, c := range b.repository.order() {
		if _, ok := b.tried[c]; ok {
			continue
		}
		if b.ctx.Err() != nil {
			return b.ctx.Err()
		}
		body, err := c.blob(b.ctx, b.digest)
		if err == nil {
			if _, err = io.CopyN(io.Discard, body, b.offset); err == nil {
				b.body, b.from = body, c
				return nil
			}
			_ = body.Close()
		}
		b.tried[c] = err
		b.repository.learn(b.ctx, c, err, true)
	}
	return b.repository.refusal(layerWish(b.digest), b.tried)
}

// Read implements io.Reader.
func (b *blobStream) Read(p []byte) (int, error) {
	for {
		n, err := b.body.Read(p)
		b.offset += int64(n)
		if n > 0 || err == nil {
			return n, nil
		}
		if errors.Is(err, io.EOF) || b.offset >= b.size || b.ctx.Err() != nil {
			return 0, err
		}
		if err := b.next(err); err != nil {
			return 0, err
		}
	}
}

// verifiedStream is a blobStream whose end is checked.
type verifiedStream struct {
	*verifier
	stream *blobStream
}

// Read implements io.Reader.
func (v *verifiedStream) Read(p []byte) (int, error) {
	n, err := v.verifier.Read(p)
	switch {
	case err == nil || v.stream.from == nil:
	case errors.Is(err, io.EOF):
		v.stream.repository.learn(v.stream.ctx, v.stream.from, nil, true)
	case errors.Is(err, ErrIntegrity):
		// Somebody who asks again is given it from elsewhere.
		v.stream.repository.learn(v.stream.ctx, v.stream.from, err, true)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("fetching layer %s of %s: %w", v.stream.digest, v.stream.repository, err)
	}
	return n, err
}

// Close implements io.Closer.
func (v *verifiedStream) Close() error { return v.stream.body.Close() }
