package layout

import (
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

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/release"
)

// maxListedNames is the maximum number of images that an error lists.
const maxListedNames = 20

// Reader reads a layout. It reads the list of images and their subjects only once. It does not verify digests.
type Reader struct {
	dir string
	// maxBytes is the maximum size of each document.
	maxBytes int64
	// listed returns the entries of index.json. attached returns the entries with a subject, by subject.
	listed   func() ([]v1.Descriptor, error)
	attached func() (map[v1.Hash][]v1.Descriptor, error)
}

// NewReader returns a Reader of a folder. It reads documents of up to maxBytes.
func NewReader(dir string, maxBytes int64) *Reader {
	r := &Reader{dir: dir, maxBytes: maxBytes}
	r.listed, r.attached = sync.OnceValues(r.readIndex), sync.OnceValues(r.readSubjects)
	return r
}

// String returns the folder.
func (r *Reader) String() string { return r.dir }

func (r *Reader) readIndex() ([]v1.Descriptor, error) {
	path := filepath.Join(r.dir, IndexFile)
	raw, err := r.read(path)
	if err != nil {
		return nil, err
	}
	index := v1.IndexManifest{}
	if err := document.CheckJSON(raw, document.Names()); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, fmt.Errorf("reading %s: %w: %w", path, failure.ErrIntegrity, err)
	}
	return index.Manifests, nil
}

// artifact reports whether a descriptor declares a type other than an image. It accepts the media type of a Docker image's configuration,
// which go-containerregistry (and therefore crane) writes into ArtifactType.
func artifact(m v1.Descriptor) bool {
	return m.ArtifactType != "" && !types.MediaType(m.ArtifactType).IsConfig()
}

// Find returns the image with a name or digest. If want is empty, it returns the layout's only image, ignoring attachments: artifacts,
// images with a subject, and those that are attachments by name.
func (r *Reader) Find(want string, isAttachment func(name string) bool) (release.Digest, error) {
	// Any file in the folder can be selected by its digest, even if it is not listed.
	if d, err := release.ParseDigest(want); err == nil {
		if _, err := os.Stat(Path(r.dir, d)); err == nil {
			return d, nil
		}
	}
	listed, err := r.listed()
	if err != nil {
		return "", err
	}
	attachments := map[v1.Hash]bool{}
	if want == "" { // else the subjects do not matter, and their manifests need not be read
		attached, err := r.attached()
		if err != nil {
			return "", err
		}
		for _, list := range attached {
			for _, m := range list {
				attachments[m.Digest] = true
			}
		}
	}
	var names []string
	var found []v1.Hash
	for _, m := range listed {
		named := NameOf(m)
		names = append(names, strings.TrimPrefix(named+"@"+m.Digest.String(), "@"))
		meant := want == named || want == m.Digest.String()
		if want == "" {
			meant = !artifact(m) && !attachments[m.Digest] && !isAttachment(named)
		}
		if (m.MediaType.IsImage() || m.MediaType.IsIndex()) && meant && !slices.Contains(found, m.Digest) {
			found = append(found, m.Digest)
		}
	}
	if len(found) != 1 {
		if len(names) > maxListedNames {
			names = append(names[:maxListedNames], fmt.Sprintf("and %d more", len(names)-maxListedNames))
		}
		return "", fmt.Errorf("%w: select an image with %s:NAME or %s@DIGEST; available: %s", failure.ErrNotFound, r.dir, r.dir, strings.Join(names, ", "))
	}
	digest, err := release.ParseDigest(found[0].String())
	if err != nil {
		return "", fmt.Errorf("%w: %w", failure.ErrIntegrity, err)
	}
	return digest, nil
}

// Resolve returns the digest of the first image with a tag. The tag is either the image's name or the end of the name.
func (r *Reader) Resolve(tag string) (release.Digest, error) {
	listed, err := r.listed()
	if err != nil {
		return "", err
	}
	for _, m := range listed {
		if named := NameOf(m); named == tag || strings.HasSuffix(named, ":"+tag) {
			return release.ParseDigest(m.Digest.String())
		}
	}
	return "", fmt.Errorf("%w: the OCI layout %s has no image named %s", failure.ErrNotFound, r.dir, tag)
}

// Document returns a document by digest or tag.
func (r *Reader) Document(identifier string) ([]byte, error) {
	d, err := release.ParseDigest(identifier)
	if err != nil {
		if d, err = r.Resolve(identifier); err != nil {
			return nil, err
		}
	}
	return r.read(Path(r.dir, d))
}

// Blob opens the content with a digest.
func (r *Reader) Blob(d release.Digest) (*os.File, error) { return r.open(Path(r.dir, d)) }

// Referrers returns the listed documents whose subject is the given digest.
func (r *Reader) Referrers(d release.Digest) ([]v1.Descriptor, error) {
	attached, err := r.attached()
	return attached[document.HashOf(d)], err
}

func (r *Reader) readSubjects() (map[v1.Hash][]v1.Descriptor, error) {
	listed, err := r.listed()
	if err != nil {
		return nil, err
	}
	attached := map[v1.Hash][]v1.Descriptor{}
	for _, m := range listed {
		digest, err := release.ParseDigest(m.Digest.String())
		if err != nil || !m.MediaType.IsImage() {
			continue
		}
		// An unreadable entry does not affect other images.
		raw, err := r.read(Path(r.dir, digest))
		if err != nil {
			continue
		}
		doc, err := document.Parse(raw)
		if err != nil || doc.Subject == nil {
			continue
		}
		if m.ArtifactType == "" {
			m.ArtifactType = doc.ArtifactType
		}
		attached[doc.Subject.Digest] = append(attached[doc.Subject.Digest], m)
	}
	return attached, nil
}

// open opens a regular file. Other types, such as pipes, could block forever.
func (r *Reader) open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: the OCI layout %s has no file %s", failure.ErrNotFound, r.dir, strings.TrimPrefix(path, r.dir+"/"))
	case err != nil:
		return nil, fmt.Errorf("reading the OCI layout: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is not a regular file", failure.ErrIntegrity, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the OCI layout: %w", err)
	}
	return f, nil
}

func (r *Reader) read(path string) ([]byte, error) {
	f, err := r.open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, r.maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the OCI layout: %w", err)
	}
	if int64(len(raw)) > r.maxBytes {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", failure.ErrLimit, path, r.maxBytes)
	}
	return raw, nil
}
