// Package image reads release images, from registries and their mirrors and from OCI layouts on this machine alike: it
// resolves a pullspec to a digest, fetches by digest the files of the two manifest folders of an image's layers, and
// what lies beside an image, such as signatures. It verifies digests, follows no links and keeps to limits; what the
// files mean, and whether anybody signed them, is for others.
package image

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// Kinds of failure that callers tell apart with errors.Is.
var (
	// ErrUnauthorized means that the registry wants other credentials.
	ErrUnauthorized = registry.ErrUnauthorized
	// ErrNotFound means that the registry does not have what was asked for.
	ErrNotFound = registry.ErrNotFound
	// ErrIntegrity means that content is not what its digest says, or that an image is not built as images are.
	ErrIntegrity = errors.New("integrity check failed")
	// ErrLimit means that reading on would take more than Limits allow.
	ErrLimit = registry.ErrLimit
)

// Options configure a Reader. The zero value reaches registries as the zero registry.Options do, and keeps nothing on
// disk.
type Options struct {
	// Access reaches the registries.
	Access *registry.Access
	// CacheDir holds an OCI image layout that fetched content is kept in and read from; empty keeps nothing.
	CacheDir string
	// CacheLimitBytes and CacheAge are what Prune cuts the cache folder back to; default no limit.
	CacheLimitBytes int64
	CacheAge        time.Duration
	// Clock tells when something in the cache was used; default the system's.
	Clock clock.PassiveClock
	// Limits bound what one image may cost.
	Limits Limits
	// Platform, such as "linux/arm64", chooses from an index; default this machine's architecture on linux, or the only
	// one there is.
	Platform string
	// Progress, if set, is told how far each layer is. Layers are fetched side by side, but calls do not overlap.
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
	// UnpackedBytes bounds all layers together, decompressed; default 4 GiB.
	UnpackedBytes int64
	// Ratio bounds how much larger a layer may become by decompression, once past 64 MiB; default 200.
	Ratio int64
	// Entries bounds the files and folders of all layers together; default 300,000.
	Entries int
	// Files bounds the files in the two manifest folders; default 20,000.
	Files int
	// FileBytes bounds each of them; default 8 MiB.
	FileBytes int64
	// TotalBytes bounds them together; default 128 MiB.
	TotalBytes int64
	// Manifests bounds the images of an index; default 1,000.
	Manifests int
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
	setDefault(&l.UnpackedBytes, 4<<30)
	setDefault(&l.Ratio, 200)
	setDefault(&l.Entries, 300_000)
	setDefault(&l.Files, 20_000)
	setDefault(&l.FileBytes, 8<<20)
	setDefault(&l.TotalBytes, 128<<20)
	setDefault(&l.Manifests, 1000)
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
	// Cached is set if they come from the cache folder; From is the mirror, repository or layout they come from otherwise.
	Cached bool
	From   string
}

// Reader reads images. It is safe for concurrent use; nothing of it is specific to one registry host.
type Reader struct {
	opts     Options
	platform *v1.Platform
	cache    *cache
	progress sync.Mutex // held while Progress is told
}

// New checks the options and prepares the cache folder.
func New(opts Options) (*Reader, error) {
	opts.Limits = opts.Limits.WithDefaults()
	if opts.Access == nil {
		opts.Access = registry.New(registry.Options{})
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	r := &Reader{opts: opts}
	if opts.Platform != "" {
		platform, err := v1.ParsePlatform(opts.Platform)
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return nil, fmt.Errorf("platform %q is not <os>/<architecture>", opts.Platform)
		}
		r.platform = platform
	}
	if opts.CacheDir != "" {
		c, err := openCache(opts.CacheDir, opts.Clock)
		if err != nil {
			return nil, err
		}
		r.cache = c
	}
	return r, nil
}

// Access is how this reader reaches registries.
func (r *Reader) Access() *registry.Access { return r.opts.Access }

// Resolve asks for the digest that a pullspec stands for now: of the index, if it names one. A pullspec that carries a
// digest is resolved without asking anybody; DIR, DIR:NAME and DIR@DIGEST name an image of an OCI layout on this machine.
func (r *Reader) Resolve(ctx context.Context, pullspec string) (release.Image, error) {
	if dir, want, ok := layoutReference(pullspec); ok {
		digest, err := newLayoutPlace(dir, r.opts.Limits).image(want)
		if err != nil {
			return release.Image{}, fmt.Errorf("opening the OCI layout %s: %w", pullspec, err)
		}
		return release.Image{Pullspec: pullspec, Digest: digest}, nil
	}
	ref, err := r.opts.Access.Reference(pullspec)
	if err != nil {
		return release.Image{}, err
	}
	if byDigest, ok := ref.(name.Digest); ok {
		digest, err := release.ParseDigest(byDigest.DigestStr())
		return release.Image{Pullspec: pullspec, Digest: digest}, err
	}
	s, err := r.remotes(ref)
	if err != nil {
		return release.Image{}, err
	}
	var digest release.Digest
	err = s.try(ctx, wish{doing: "resolving", identifier: ref.Identifier()}, func(p place) (err error) {
		digest, err = p.resolve(ctx, ref.Identifier())
		return err
	})
	if err != nil {
		return release.Image{}, err
	}
	return release.Image{Pullspec: pullspec, Digest: digest}, nil
}

func (r *Reader) puller() (*remote.Puller, error) {
	options := r.opts.Access.Remote()
	puller, err := remote.NewPuller(append(options, remote.WithTransport(tappedTransport{r.opts.Access.Transport()}))...)
	if err != nil {
		return nil, fmt.Errorf("preparing registry access: %w", err)
	}
	return puller, nil
}
