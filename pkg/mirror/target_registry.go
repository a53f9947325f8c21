package mirror

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

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// Repository is a target: a repository of a registry. Make it with OpenRepository.
type Repository struct {
	repo   name.Repository
	access *registry.Access
	pusher *remote.Pusher

	mu sync.Mutex
	// clients write blobs, by the repositories that these may be mounted from.
	clients map[string]*connection
	// subjects are locked while their list of referrers is written, which some registries leave to their clients.
	subjects map[v1.Hash]*sync.Mutex
}

// OpenRepository returns the repository that a pullspec without tag and digest names. Nothing is asked yet.
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

// String is the repository as a pullspec starts.
func (r *Repository) String() string { return r.repo.String() }

// Holds implements Target. A registry takes no manifest whose blobs it does not have, so it is asked for that alone.
func (r *Repository) Holds(ctx context.Context, doc *image.Document, _ []v1.Descriptor, tags []string) (Held, error) {
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
			if keeps(present, doc) {
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

// document reads what the repository has.
func (r *Repository) document(ctx context.Context, d release.Digest) (*image.Document, error) {
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

// head returns the digest of what the registry has; nothing if it does not have it.
func (r *Repository) head(ctx context.Context, ref name.Reference) (string, error) {
	client, err := r.client(ctx, name.Repository{}, false)
	if err != nil {
		return "", registry.Explain("looking for", ref, err)
	}
	// With the right to write: of a repository that is yet to be made, some registries give nobody the right to read.
	options := append(r.access.Remote(), remote.WithContext(ctx), remote.WithTransport(client.Transport))
	desc, err := remote.Head(ref, options...)
	if err != nil && refusesHead(err) {
		var got *remote.Descriptor
		if got, err = remote.Get(ref, options...); err == nil {
			desc = &got.Descriptor
		}
	}
	switch {
	case registry.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", registry.Explain("looking for", ref, err)
	}
	return desc.Digest.String(), nil
}

// refusesHead reports whether a registry answered a HEAD request in a way that says nothing: that it knows no such
// requests, or without the headers that are all of the answer.
func refusesHead(err error) bool {
	var unsent *url.Error
	if status, ok := errors.AsType[*transport.Error](err); ok {
		return status.StatusCode == http.StatusMethodNotAllowed || status.StatusCode == http.StatusNotImplemented
	}
	return !errors.As(err, &unsent) && strings.Contains(err.Error(), "response did not include")
}

// Upload implements Target. A blob that the same registry has in the repository it comes from is mounted. Any other is
// sent by two requests, as registries must allow (OCI distribution specification, pushing a blob monolithically): the
// library takes three, and has registries hold the blob once more in between.
func (r *Repository) Upload(ctx context.Context, desc v1.Descriptor, origin name.Repository, open func() (io.ReadCloser, error)) (sent bool, err error) {
	ref := r.repo.Digest(desc.Digest.String())
	mountable := origin.RegistryStr() == r.repo.RegistryStr() && origin.RepositoryStr() != "" && origin != r.repo
	client, err := r.client(ctx, origin, mountable)
	if mountable && refused(err) {
		mountable = false
		client, err = r.client(ctx, origin, false)
	}
	if err != nil {
		return false, registry.Explain("uploading to", ref, err)
	}
	u := &upload{client: client, repo: r.repo, desc: desc}
	there, err := u.there(ctx)
	switch {
	case err != nil:
		return false, registry.Explain("looking for", ref, err)
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
		return false, registry.Explain("uploading to", ref, err)
	case mounted:
		return false, nil
	}
	if err := u.send(ctx, location, open); err != nil {
		if cause := u.cause(); cause != nil {
			return true, cause
		}
		return true, registry.Explain("uploading to", ref, err)
	}
	return true, nil
}

// refused reports whether a registry says no to a request as such. To one that mounts, it should say that it wants the
// bytes instead; not all do, where they lack the blob or do not let this account see it there.
func refused(err error) bool {
	status, ok := errors.AsType[*transport.Error](err)
	return ok && slices.Contains([]int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
	}, status.StatusCode)
}

// client is one that has the right to write to the repository, and to read the one that blobs are mounted from.
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
		// Whoever waited for it has failed as well, another attempt begins anew.
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.clients[key] == c {
			delete(r.clients, key)
		}
	}
	return c.client, c.err
}

// connection is a client that is made by the first who needs it.
type connection struct {
	once   sync.Once
	client *http.Client
	err    error
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

// digestOf is the digest that a descriptor names.
func digestOf(desc v1.Descriptor) (release.Digest, error) {
	d, err := release.ParseDigest(desc.Digest.String())
	if err != nil {
		return "", fmt.Errorf("%w: %w", image.ErrIntegrity, err)
	}
	return d, nil
}
