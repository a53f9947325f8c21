// Package image reads release images from registries, their mirrors and local OCI layouts. It resolves a pullspec to a digest. For a
// digest, it returns the files in the image's two manifest folders, the attached signatures and the configuration. It verifies digests and
// follows no links. Its subpackages implement the sources of content, the cache and the layers. Other packages interpret the files and
// verify signatures.
//
// Limits bound the cost of reading one image. The defaults are:
//
//	an image manifest or index            4 MiB; 1,000 images in an index
//	the layers                            512; 2 GiB each as transferred
//	all layers, unpacked                  4 GiB and 300,000 entries; a compression ratio of 200 beyond 64 MiB
//	the files in the manifest folders     20,000; 8 MiB each, 128 MiB together
//	the signatures attached to an image   64 in each mirror or registry; 1 MiB each, about 8 MiB together
package image

import (
	"context"
	"fmt"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/oci/image/cache"
	"github.com/cluster-version/cvo/pkg/oci/image/layer"
	"github.com/cluster-version/cvo/pkg/oci/image/repository"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// Options configure a Reader. The zero value uses the zero registry.Options and stores nothing on disk.
type Options struct {
	// Access connects to the registries; nil uses the zero registry.Options.
	Access *registry.Access
	// CacheDir is the folder of an OCI image layout that caches fetched content; empty disables the cache.
	CacheDir string
	// Prune reduces the cache folder to CacheLimitBytes; zero means no limit.
	CacheLimitBytes int64
	// Clock is the clock for times of last use in the cache; default the system clock.
	Clock clock.PassiveClock
	// Limits bound the cost of reading one image. Zero fields use the defaults.
	Limits Limits
	// Platform, such as "linux/arm64", selects an image from an index. The default is linux on this machine's architecture, or the only
	// image of the index.
	Platform string
	// Progress, if set, receives the progress of each layer. Layers are fetched in parallel, but calls do not overlap.
	Progress func(Progress)
}

// Limits bound the cost of reading one image. Zero fields use the defaults.
type Limits struct {
	// Limits for the layers.
	layer.Limits
	// ManifestBytes bounds each image manifest and index; default 4 MiB, the usual limit of registries.
	ManifestBytes int64
	// Manifests bounds the number of images in an index; default 1,000.
	Manifests int
	// Attachments bounds the number of signatures attached to an image in each of its places; default 64.
	Attachments int
	// AttachmentBytes bounds the size of each signature with its annotations; default 1 MiB. AllAttachmentBytes bounds the size of the
	// signatures in one place with their manifests; default 8 MiB. The last one may exceed it.
	AttachmentBytes, AllAttachmentBytes int64
}

// WithDefaults returns the limits with zero fields replaced by their defaults.
func (l Limits) WithDefaults() Limits {
	l.Limits = l.Limits.WithDefaults()
	setDefault(&l.ManifestBytes, 4<<20)
	setDefault(&l.Manifests, 1000)
	setDefault(&l.Attachments, 64)
	setDefault(&l.AttachmentBytes, 1<<20)
	setDefault(&l.AllAttachmentBytes, 8<<20)
	return l
}

func setDefault[T int | int64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Progress is the progress of fetching one layer.
type Progress struct {
	// Index is the layer's position (from 1) among Layers layers.
	Index, Layers int
	// Bytes is the number of bytes read so far, Total the size of the layer.
	Bytes, Total int64
	// From is the mirror, repository or layout, empty for the cache folder.
	From string
}

// Reader reads images from any registry. It is safe for concurrent use.
type Reader struct {
	opts     Options
	sources  repository.Options
	cache    *cache.Folder
	progress sync.Mutex // held during calls to Options.Progress
}

// New returns a Reader. It fails if the platform is malformed or the cache folder is unusable.
func New(opts Options) (*Reader, error) {
	opts.Limits = opts.Limits.WithDefaults()
	if opts.Access == nil {
		opts.Access = registry.New(registry.Options{})
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	r := &Reader{opts: opts}
	r.sources = repository.Options{
		Access: opts.Access, ManifestBytes: opts.Limits.ManifestBytes, BlobBytes: opts.Limits.LayerBytes, Manifests: opts.Limits.Manifests,
	}
	if opts.Platform != "" {
		platform, err := v1.ParsePlatform(opts.Platform)
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return nil, fmt.Errorf("platform %q is not <os>/<architecture>", opts.Platform)
		}
		r.sources.Platform = platform
	}
	if opts.CacheDir != "" {
		c, err := cache.Open(opts.CacheDir, opts.Clock)
		if err != nil {
			return nil, err
		}
		r.cache, r.sources.Cache = c, c
	}
	return r, nil
}

// Access returns the reader's access to registries.
func (r *Reader) Access() *registry.Access { return r.opts.Access }

// Resolve returns the digest that a pullspec currently refers to. This may be the digest of an index. A pullspec with a digest needs no
// request. DIR, DIR:NAME and DIR@DIGEST refer to an image in a local OCI layout.
func (r *Reader) Resolve(ctx context.Context, pullspec string) (release.Image, error) {
	return repository.Resolve(ctx, r.sources, pullspec)
}

// Repository returns the sources of an image's content. It sends no request.
func (r *Reader) Repository(img release.Image) (*repository.Repository, error) {
	return repository.Open(r.sources, img)
}

// Prune removes the least recently used files from the cache folder until the rest is within Options.CacheLimitBytes. It keeps the files of
// the images in keep and the files in use by any process. Without a cache folder, it does nothing.
func (r *Reader) Prune(ctx context.Context, keep ...release.Digest) (cache.Pruned, error) {
	if r.cache == nil {
		return cache.Pruned{}, nil
	}
	bounds := cache.Bounds{Bytes: r.opts.CacheLimitBytes, ManifestBytes: r.opts.Limits.ManifestBytes}
	return r.cache.Prune(ctx, bounds, keep...)
}
