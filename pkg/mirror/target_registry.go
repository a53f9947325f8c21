package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// Repository is a target: a repository of a registry. Make it with OpenRepository.
type Repository struct {
	repo   name.Repository
	access *registry.Access
	pusher *remote.Pusher
	puller *remote.Puller

	mu sync.Mutex
	// subjects are locked while their list of referrers is written, which some registries leave to their clients.
	subjects map[v1.Hash]*sync.Mutex
}

// OpenRepository returns the repository that a pullspec without tag and digest names. Nothing is asked yet.
func OpenRepository(access *registry.Access, pullspec string) (*Repository, error) {
	ref, err := access.Reference(pullspec)
	if err != nil {
		return nil, err
	}
	r := &Repository{repo: ref.Context(), access: access, subjects: map[v1.Hash]*sync.Mutex{}}
	if r.pusher, err = remote.NewPusher(access.Remote()...); err != nil {
		return nil, fmt.Errorf("preparing registry access: %w", err)
	}
	if r.puller, err = remote.NewPuller(access.Remote()...); err != nil {
		return nil, fmt.Errorf("preparing registry access: %w", err)
	}
	return r, nil
}

// String is the repository as a pullspec starts.
func (r *Repository) String() string { return r.repo.String() }

// Holds implements Target. A registry takes no manifest whose blobs it does not have, so it is asked for that alone.
func (r *Repository) Holds(ctx context.Context, doc *image.Document, _ []v1.Descriptor, tags []string) (there bool, missing []string, err error) {
	for _, tag := range tags {
		found, err := r.head(ctx, r.repo.Tag(tag))
		if err != nil {
			return false, nil, err
		}
		if found != string(doc.Digest) {
			missing = append(missing, tag)
		}
	}
	if len(missing) < len(tags) {
		return true, missing, nil
	}
	found, err := r.head(ctx, r.repo.Digest(string(doc.Digest)))
	return found == string(doc.Digest), missing, err
}

// head returns the digest of what the registry has; nothing if it does not have it.
func (r *Repository) head(ctx context.Context, ref name.Reference) (string, error) {
	desc, err := r.puller.Head(ctx, ref)
	switch {
	case registry.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", registry.Explain("looking for", ref, err)
	}
	return desc.Digest.String(), nil
}

// Upload implements Target. A blob that the same registry has in the repository it comes from is mounted.
func (r *Repository) Upload(ctx context.Context, desc v1.Descriptor, origin name.Repository, open func() (io.ReadCloser, error)) (sent bool, err error) {
	blob := &blobLayer{desc: desc, open: open}
	var layer v1.Layer = blob
	if origin.RegistryStr() == r.repo.RegistryStr() && origin.RepositoryStr() != "" && origin != r.repo {
		layer = &remote.MountableLayer{Layer: blob, Reference: origin.Digest(desc.Digest.String())}
	}
	if err := r.pusher.Upload(ctx, r.repo, layer); err != nil {
		return false, blob.cause(registry.Explain("uploading to", r.repo.Digest(desc.Digest.String()), err))
	}
	return blob.opened, nil
}

// Put implements Target.
func (r *Repository) Put(ctx context.Context, doc *image.Document, tags []string) error {
	if doc.Subject != nil {
		lock := r.subject(doc.Subject.Digest)
		lock.Lock()
		defer lock.Unlock()
	}
	refs := make([]name.Reference, 0, len(tags))
	for _, tag := range tags {
		refs = append(refs, r.repo.Tag(tag))
	}
	if len(refs) == 0 {
		refs = append(refs, r.repo.Digest(string(doc.Digest)))
	}
	for _, ref := range refs {
		if err := r.pusher.Put(ctx, ref, rawDocument{doc}); err != nil {
			return registry.Explain("writing", ref, err)
		}
	}
	return nil
}

// subject is the lock of what other documents refer to.
func (r *Repository) subject(h v1.Hash) *sync.Mutex {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.subjects[h] == nil {
		r.subjects[h] = &sync.Mutex{}
	}
	return r.subjects[h]
}

// Close implements Target.
func (r *Repository) Close() error { return nil }

// rawDocument is a manifest as the library takes it.
type rawDocument struct{ doc *image.Document }

// RawManifest implements remote.Taggable.
func (d rawDocument) RawManifest() ([]byte, error) { return d.doc.Raw, nil }

// MediaType says what the registry is told that it is.
func (d rawDocument) MediaType() (types.MediaType, error) { return d.doc.MediaType, nil }

// blobLayer is a blob as the library takes it. It is opened only if the registry does not have it.
type blobLayer struct {
	desc   v1.Descriptor
	open   func() (io.ReadCloser, error)
	opened bool
	failed error
}

var errOnlyCompressed = errors.New("a blob is copied as it is")

// cause is why the blob could not be read, if that is what went wrong.
func (l *blobLayer) cause(err error) error {
	if l.failed != nil {
		return l.failed
	}
	return err
}

// Compressed implements v1.Layer.
func (l *blobLayer) Compressed() (io.ReadCloser, error) {
	l.opened, l.failed = true, nil
	if l.desc.Size == 0 {
		return http.NoBody, nil
	}
	body, err := l.open()
	if err != nil {
		l.failed = err
		return nil, err
	}
	return &blobBody{ReadCloser: body, layer: l}, nil
}

// Digest implements v1.Layer.
func (l *blobLayer) Digest() (v1.Hash, error) { return l.desc.Digest, nil }

// Size implements v1.Layer.
func (l *blobLayer) Size() (int64, error) { return l.desc.Size, nil }

// MediaType implements v1.Layer.
func (l *blobLayer) MediaType() (types.MediaType, error) { return l.desc.MediaType, nil }

// DiffID implements v1.Layer.
func (l *blobLayer) DiffID() (v1.Hash, error) { return v1.Hash{}, errOnlyCompressed }

// Uncompressed implements v1.Layer.
func (l *blobLayer) Uncompressed() (io.ReadCloser, error) { return nil, errOnlyCompressed }

// blobBody remembers what its source did wrong, of which an upload says only that it broke off.
type blobBody struct {
	io.ReadCloser
	layer *blobLayer
}

// Read implements io.Reader.
func (b *blobBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.layer.failed = err
	}
	return n, err
}

// digestOf is the digest that a descriptor names.
func digestOf(desc v1.Descriptor) (release.Digest, error) {
	d, err := release.ParseDigest(desc.Digest.String())
	if err != nil {
		return "", fmt.Errorf("%w: %w", image.ErrIntegrity, err)
	}
	return d, nil
}
