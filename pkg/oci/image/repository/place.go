package repository

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// place is a source of an image repository's content. It returns content unverified, and errors as the registry or the disk reports them.
type place interface {
	fmt.Stringer
	// resolve returns the digest of an existing tag or digest.
	resolve(ctx context.Context, identifier string) (release.Digest, error)
	// document returns a manifest or an index by digest or tag.
	document(ctx context.Context, identifier string) ([]byte, error)
	blob(ctx context.Context, d release.Digest) (io.ReadCloser, error)
	// lacks reports whether a tag is known to be missing. It sends no request for the tag itself.
	lacks(ctx context.Context, tag string) bool
	// referrers lists the documents that declare a digest as their subject.
	referrers(ctx context.Context, d release.Digest) ([]v1.Descriptor, error)
}

// remotePlace is a repository in a registry.
type remotePlace struct {
	repo   name.Repository
	puller *remote.Puller
	access *registry.Access

	listing  sync.Once
	attached map[string]bool // the attachment tags; nil if they could not be listed
}

// String implements fmt.Stringer.
func (p *remotePlace) String() string { return p.repo.String() }

func (p *remotePlace) ref(identifier string) name.Reference { return reference(p.repo, identifier) }

// reference returns the reference to a digest or tag in a repository.
func reference(repo name.Repository, identifier string) name.Reference {
	if d, err := release.ParseDigest(identifier); err == nil {
		return repo.Digest(string(d))
	}
	return repo.Tag(identifier)
}

// resolve implements place. Some registries reject HEAD or omit headers, so a failed HEAD falls back to GET, unless the registry does not
// respond at all. A wrong digest is detected later, when content is fetched by digest.
func (p *remotePlace) resolve(ctx context.Context, identifier string) (release.Digest, error) {
	ref := p.ref(identifier)
	hash := v1.Hash{}
	if desc, err := p.puller.Head(ctx, ref); err == nil {
		hash = desc.Digest
	} else if failure.IsSlow(err) {
		return "", err
	} else if desc, err := p.puller.Get(ctx, ref); err == nil {
		hash = desc.Digest
	} else {
		return "", err
	}
	return release.ParseDigest(hash.String())
}

// document implements place.
func (p *remotePlace) document(ctx context.Context, identifier string) ([]byte, error) {
	desc, err := p.puller.Get(ctx, p.ref(identifier))
	if err != nil && strings.HasPrefix(err.Error(), "manifest digest: ") {
		// The library detects a wrong digest, but has no error type for it.
		return nil, fmt.Errorf("%w: %w", failure.ErrIntegrity, err)
	}
	if err != nil {
		return nil, err
	}
	return desc.Manifest, nil
}

// blob implements place.
func (p *remotePlace) blob(ctx context.Context, d release.Digest) (io.ReadCloser, error) {
	// The "urls" of a descriptor are ignored, because they would let an image name arbitrary hosts.
	t := &tap{}
	layer, err := p.puller.Layer(context.WithValue(ctx, tapKey{}, t), p.repo.Digest(string(d)))
	if err != nil {
		return nil, err
	}
	closer, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	if t.response == nil {
		return closer, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{t.response.Body, closer}, nil
}

// tap gives access to the requests of the library. It avoids hashing twice: the library wraps a blob's body to hash it, but our readers must
// hash it too, because they resume at other places. It also reads lists with several pages, of which the library reads only the first.
type tap struct {
	// response is the latest response.
	response *http.Response
	// page replaces the path and the query of requests for the referrers of a digest; nil for the first page.
	page *url.URL
}

type tapKey struct{}

// tappedTransport serves the tap in a request's context.
type tappedTransport struct{ inner http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t tappedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	tap, ok := req.Context().Value(tapKey{}).(*tap)
	if !ok {
		return t.inner.RoundTrip(req)
	}
	if tap.page != nil && strings.Contains(req.URL.Path, "/referrers/sha256:") {
		req = req.Clone(req.Context())
		req.URL.Path, req.URL.RawPath, req.URL.RawQuery = tap.page.Path, tap.page.RawPath, tap.page.RawQuery
	}
	resp, err := t.inner.RoundTrip(req)
	if err == nil {
		tap.response = resp
	}
	return resp, err
}

func newPuller(access *registry.Access) (*remote.Puller, error) {
	puller, err := remote.NewPuller(append(access.Remote(), remote.WithTransport(tappedTransport{access.Transport()}))...)
	if err != nil {
		return nil, fmt.Errorf("preparing registry access: %w", err)
	}
	return puller, nil
}

// maxTagPages is the maximum number of pages of tags that are read to save lookups of individual tags. A page usually has a thousand tags.
const maxTagPages = 5

// lacks implements place. It ignores a tag list that is refused, empty or too long.
func (p *remotePlace) lacks(ctx context.Context, tag string) bool {
	p.listing.Do(func() { p.attached = p.attachedTags(ctx) })
	return p.attached != nil && !p.attached[tag]
}

func (p *remotePlace) attachedTags(ctx context.Context) map[string]bool {
	lister, err := p.puller.Lister(ctx, p.repo)
	if err != nil {
		return nil
	}
	attached, empty := map[string]bool{}, true
	for range maxTagPages {
		if !lister.HasNext() {
			break
		}
		page, err := lister.Next(ctx)
		if err != nil {
			return nil
		}
		for _, tag := range page.Tags {
			empty = false
			if attachedName(tag) {
				attached[tag] = true
			}
		}
	}
	if empty || lister.HasNext() {
		return nil
	}
	return attached
}

// maxReferrerPages is the maximum number of pages of referrers that are read. A page has up to 4 MiB.
const maxReferrerPages = 10

// referrers implements place. It uses the referrers API, or the fallback tag if the registry does not have the API (OCI distribution
// specification). After an error, it returns the pages read so far.
func (p *remotePlace) referrers(ctx context.Context, d release.Digest) (found []v1.Descriptor, err error) {
	t := &tap{}
	ctx = context.WithValue(ctx, tapKey{}, t)
	for range maxReferrerPages {
		listed, err := p.referrersPage(ctx, d)
		if err != nil {
			return found, err
		}
		found = append(found, listed...)
		if t.page, err = p.nextPage(t.response); t.page == nil || err != nil {
			return found, err
		}
	}
	return found, fmt.Errorf("%w: the list of referrers has more than %d pages; ignoring the rest", failure.ErrLimit, maxReferrerPages)
}

func (p *remotePlace) referrersPage(ctx context.Context, d release.Digest) ([]v1.Descriptor, error) {
	// The puller is already authenticated, but does not pass the context.
	index, err := remote.Referrers(p.repo.Digest(string(d)), append(p.access.RemoteFor(ctx), remote.Reuse(p.puller))...)
	if err != nil {
		return nil, err
	}
	raw, err := index.RawManifest()
	if err != nil {
		return nil, err
	}
	doc, err := document.Parse(raw)
	if err != nil {
		return nil, err
	}
	// The rest of a descriptor, such as its annotations, may be large, and is not needed.
	for i, m := range doc.Manifests {
		doc.Manifests[i] = v1.Descriptor{MediaType: m.MediaType, Size: m.Size, Digest: m.Digest, ArtifactType: m.ArtifactType}
	}
	return doc.Manifests, nil
}

// nextLink matches the next page in a Link header (RFC 8288).
var nextLink = regexp.MustCompile(`<([^>]*)>[^,]*;\s*rel="?next"?`)

// nextPage returns the address of the next page of a list, nil after the last page.
func (p *remotePlace) nextPage(resp *http.Response) (*url.URL, error) {
	link := nextLink.FindStringSubmatch(strings.Join(resp.Header.Values("Link"), ","))
	if link == nil {
		return nil, nil
	}
	next, err := resp.Request.URL.Parse(link[1])
	if err != nil {
		return nil, fmt.Errorf("%w: the list of referrers has an invalid Link: %w", failure.ErrIntegrity, err)
	}
	if next.Host != p.repo.RegistryStr() {
		return nil, fmt.Errorf("%w: the list of referrers continues on another host, %s", failure.ErrIntegrity, next.Host)
	}
	return next, nil
}
