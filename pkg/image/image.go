// Package image reads release images from a registry: it resolves a pullspec to a digest, fetches by digest the files
// of the two manifest folders of an image's layers, and the signatures that lie beside an image. It verifies digests,
// follows no links and keeps to limits; what the files mean, and whether anybody signed them, is for others.
package image

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/cluster-version/cvo/pkg/release"
)

// Kinds of failure that callers tell apart with errors.Is.
var (
	// ErrUnauthorized means that the registry wants other credentials.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrNotFound means that the registry does not have what was asked for.
	ErrNotFound = errors.New("not found")
	// ErrIntegrity means that content is not what its digest says, or that an image is not built as images are.
	ErrIntegrity = errors.New("integrity check failed")
	// ErrLimit means that reading on would take more than Limits allow.
	ErrLimit = errors.New("limit exceeded")
)

// Options configure a Registry. The zero value reads public registries over TLS, with the credentials that the user's
// container tools have stored, and keeps nothing on disk.
type Options struct {
	// Keychain finds credentials; default authn.DefaultKeychain.
	Keychain authn.Keychain
	// Transport carries the requests; default remote.DefaultTransport. It is where TLS roots and proxies are set.
	Transport http.RoundTripper
	// InsecureRegistries may be spoken to without TLS, each as host or host:port. Loopback addresses always may.
	InsecureRegistries []string
	// CacheDir holds an OCI image layout that fetched content is kept in and read from; empty keeps nothing.
	CacheDir string
	// Limits bound what one image may cost.
	Limits Limits
	// Platform, such as "linux/arm64", chooses from an index; default this machine's architecture on linux, or the only
	// one there is.
	Platform string
	// Progress, if set, is told how far each layer is, from the goroutine that reads.
	Progress func(Progress)
}

// Limits bound what reading one image may cost. The zero value stands for the defaults.
type Limits struct {
	// ManifestBytes bounds each image manifest and index; default 4 MiB, as registries do.
	ManifestBytes int64
	// LayerBytes bounds each layer as it comes over the network; default 2 GiB.
	LayerBytes int64
	// Layers bounds the layers of an image; default 512.
	Layers int
	// UnpackedBytes bounds all layers together, decompressed; default 16 GiB.
	UnpackedBytes int64
	// Ratio bounds how much larger a layer may become by decompression, once past 64 MiB; default 200.
	Ratio int64
	// Entries bounds the files and folders of all layers together; default 2,000,000.
	Entries int
	// Files bounds the files in the two manifest folders; default 20,000.
	Files int
	// FileBytes bounds each of them; default 8 MiB.
	FileBytes int64
	// TotalBytes bounds them together; default 128 MiB.
	TotalBytes int64
	// Attachments bounds the signatures beside an image; default 64.
	Attachments int
	// AttachmentBytes bounds each of them; default 1 MiB.
	AttachmentBytes int64
}

// WithDefaults returns the limits with every zero replaced by its default.
func (l Limits) WithDefaults() Limits {
	setDefault(&l.ManifestBytes, 4<<20)
	setDefault(&l.LayerBytes, 2<<30)
	setDefault(&l.Layers, 512)
	setDefault(&l.UnpackedBytes, 16<<30)
	setDefault(&l.Ratio, 200)
	setDefault(&l.Entries, 2_000_000)
	setDefault(&l.Files, 20_000)
	setDefault(&l.FileBytes, 8<<20)
	setDefault(&l.TotalBytes, 128<<20)
	setDefault(&l.Attachments, 64)
	setDefault(&l.AttachmentBytes, 1<<20)
	return l
}

func setDefault[T int | int64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Progress tells how far one layer is.
type Progress struct {
	// Layer is the layer's digest, Index its position from 1, Layers how many there are.
	Layer         release.Digest
	Index, Layers int
	// Bytes of Total have been read.
	Bytes, Total int64
	// Cached is set if they come from disk.
	Cached bool
}

// Registry reads images. It is safe for concurrent use; nothing of it is specific to one registry host.
type Registry struct {
	opts     Options
	platform *v1.Platform
	cache    *cache
}

// New checks the options and prepares the cache folder.
func New(opts Options) (*Registry, error) {
	opts.Limits = opts.Limits.WithDefaults()
	if opts.Keychain == nil {
		opts.Keychain = authn.DefaultKeychain
	}
	if opts.Transport == nil {
		opts.Transport = remote.DefaultTransport
	}
	r := &Registry{opts: opts}
	if opts.Platform != "" {
		platform, err := v1.ParsePlatform(opts.Platform)
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return nil, fmt.Errorf("platform %q is not <os>/<architecture>", opts.Platform)
		}
		r.platform = platform
	}
	if opts.CacheDir != "" {
		c, err := openCache(opts.CacheDir)
		if err != nil {
			return nil, err
		}
		r.cache = c
	}
	return r, nil
}

// Resolve asks the registry for the digest that a pullspec stands for now: of the index, if it names one. A pullspec
// that carries a digest is resolved without asking anybody.
func (r *Registry) Resolve(ctx context.Context, pullspec string) (release.Image, error) {
	ref, err := r.parse(pullspec)
	if err != nil {
		return release.Image{}, err
	}
	if byDigest, ok := ref.(name.Digest); ok {
		digest, err := release.ParseDigest(byDigest.DigestStr())
		return release.Image{Pullspec: pullspec, Digest: digest}, err
	}
	puller, err := r.puller()
	if err != nil {
		return release.Image{}, err
	}
	// HEAD may be refused or lack headers where GET works, so its failure is not yet an answer; a lie about the digest
	// shows when the content is fetched by it.
	hash := v1.Hash{}
	if desc, err := puller.Head(ctx, ref); err == nil {
		hash = desc.Digest
	} else if desc, err := puller.Get(ctx, ref); err == nil {
		hash = desc.Digest
	} else {
		return release.Image{}, explain("resolving", ref, err)
	}
	digest, err := release.ParseDigest(hash.String())
	if err != nil {
		return release.Image{}, fmt.Errorf("resolving %s: %w", ref, err)
	}
	return release.Image{Pullspec: pullspec, Digest: digest}, nil
}

// parse reads a pullspec and refuses to speak to registries without TLS unless that was allowed. (The library itself
// allows it for private addresses, which would send credentials over them in the clear.)
func (r *Registry) parse(pullspec string) (name.Reference, error) {
	var options []name.Option
	ref, err := name.ParseReference(pullspec)
	if err != nil {
		return nil, fmt.Errorf("pullspec %q: %w", pullspec, err)
	}
	host := ref.Context().RegistryStr()
	switch {
	case r.insecure(host):
		options = append(options, name.Insecure)
	case ref.Context().Scheme() == "http" && !loopback(host):
		return nil, fmt.Errorf("pullspec %q: registry %s would be spoken to without TLS: allow it as an insecure registry, or use a name with a certificate", pullspec, host)
	}
	ref, err = name.ParseReference(pullspec, options...)
	if err != nil {
		return nil, fmt.Errorf("pullspec %q: %w", pullspec, err)
	}
	return ref, nil
}

func (r *Registry) insecure(registry string) bool {
	host, _, err := net.SplitHostPort(registry)
	if err != nil {
		host = registry
	}
	return slices.Contains(r.opts.InsecureRegistries, registry) || slices.Contains(r.opts.InsecureRegistries, host)
}

func loopback(registry string) bool {
	host, _, err := net.SplitHostPort(registry)
	if err != nil {
		host = strings.Trim(registry, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// digestRef is the reference to an image's own repository by digest.
func (r *Registry) digestRef(img release.Image) (name.Digest, error) {
	if _, err := release.ParseDigest(string(img.Digest)); err != nil {
		return name.Digest{}, fmt.Errorf("image %q: %w", img.Pullspec, err)
	}
	ref, err := r.parse(img.ByDigest())
	if err != nil {
		return name.Digest{}, err
	}
	byDigest, ok := ref.(name.Digest)
	if !ok {
		return name.Digest{}, fmt.Errorf("image %q: not a reference by digest", img.ByDigest())
	}
	return byDigest, nil
}

// options are those of one operation. The library remembers the outcome of its first contact with a registry, failures
// too, so nothing is shared between operations.
func (r *Registry) options() []remote.Option {
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	if r.platform != nil {
		platform = *r.platform
	}
	return []remote.Option{
		remote.WithAuthFromKeychain(r.opts.Keychain),
		remote.WithTransport(boundedTransport{inner: r.opts.Transport, limit: r.opts.Limits.ManifestBytes}),
		remote.WithPlatform(platform),
		remote.WithUserAgent("cvo"),
		remote.WithRetryBackoff(remote.Backoff{Duration: 200 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 4}),
	}
}

func (r *Registry) puller() (*remote.Puller, error) {
	puller, err := remote.NewPuller(r.options()...)
	if err != nil {
		return nil, fmt.Errorf("preparing registry access: %w", err)
	}
	return puller, nil
}

// explain gives a registry's refusal its kind and its remedy.
func explain(doing string, ref name.Reference, err error) error {
	host := ref.Context().RegistryStr()
	var status *transport.Error
	if !errors.As(err, &status) {
		return fmt.Errorf("%s %s: %w", doing, ref, err)
	}
	switch status.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%s %s: %w: registry %s refuses access to %s: add credentials for %s to the pull secret, or check those that are there: %w",
			doing, ref, ErrUnauthorized, host, ref.Context().RepositoryStr(), host, err)
	case http.StatusNotFound:
		return fmt.Errorf("%s %s: %w: registry %s has no %s in %s: check the pullspec, or mirror the image there: %w",
			doing, ref, ErrNotFound, host, ref.Identifier(), ref.Context().RepositoryStr(), err)
	default:
		return fmt.Errorf("%s %s: %w", doing, ref, err)
	}
}
