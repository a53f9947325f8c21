package retrieve

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
)

// folders returns the folders of a release image to send.
func folders() []string { return []string{"manifests", "release-manifests"} }

// connectEvery is the pause between two attempts to connect to the operator. The network may block a new pod for a moment.
const connectEvery = 2 * time.Second

// Send sends the files of a mounted release image to the inbox at a URL. It retries until it connects or ctx ends. It does not retry once
// the operator has started to read, because the token is valid only once.
func Send(ctx context.Context, client *http.Client, url, token string, image fs.FS) error {
	for {
		begun, err := send(ctx, client, url, token, image)
		if err == nil || begun || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(connectEvery):
		}
	}
}

// maxAnswer bounds the bytes read of an error response.
const maxAnswer = 4 << 10

// send makes one attempt. begun reports whether the operator has responded or started to read.
func send(ctx context.Context, client *http.Client, url, token string, image fs.FS) (begun bool, err error) {
	reader, writer := io.Pipe()
	body := &started{Reader: reader}
	packed := make(chan error, 1)
	go func() {
		err := pack(writer, image)
		_ = writer.CloseWithError(err) // never fails
		packed <- err
	}()
	defer func() {
		_ = reader.Close()
		if failed := <-packed; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
			begun, err = true, failed
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, body)
	if err != nil {
		return true, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Expect", "100-continue")
	resp, err := client.Do(req)
	if err != nil {
		return body.read.Load(), fmt.Errorf("sending the release to the operator: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return true, nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return true, fmt.Errorf("the operator responded with %s: %s", resp.Status, strings.TrimSpace(string(text)))
}

// started records whether the body was read. A client may continue to read after it has returned an error.
type started struct {
	io.Reader
	read atomic.Bool
}

// Read implements io.Reader.
func (s *started) Read(p []byte) (int, error) {
	s.read.Store(true)
	return s.Reader.Read(p)
}

// pack writes the regular files directly in the two folders as a compressed tar stream.
func pack(w io.Writer, image fs.FS) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	out := tar.NewWriter(compressed)
	files := 0
	for _, folder := range folders() {
		entries, err := fs.ReadDir(image, folder)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the release image: %w", err)
		}
		for _, entry := range entries {
			if entry.IsDir() {
				continue
			}
			if err := packFile(out, image, path.Join(folder, entry.Name())); err != nil {
				return err
			}
			files++
		}
	}
	if files == 0 {
		return fmt.Errorf("%s are empty or missing: check that the mounted volume is a release image", strings.Join(folders(), " and "))
	}
	return errors.Join(out.Close(), compressed.Close())
}

func packFile(out *tar.Writer, image fs.FS, name string) error {
	file, err := image.Open(name)
	if err != nil {
		return fmt.Errorf("reading the release image: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("reading the release image: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s of the release image is not a regular file", name)
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: 0o644, ModTime: info.ModTime().Truncate(time.Second)}
	if err := out.WriteHeader(header); err != nil {
		return fmt.Errorf("packing %s: %w", name, err)
	}
	if _, err := io.Copy(out, file); err != nil {
		return fmt.Errorf("packing %s: %w", name, err)
	}
	return nil
}
