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

// folders are what is sent of a release image.
func folders() []string { return []string{"manifests", "release-manifests"} }

// connectEvery is the pause between two attempts to reach the operator. A new pod may not be let through for a moment.
const connectEvery = 2 * time.Second

// Send sends the files of a release image, as it is mounted, to the inbox at a URL. It tries to connect until ctx ends;
// once the operator has begun to read there is no second attempt, because the token serves once.
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

// maxAnswer bounds what is read of a refusal.
const maxAnswer = 4 << 10

// send reports whether the operator has answered or begun to read.
func send(ctx context.Context, client *http.Client, url, token string, image fs.FS) (begun bool, err error) {
	reader, writer := io.Pipe()
	body := &started{Reader: reader}
	packed := make(chan error, 1)
	go func() {
		err := pack(writer, image)
		_ = writer.CloseWithError(err) // does not fail
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
	req.Header.Set("Content-Type", ContentType)
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
	return true, fmt.Errorf("the operator answered %s: %s", resp.Status, strings.TrimSpace(string(text)))
}

// started notes that something was read. A client may go on reading after it has reported an error.
type started struct {
	io.Reader
	read atomic.Bool
}

// Read implements io.Reader.
func (s *started) Read(p []byte) (int, error) {
	s.read.Store(true)
	return s.Reader.Read(p)
}

// pack writes what is sent: the regular files right in the two folders.
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
		return fmt.Errorf("%s are empty or missing: is the image volume mounted, and is it a release image?", strings.Join(folders(), " and "))
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
