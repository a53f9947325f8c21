package repository

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image/integrity"
	"github.com/cluster-version/cvo/pkg/release"
)

// inMemory is the size in bytes up to which uncached content is kept in memory instead of a temporary file.
const inMemory = 256 << 10

// Reporter receives the bytes of a blob read so far and the place that serves it; an empty place is the cache. It may be nil.
type Reporter func(read int64, from string)

func (r Reporter) of(from string) func(int64) {
	if r == nil {
		return nil
	}
	return func(read int64) { r(read, from) }
}

// Blob streams a layer or a configuration. The reader returns io.EOF only after content of the right size and digest. After any other
// error, the caller must discard the bytes already read. If a connection breaks, the stream resumes from the next place. With a cache
// folder, Blob fetches and verifies all content before it returns.
func (s *Repository) Blob(ctx context.Context, desc v1.Descriptor) (io.ReadCloser, error) {
	d, err := document.Content(desc, s.opts.BlobBytes)
	if err != nil {
		return nil, err
	}
	if s.cache() != nil {
		return s.File(ctx, desc, nil)
	}
	stream := &blobStream{ctx: ctx, repository: s, digest: d, size: desc.Size, tried: map[*candidate]error{}}
	if err := stream.next(nil); err != nil {
		return nil, err
	}
	return &verifiedStream{Reader: integrity.NewReader(ctx, stream, d, desc.Size, nil), stream: stream}, nil
}

// File returns verified content from disk or memory.
func (s *Repository) File(ctx context.Context, desc v1.Descriptor, report Reporter) (io.ReadCloser, error) {
	return s.file(ctx, desc, report, inMemory)
}

// file returns verified content. Without a cache, it keeps up to inMemory bytes in memory.
func (s *Repository) file(ctx context.Context, desc v1.Descriptor, report Reporter, inMemory int64) (io.ReadCloser, error) {
	d, err := document.Content(desc, s.opts.BlobBytes)
	if err != nil {
		return nil, err
	}
	if dir, ok := s.places[0].place.(layoutPlace); ok {
		return s.stored(ctx, dir, d, desc.Size, report)
	}
	if s.cache() != nil {
		return s.cached(ctx, d, desc.Size, report)
	}
	if desc.Size <= inMemory {
		var data bytes.Buffer
		err := s.fetch(ctx, d, desc.Size, report, &data, func() error { data.Reset(); return nil })
		return io.NopCloser(&data), err
	}
	f, err := os.CreateTemp("", "cvo-layer-*")
	if err != nil {
		return nil, fmt.Errorf("fetching %s: %w: set TMPDIR to a writable folder", d, err)
	}
	// On systems that can unlink an open file, the file disappears even if the process is killed.
	t := &temporary{File: f, gone: os.Remove(f.Name()) == nil}
	if err := s.fetchFile(ctx, d, desc.Size, report, f); err != nil {
		_ = t.Close()
		return nil, err
	}
	return t, nil
}

// temporary is a file that is removed when it is closed.
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

// stored returns a verified file of an OCI layout.
func (s *Repository) stored(ctx context.Context, dir layoutPlace, d release.Digest, size int64, report Reporter) (io.ReadCloser, error) {
	f, err := dir.Blob(d)
	if err != nil {
		return nil, err
	}
	err = integrity.NewReader(ctx, f, d, size, report.of(dir.String())).Finish()
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

// cached returns a file of the cache. It fetches the content if the cache has no valid copy.
func (s *Repository) cached(ctx context.Context, d release.Digest, size int64, report Reporter) (io.ReadCloser, error) {
	f, ok, err := s.cache().Get(d)
	if err != nil {
		return nil, err
	}
	if ok {
		err := integrity.NewReader(ctx, f, d, size, report.of("")).Finish()
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err == nil {
			return f, nil
		}
		_ = f.Close()
		if !errors.Is(err, failure.ErrIntegrity) {
			return nil, fmt.Errorf("reading image cache: %w", err)
		}
		if err := s.cache().Remove(d); err != nil {
			return nil, err
		}
	}
	return s.cache().Fill(d, func(f *os.File) error { return s.fetchFile(ctx, d, size, report, f) })
}

// fetchFile fetches content into a file and rewinds it.
func (s *Repository) fetchFile(ctx context.Context, d release.Digest, size int64, report Reporter, f *os.File) error {
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

func layerRequest(d release.Digest) request { return request{"fetching layer", string(d), true} }

// fetch writes verified content. It calls restart before each place.
func (s *Repository) fetch(ctx context.Context, d release.Digest, size int64, report Reporter, w io.Writer, restart func() error) error {
	return s.try(ctx, layerRequest(d), func(p place) error {
		if err := restart(); err != nil {
			return err
		}
		body, err := p.blob(ctx, d)
		if err != nil {
			return err
		}
		defer body.Close()
		_, err = io.Copy(localWriter{w}, integrity.NewReader(ctx, body, d, size, report.of(p.String())))
		return err
	})
}

// blobStream reads a blob and resumes from the next place after an error. It does not verify the content.
type blobStream struct {
	ctx        context.Context // the caller reads and closes the stream within this context
	repository *Repository
	digest     release.Digest
	body       io.ReadCloser
	from       *candidate
	offset     int64
	size       int64
	tried      map[*candidate]error
}

// next resumes at the next place. err is the error of the current place.
func (b *blobStream) next(err error) error {
	if b.from != nil {
		_ = b.body.Close()
		b.tried[b.from] = err
		b.repository.learn(b.ctx, b.from, err, true)
		b.from, b.body = nil, io.NopCloser(bytes.NewReader(nil))
	}
	places, results := b.repository.order()
	for _, c := range places {
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
	maps.Copy(results, b.tried)
	return b.repository.refusal(layerRequest(b.digest), results)
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

// verifiedStream is a blobStream with verified content.
type verifiedStream struct {
	*integrity.Reader
	stream *blobStream
}

// Read implements io.Reader.
func (v *verifiedStream) Read(p []byte) (int, error) {
	n, err := v.Reader.Read(p)
	switch {
	case err == nil || v.stream.from == nil:
	case errors.Is(err, io.EOF):
		v.stream.repository.learn(v.stream.ctx, v.stream.from, nil, true)
	case errors.Is(err, failure.ErrIntegrity):
		// The caller's next attempt uses another place.
		v.stream.repository.learn(v.stream.ctx, v.stream.from, err, true)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("fetching layer %s of %s: %w", v.stream.digest, v.stream.repository, err)
	}
	return n, err
}

// Close implements io.Closer.
func (v *verifiedStream) Close() error { return v.stream.body.Close() }
