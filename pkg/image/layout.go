package image

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

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/release"
)

// RefNameAnnotation names an image within an OCI layout (OCI image specification, pre-defined annotation keys).
const RefNameAnnotation = "org.opencontainers.image.ref.name"

// maxNamesTold bounds how many images of a layout an error lists.
const maxNamesTold = 20

// IsLayout reports whether a reference names an OCI layout on this machine: DIR, DIR:NAME or DIR@DIGEST.
func IsLayout(ref string) bool {
	_, _, ok := layoutReference(ref)
	return ok
}

// layoutReference splits DIR, DIR:NAME and DIR@DIGEST, where DIR is an OCI layout on this machine.
func layoutReference(ref string) (dir, want string, ok bool) {
	isLayout := func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, "oci-layout"))
		return err == nil && info.Mode().IsRegular()
	}
	if isLayout(ref) {
		return ref, "", true
	}
	for _, sep := range []string{"@", ":"} {
		if i := strings.LastIndex(ref, sep); i > 0 && sep == "@" || i > 0 && !strings.Contains(ref[i:], "/") {
			if isLayout(ref[:i]) {
				return ref[:i], ref[i+1:], true
			}
		}
	}
	return "", "", false
}

// layoutPlace is an OCI layout on this machine (OCI image specification, image-layout.md).
type layoutPlace struct {
	dir    string
	limits Limits
	// listed is index.json, attached what it lists that refers to something, by what it refers to. Each is read once.
	listed   func() ([]v1.Descriptor, error)
	attached func() (map[v1.Hash][]v1.Descriptor, error)
}

func newLayoutPlace(dir string, limits Limits) *layoutPlace {
	p := &layoutPlace{dir: dir, limits: limits}
	p.listed, p.attached = sync.OnceValues(p.readIndex), sync.OnceValues(p.readSubjects)
	return p
}

// String implements fmt.Stringer.
func (p *layoutPlace) String() string { return p.dir }

func (p *layoutPlace) readIndex() ([]v1.Descriptor, error) {
	path := filepath.Join(p.dir, "index.json")
	raw, err := p.read(path)
	if err != nil {
		return nil, err
	}
	index := v1.IndexManifest{}
	if err := checkJSON(raw, documentNames); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, fmt.Errorf("reading %s: %w: %w", path, ErrIntegrity, err)
	}
	return index.Manifests, nil
}

// artifact reports whether a descriptor says that it is something else than an image. go-containerregistry, and crane with
// it, note the media type of a Docker image's configuration there.
func artifact(m v1.Descriptor) bool {
	return m.ArtifactType != "" && !types.MediaType(m.ArtifactType).IsConfig()
}

// image finds the one image that is meant by a name, a digest, or by nothing where there is only one.
func (p *layoutPlace) image(want string) (release.Digest, error) {
	// Whatever lies in the folder can be named by its digest, whether it is listed or not.
	if d, err := release.ParseDigest(want); err == nil {
		if _, err := os.Stat(p.path(d)); err == nil {
			return d, nil
		}
	}
	listed, err := p.listed()
	if err != nil {
		return "", err
	}
	var names []string
	var found []v1.Hash
	for _, m := range listed {
		named := m.Annotations[RefNameAnnotation]
		names = append(names, strings.TrimPrefix(named+"@"+m.Digest.String(), "@"))
		meant := want == named || want == m.Digest.String() || want == "" && !artifact(m) && !attachedName(named)
		if (m.MediaType.IsImage() || m.MediaType.IsIndex()) && meant && !slices.Contains(found, m.Digest) {
			found = append(found, m.Digest)
		}
	}
	if len(found) != 1 {
		if len(names) > maxNamesTold {
			names = append(names[:maxNamesTold], fmt.Sprintf("and %d more", len(names)-maxNamesTold))
		}
		return "", fmt.Errorf("%w: %d of its images match: name one as %s:NAME or %s@DIGEST; it has %s", ErrNotFound, len(found), p.dir, p.dir, strings.Join(names, ", "))
	}
	digest, err := release.ParseDigest(found[0].String())
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrIntegrity, err)
	}
	return digest, nil
}

// resolve implements place.
func (p *layoutPlace) resolve(_ context.Context, tag string) (release.Digest, error) {
	listed, err := p.listed()
	if err != nil {
		return "", err
	}
	for _, m := range listed {
		if named := m.Annotations[RefNameAnnotation]; named == tag || strings.HasSuffix(named, ":"+tag) {
			return release.ParseDigest(m.Digest.String())
		}
	}
	return "", fmt.Errorf("%w: the OCI layout %s has nothing named %s", ErrNotFound, p.dir, tag)
}

// document implements place.
func (p *layoutPlace) document(ctx context.Context, identifier string) ([]byte, error) {
	d, err := release.ParseDigest(identifier)
	if err != nil {
		if d, err = p.resolve(ctx, identifier); err != nil {
			return nil, err
		}
	}
	return p.read(p.path(d))
}

// blob implements place.
func (p *layoutPlace) blob(_ context.Context, d release.Digest) (io.ReadCloser, error) {
	return p.open(p.path(d))
}

// referrers implements place: what the layout lists and refers to the digest.
func (p *layoutPlace) referrers(_ context.Context, d release.Digest) ([]v1.Descriptor, error) {
	attached, err := p.attached()
	return attached[hashOf(d)], err
}

// lacks implements place: asking costs nothing here.
func (p *layoutPlace) lacks(context.Context, string) bool { return false }

func (p *layoutPlace) readSubjects() (map[v1.Hash][]v1.Descriptor, error) {
	listed, err := p.listed()
	if err != nil {
		return nil, err
	}
	attached := map[v1.Hash][]v1.Descriptor{}
	for _, m := range listed {
		digest, err := release.ParseDigest(m.Digest.String())
		if err != nil || !m.MediaType.IsImage() {
			continue
		}
		// What cannot be read here is no concern of the image in question.
		raw, err := p.read(p.path(digest))
		if err != nil {
			continue
		}
		doc, err := parseDocument(raw)
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

func (p *layoutPlace) path(d release.Digest) string {
	return filepath.Join(p.dir, "blobs", "sha256", d.Hex())
}

// open opens a file; anything else by its name, such as a pipe, could be waited for in vain.
func (p *layoutPlace) open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: the OCI layout %s has no file %s", ErrNotFound, p.dir, strings.TrimPrefix(path, p.dir+"/"))
	case err != nil:
		return nil, fmt.Errorf("reading the OCI layout: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is no regular file", ErrIntegrity, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the OCI layout: %w", err)
	}
	return f, nil
}

func (p *layoutPlace) read(path string) ([]byte, error) {
	f, err := p.open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, p.limits.ManifestBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the OCI layout: %w", err)
	}
	if int64(len(raw)) > p.limits.ManifestBytes {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrLimit, path, p.limits.ManifestBytes)
	}
	return raw, nil
}
