package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// Repository is a target in a registry. Create it with OpenRepository.
type Repository struct {
	repo   name.Repository
	access *registry.Access
	pusher *remote.Pusher

	mu sync.Mutex
	// clients write blobs. The key is the scope of the repository to mount from.
	clients map[string]*connection
	// subjects holds a lock for each subject, which protects the list of its referrers. Some registries leave maintaining the list to
	// their clients.
	subjects map[v1.Hash]*sync.Mutex
}

// OpenRepository returns the repository at a pullspec without tag and digest. It sends no request.
func OpenRepository(access *registry.Access, pullspec string) (*Repository, error) {
	ref, err := access.Reference(pullspec)
	if err != nil {
		return nil, err
	}
	r := &Repository{repo: ref.Context(), access: access, subjects: map[v1.Hash]*sync.Mutex{}, clients: map[string]*connection{}}
	if r.pusher, err = remote.NewPusher(access.Remote()...); err != nil {
		return nil, fmt.Errorf("preparing registry access: %w", err)
	}
	return r, nil
}

// String returns the repository as it appears in a pullspec.
func (r *Repository) String() string { return r.repo.String() }

// Holds implements Target. It checks only the manifest, because a registry rejects manifests whose blobs are missing.
func (r *Repository) Holds(ctx context.Context, doc *document.Document, _ []v1.Descriptor, tags []string) (Held, error) {
	var held Held
	for _, tag := range tags {
		found, err := r.head(ctx, r.repo.Tag(tag))
		if err != nil {
			return Held{}, err
		}
		if found == string(doc.Digest) {
			held.There = true
			continue
		}
		held.Missing = append(held.Missing, tag)
		if d, err := release.ParseDigest(found); err == nil && attached(tag) {
			present, err := r.document(ctx, d)
			if err != nil {
				return Held{}, err
			}
			if hasExtraSignatures(present, doc) {
				return Held{Kept: tag}, nil
			}
		}
	}
	if held.There {
		return held, nil
	}
	found, err := r.head(ctx, r.repo.Digest(string(doc.Digest)))
	held.There = found == string(doc.Digest)
	return held, err
}

// document reads a document from the repository.
func (r *Repository) document(ctx context.Context, d release.Digest) (*document.Document, error) {
	images, err := image.New(image.Options{Access: r.access})
	if err != nil {
		return nil, err
	}
	repository, err := images.Repository(release.Image{Pullspec: r.repo.String(), Digest: d})
	if err != nil {
		return nil, err
	}
	return repository.Document(ctx, d)
}

// head returns the digest that a reference points to; empty if the reference does not exist.
func (r *Repository) head(ctx context.Context, ref name.Reference) (string, error) {
	client, err := r.client(ctx, name.Repository{}, false)
	if err != nil {
		return "", failure.Explain("looking for", ref, err)
	}
	// The client has push scope, because some registries deny pull access to a repository that does not exist yet.
	options := append(r.access.RemoteFor(ctx), remote.WithTransport(client.Transport))
	desc, err := remote.Head(ref, options...)
	if err != nil && refusesHead(err) {
		var got *remote.Descriptor
		if got, err = remote.Get(ref, options...); err == nil {
			desc = &got.Descriptor
		}
	}
	switch {
	case failure.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", failure.Explain("looking for", ref, err)
	}
	return desc.Digest.String(), nil
}

// refusesHead reports whether a HEAD request was inconclusive: the registry does not support the method or omits the required headers.
func refusesHead(err error) bool {
	var unsent *url.Error
	if status, ok := errors.AsType[*transport.Error](err); ok {
		return status.StatusCode == http.StatusMethodNotAllowed || status.StatusCode == http.StatusNotImplemented
	}
	return !errors.As(err, &unsent) && strings.Contains(err.Error(), "response did not include")
}

// Upload implements Target. If the origin is in the same registry, it tries to mount the blob. Otherwise, it sends the blob with two
// requests, which every registry must support (OCI distribution specification, pushing a blob monolithically). The library would use three
// requests, which makes registries store the blob twice.
func (r *Repository) Upload(ctx context.Context, desc v1.Descriptor, origin name.Repository, open func() (io.ReadCloser, error)) (sent bool, err error) {
	ref := r.repo.Digest(desc.Digest.String())
	mountable := origin.RegistryStr() == r.repo.RegistryStr() && origin.RepositoryStr() != "" && origin != r.repo
	client, err := r.client(ctx, origin, mountable)
	if mountable && refused(err) {
		mountable = false
		client, err = r.client(ctx, origin, false)
	}
	if err != nil {
		return false, failure.Explain("uploading to", ref, err)
	}
	u := &upload{client: client, repo: r.repo, desc: desc}
	there, err := u.exists(ctx)
	switch {
	case err != nil:
		return false, failure.Explain("looking for", ref, err)
	case there:
		return false, nil
	}
	from := ""
	if mountable {
		from = origin.RepositoryStr()
	}
	location, mounted, err := u.begin(ctx, from)
	if mountable && refused(err) {
		location, mounted, err = u.begin(ctx, "")
	}
	switch {
	case err != nil:
		return false, failure.Explain("uploading to", ref, err)
	case mounted:
		return false, nil
	}
	if err := u.send(ctx, location, open); err != nil {
		if cause := u.cause(); cause != nil {
			return true, cause
		}
		return true, failure.Explain("uploading to", ref, err)
	}
	return true, nil
}

// refused reports whether a registry rejected a mount request. A registry that cannot mount a blob should request an upload instead. Some
// registries return an error if they do not have the blob, or hide it from this account.
func refused(err error) bool {
	status, ok := errors.AsType[*transport.Error](err)
	return ok && slices.Contains([]int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
	}, status.StatusCode)
}

// client returns a client with push scope for the repository and pull scope for the repository to mount from.
func (r *Repository) client(ctx context.Context, origin name.Repository, mountable bool) (*http.Client, error) {
	var more []string
	if mountable {
		more = append(more, origin.Scope(transport.PullScope))
	}
	key := strings.Join(more, " ")
	r.mu.Lock()
	c := r.clients[key]
	if c == nil {
		c = &connection{}
		r.clients[key] = c
	}
	r.mu.Unlock()
	c.once.Do(func() {
		c.client, c.err = r.access.Client(ctx, r.repo, append([]string{r.repo.Scope(transport.PushScope)}, more...)...)
	})
	if c.err != nil {
		// All concurrent callers fail with this error. The next attempt creates a new client.
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.clients[key] == c {
			delete(r.clients, key)
		}
	}
	return c.client, c.err
}

// connection is a client that its first user creates.
type connection struct {
	once   sync.Once
	client *http.Client
	err    error
}

// Put implements Target.
func (r *Repository) Put(ctx context.Context, doc *document.Document, tags []string) error {
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
		err := r.pusher.Put(ctx, ref, rawDocument{doc})
		if err == nil {
			continue
		}
		explained := failure.Explain("writing", ref, err)
		if doc.MediaType.IsIndex() {
			return rejectedIndex(r.repo.RegistryStr(), err, explained)
		}
		return explained
	}
	return nil
}

// RejectedIndexError means that a registry rejected an index and says that it lacks one of the index's manifests, or that the index is
// invalid, for which that may be the reason.
type RejectedIndexError struct{ error }

// Unwrap returns the explanation of the registry's response.
func (e *RejectedIndexError) Unwrap() error { return e.error }

// rejectedIndex returns the error of writing an index. Distribution has an error code for an index without one of its manifests. Other
// registries use the codes of reads, or call the index invalid.
func rejectedIndex(registry string, err, explained error) error {
	status, ok := errors.AsType[*transport.Error](err)
	if !ok {
		return explained
	}
	says := func(codes ...transport.ErrorCode) bool {
		return slices.ContainsFunc(status.Errors, func(d transport.Diagnostic) bool { return slices.Contains(codes, d.Code) })
	}
	switch {
	case says(transport.ManifestBlobUnknownErrorCode, transport.ManifestUnknownErrorCode, transport.BlobUnknownErrorCode):
		return &RejectedIndexError{fmt.Errorf("registry %s accepts an index only with all its manifests: %w", registry, err)}
	case says(transport.ManifestInvalidErrorCode):
		return &RejectedIndexError{explained}
	}
	return explained
}

// subject returns the lock of a document that others refer to.
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

// rawDocument is a document in the form that the library puts.
type rawDocument struct{ doc *document.Document }

// RawManifest implements remote.Taggable.
func (d rawDocument) RawManifest() ([]byte, error) { return d.doc.Raw, nil }

// MediaType returns the media type to declare to the registry.
func (d rawDocument) MediaType() (types.MediaType, error) { return d.doc.MediaType, nil }
