package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
)

// Folder is a signature store in a directory of this machine.
type Folder struct{ dir string }

// NewFolder returns the store in a directory; a missing directory is an empty store.
func NewFolder(dir string) Folder { return Folder{dir: dir} }

// String returns the store's file URL.
func (f Folder) String() string { return (&url.URL{Scheme: "file", Path: f.dir}).String() }

// Signatures yields signature-1, signature-2 and so on, up to the first missing number. It does not follow links out of the directory.
// Otherwise a user with write access could make the operator read other files.
func (f Folder) Signatures(ctx context.Context, digest release.Digest) iter.Seq2[Signature, error] {
	return func(yield func(Signature, error) bool) {
		root, err := os.OpenRoot(f.dir)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(Signature{}, err)
			return
		}
		defer root.Close()
		for n := firstSignature; n <= lastSignature && ctx.Err() == nil; n++ {
			path := filepath.FromSlash(Path(digest, n))
			s := Signature{Name: signatureName(n)}
			s.Location = (&url.URL{Scheme: "file", Path: filepath.Join(f.dir, path)}).String()
			s.Message, err = readBoundedFile(root, path)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return
			case err != nil:
				err = fmt.Errorf("%s: %w", s.Name, err)
			case len(s.Message) == 0:
				continue
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

func readBoundedFile(root *os.Root, path string) ([]byte, error) {
	// Without O_NONBLOCK, opening a pipe would block until the pipe has a writer.
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("not a regular file"))
	}
	return readBounded(f)
}

var errTooLarge = fmt.Errorf("larger than %d bytes", openpgp.MaxSignatureSize)

// readBounded reads a signature. It rejects a signature that is too large without reading all of it.
func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, openpgp.MaxSignatureSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > openpgp.MaxSignatureSize {
		return nil, errTooLarge
	}
	return data, nil
}
