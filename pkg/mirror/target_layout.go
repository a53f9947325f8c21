package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/atomicfile"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/release"
)

// partialDir, within a layout, holds files that are not complete yet.
const partialDir = ".partial"

// errFolder marks folders that cannot be written to, which another attempt would not change.
var errFolder = errors.New("not usable as a folder for images")

// Layout is a target: an OCI image layout in a folder. Everything in it is written under another name first, forced to
// the disk and then renamed, so that what is there under its digest is complete whenever the writing ends. Its list of
// images is written last, by Close. It is for one process at a time. Make it with NewLayout.
type Layout struct {
	dir    string
	begin  func() error
	unlock func()

	mu    sync.Mutex
	index v1.IndexManifest
}

// NewLayout returns the layout in a folder, which is made when the first question is asked.
func NewLayout(dir string) *Layout {
	l := &Layout{dir: dir, index: v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}}
	l.begin = sync.OnceValue(func() error {
		if err := l.open(); err != nil {
			return fmt.Errorf("folder %s: %w: %w", dir, errFolder, err)
		}
		return nil
	})
	return l
}

func (l *Layout) open() error {
	if entries, err := os.ReadDir(l.dir); err == nil && len(entries) > 0 && !image.IsLayout(l.dir) && !l.begun() {
		return errors.New("it is neither empty nor an OCI layout: name another one")
	}
	for _, dir := range []string{partialDir, filepath.Join("blobs", "sha256")} {
		if err := os.MkdirAll(filepath.Join(l.dir, dir), 0o755); err != nil {
			return err
		}
	}
	unlock, err := lockFolder(filepath.Join(l.dir, partialDir))
	if err != nil {
		return err
	}
	l.unlock = unlock
	if err := l.clean(); err != nil {
		l.release()
		return err
	}
	raw, err := os.ReadFile(filepath.Join(l.dir, "index.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &l.index)
	}
	if err != nil {
		l.release()
	}
	return err
}

// lockFolder keeps other processes out of a folder until it is unlocked, or until this process ends, however it does.
func lockFolder(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	ok, err := atomicfile.TryLock(f)
	if err == nil && (!ok || !still(dir, f)) {
		err = errors.New("another process is writing to it: wait for its end")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// still reports whether a folder is the one that was opened: who finishes removes it, and a lock on what is gone would keep
// nobody out.
func still(dir string, opened *os.File) bool {
	was, err := opened.Stat()
	if err != nil {
		return false
	}
	is, err := os.Stat(dir)
	return err == nil && os.SameFile(was, is)
}

// begun reports whether the folder is one that writing was cut short in before it became a layout.
func (l *Layout) begun() bool {
	_, err := os.Stat(filepath.Join(l.dir, partialDir))
	return err == nil
}

// clean removes what a killed process has left unfinished.
func (l *Layout) clean() error {
	entries, err := os.ReadDir(filepath.Join(l.dir, partialDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "new-") {
			if err := os.Remove(filepath.Join(l.dir, partialDir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Layout) release() {
	l.unlock()
	l.unlock = nil
}

// String is the folder.
func (l *Layout) String() string { return l.dir }

func (l *Layout) path(h v1.Hash) string { return filepath.Join(l.dir, "blobs", h.Algorithm, h.Hex) }

// has reports whether a file of that size is there. Its content was checked when it was written, and is again whenever
// somebody reads it.
func (l *Layout) has(desc v1.Descriptor) bool {
	info, err := os.Stat(l.path(desc.Digest))
	return err == nil && info.Mode().IsRegular() && info.Size() == desc.Size
}

// Holds implements Target.
func (l *Layout) Holds(ctx context.Context, doc *image.Document, blobs []v1.Descriptor, tags []string) (Held, error) {
	if err := l.begin(); err != nil {
		return Held{}, err
	}
	held := Held{There: true}
	for _, tag := range tags {
		if l.lists(doc, tag) {
			continue
		}
		held.Missing = append(held.Missing, tag)
		if attached(tag) {
			present, err := l.tagged(ctx, tag)
			if err != nil {
				return Held{}, err
			}
			if present != nil && keeps(present, doc) {
				return Held{Kept: tag}, nil
			}
		}
	}
	for _, desc := range append([]v1.Descriptor{doc.Descriptor()}, blobs...) {
		held.There = held.There && l.has(desc)
	}
	// A document without a name is found by what lists it, or else, if it refers to another, by the layout's list.
	if len(tags) == 0 && doc.Subject != nil && !l.lists(doc, "") {
		held.There = false
	}
	return held, nil
}

// tagged reads what a name stands for; nil if nothing has it.
func (l *Layout) tagged(ctx context.Context, tag string) (*image.Document, error) {
	l.mu.Lock()
	i := slices.IndexFunc(l.index.Manifests, func(d v1.Descriptor) bool { return d.Annotations[image.RefNameAnnotation] == tag })
	if i < 0 {
		l.mu.Unlock()
		return nil, nil //nolint:nilnil // nothing is a valid answer
	}
	desc := l.index.Manifests[i]
	l.mu.Unlock()
	digest, err := digestOf(desc)
	if err != nil || !l.has(desc) {
		return nil, err
	}
	images, err := image.New(image.Options{})
	if err != nil {
		return nil, err
	}
	repository, err := images.Repository(release.Image{Pullspec: l.dir, Digest: digest})
	if err != nil {
		return nil, err
	}
	return repository.Document(ctx, digest)
}

func (l *Layout) lists(doc *image.Document, tag string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.index.Manifests, func(d v1.Descriptor) bool {
		return d.Digest == doc.Descriptor().Digest && d.Annotations[image.RefNameAnnotation] == tag
	})
}

// Upload implements Target.
func (l *Layout) Upload(_ context.Context, desc v1.Descriptor, _ name.Repository, open func() (io.ReadCloser, error)) (sent bool, err error) {
	if _, err := digestOf(desc); err != nil {
		return false, err
	}
	if l.has(desc) {
		return false, nil
	}
	body, err := open()
	if err != nil {
		return false, err
	}
	defer body.Close()
	return true, l.write(l.path(desc.Digest), body)
}

// Put implements Target.
func (l *Layout) Put(_ context.Context, doc *image.Document, tags []string) error {
	desc := doc.Descriptor()
	if !l.has(desc) {
		if err := l.write(l.path(desc.Digest), strings.NewReader(string(doc.Raw))); err != nil {
			return err
		}
	}
	if len(tags) == 0 && doc.Subject != nil {
		tags = []string{""}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, tag := range tags {
		listed := desc
		if tag != "" {
			listed.Annotations = map[string]string{image.RefNameAnnotation: tag}
		}
		l.index.Manifests = slices.DeleteFunc(l.index.Manifests, func(d v1.Descriptor) bool {
			named := d.Annotations[image.RefNameAnnotation]
			return named == tag && (tag != "" || d.Digest == desc.Digest)
		})
		l.index.Manifests = append(l.index.Manifests, listed)
	}
	return nil
}

// Close implements Target: it writes the list of images, in an order that does not depend on who was first.
func (l *Layout) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unlock == nil {
		return nil
	}
	slices.SortFunc(l.index.Manifests, func(a, b v1.Descriptor) int {
		return strings.Compare(a.Annotations[image.RefNameAnnotation]+" "+a.Digest.String(), b.Annotations[image.RefNameAnnotation]+" "+b.Digest.String())
	})
	if l.index.Manifests == nil {
		l.index.Manifests = []v1.Descriptor{}
	}
	index, err := json.MarshalIndent(l.index, "", "  ")
	if err == nil {
		err = l.write(filepath.Join(l.dir, "index.json"), strings.NewReader(string(index)+"\n"))
	}
	if err == nil {
		err = l.write(filepath.Join(l.dir, "oci-layout"), strings.NewReader(`{"imageLayoutVersion":"1.0.0"}`+"\n"))
	}
	if err == nil {
		err = atomicfile.Sync(filepath.Join(l.dir, "blobs", "sha256"))
	}
	if err != nil {
		err = fmt.Errorf("writing the OCI layout %s: %w", l.dir, err)
	}
	if err == nil {
		// Until there is a layout, this folder is by what the next attempt knows that it may go on here.
		err = os.RemoveAll(filepath.Join(l.dir, partialDir))
	}
	l.release()
	return err
}

// write gives a file its content in one step.
func (l *Layout) write(path string, content io.Reader) (err error) {
	f, err := os.CreateTemp(filepath.Join(l.dir, partialDir), "new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
