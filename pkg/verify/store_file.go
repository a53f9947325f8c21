package verify

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

	"github.com/cluster-version/cvo/pkg/release"
)

// Folder is a signature store in a directory of this machine.
type Folder struct{ dir string }

// NewFolder returns the store in that directory; a directory that does not exist is an empty store.
func NewFolder(dir string) Folder { return Folder{dir: dir} }

// String is the store's file URL.
func (f Folder) String() string { return (&url.URL{Scheme: "file", Path: f.dir}).String() }

// Signatures yields signature-1, signature-2 and so on, up to the first number that is not there.
func (f Folder) Signatures(ctx context.Context, digest release.Digest) iter.Seq2[Signature, error] {
	return func(yield func(Signature, error) bool) {
		for n := firstSignature; n <= lastSignature && ctx.Err() == nil; n++ {
			s := Signature{Name: signatureName(n)}
			path := filepath.Join(f.dir, filepath.FromSlash(StorePath(digest, n)))
			s.Location = (&url.URL{Scheme: "file", Path: path}).String()
			data, err := readBoundedFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", s.Name, err)
			} else if len(data) == 0 {
				continue
			}
			s.Message = data
			if !yield(s, err) {
				return
			}
		}
	}
}

func readBoundedFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// A pipe or device would block for ever.
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("not a regular file"))
	}
	return readBounded(f)
}

// readBounded reads a signature and refuses one that is too large, without reading on.
func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSignatureSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxSignatureSize {
		return nil, fmt.Errorf("larger than %d bytes", MaxSignatureSize)
	}
	return data, nil
}
