// Package layer builds and reads the layers of release images. It creates reproducible layers from a few files, creates images from layers
// with Docker's media types, and reads the files at the top of an image's folders. It works in memory only.
package layer

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cluster-version/cvo/pkg/author/assemble/input"
)

// Entry is an entry in a layer. A name with a trailing slash is a folder.
type Entry struct {
	Name string
	Mode int64
	Data []byte
}

// Folder returns the entries for a folder and its read-only files.
func Folder(folder string, mode int64, files []input.File) []Entry {
	entries := []Entry{{Name: folder + "/", Mode: mode}}
	for _, f := range files {
		entries = append(entries, Entry{Name: folder + "/" + f.Name, Mode: 0o444, Data: f.Data})
	}
	return entries
}

// New returns a compressed layer with the given entries. All entries belong to root and have the same time.
func New(created time.Time, entries []Entry, opts ...tarball.LayerOption) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, e := range entries {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: e.Name, Size: int64(len(e.Data)), Mode: e.Mode, ModTime: created}
		if strings.HasSuffix(e.Name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("writing %s to a layer: %w", e.Name, err)
		}
		if _, err := w.Write(e.Data); err != nil {
			return nil, fmt.Errorf("writing %s to a layer: %w", e.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("writing a layer: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }
	return tarball.LayerFromOpener(open, append(opts, tarball.WithCompressedCaching)...)
}
