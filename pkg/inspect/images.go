package inspect

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// maxReads bounds how many component images are read at a time. They cost two small requests each, and registries serve
// that many to one client without a word.
const maxReads = 16

// ComponentImage is a component's image without its content. Its JSON has the names of `oc image info -o json`.
type ComponentImage struct {
	// Name is the pullspec.
	Name string `json:"name"`
	// Digest is that of the manifest, ListDigest that of the index which led to it.
	Digest        release.Digest  `json:"digest"`
	ContentDigest release.Digest  `json:"contentDigest"`
	ListDigest    release.Digest  `json:"listDigest"`
	MediaType     types.MediaType `json:"mediaType"`
	Layers        []v1.Descriptor `json:"layers"`
	Config        *v1.ConfigFile  `json:"config"`
}

// Size is what a component's image takes.
type Size struct {
	// Layers counts layers, Bytes is what they take compressed.
	Layers int
	Bytes  int64
	// Unique is what those layers take that no other image of the release has.
	Unique int64
	// Base is the image of the release that this one is built on or, where there is none, the topmost of the layers below
	// its own that others start with, too; empty if it shares none.
	Base string
}

// readComponent fetches manifest and configuration of an image, both checked against their digests.
func readComponent(ctx context.Context, repository *image.Repository, img release.Image) (*ComponentImage, error) {
	doc, err := repository.Image(ctx, img.Digest)
	if err != nil {
		return nil, err
	}
	raw, err := repository.Config(ctx, doc)
	if err != nil {
		return nil, err
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of %s: %w: %w", doc.Digest, image.ErrIntegrity, err)
	}
	c := &ComponentImage{
		Name: img.Pullspec, Digest: doc.Digest, ContentDigest: doc.Digest, MediaType: doc.MediaType,
		Layers: doc.Layers, Config: config,
	}
	if doc.Digest != img.Digest {
		c.ListDigest = img.Digest
	}
	return c, nil
}

// ReadImages fetches manifest and configuration of every component image, many at a time, and checks both against their
// digests. done, if set, is told each name from several goroutines. All that went wrong is reported together.
func (i *Info) ReadImages(ctx context.Context, images *image.Reader, done func(component string)) error {
	references := payload.ImageReferences(i.References)
	names := slices.Sorted(maps.Keys(references))
	read, errs := make([]*ComponentImage, len(names)), make([]error, len(names))
	repositories := newRepositories(images)
	var group errgroup.Group
	group.SetLimit(maxReads)
	for n, name := range names {
		group.Go(func() error {
			read[n], errs[n] = repositories.read(ctx, references[name])
			if errs[n] != nil {
				errs[n] = fmt.Errorf("image %s: %w", name, errs[n])
			}
			if done != nil {
				done(name)
			}
			return nil
		})
	}
	_ = group.Wait() // each image's error is in its slot
	if err := errors.Join(errs...); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	i.Images = make(map[string]*ComponentImage, len(names))
	for n, name := range names {
		i.Images[name] = read[n]
	}
	return nil
}

// repositories are those that the images of a release lie in, mostly one: each is spoken to as one.
type repositories struct {
	images *image.Reader
	mu     sync.Mutex
	opened map[string]*image.Repository
}

func newRepositories(images *image.Reader) *repositories {
	return &repositories{images: images, opened: map[string]*image.Repository{}}
}

// read reads an image that a release refers to. One that is named by a tag is not part of the release: it may be another
// tomorrow.
func (r *repositories) read(ctx context.Context, pullspec string) (*ComponentImage, error) {
	_, text, byDigest := strings.Cut(pullspec, "@")
	if !byDigest {
		return nil, fmt.Errorf("%q is not by digest: %w", pullspec, image.ErrIntegrity)
	}
	digest, err := release.ParseDigest(text)
	if err != nil {
		return nil, fmt.Errorf("%q: %w: %w", pullspec, image.ErrIntegrity, err)
	}
	img := release.Image{Pullspec: pullspec, Digest: digest}
	repository, err := r.of(img)
	if err != nil {
		return nil, err
	}
	return readComponent(ctx, repository, img)
}

func (r *repositories) of(img release.Image) (*image.Repository, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.opened[img.Repository()]; known != nil {
		return known, nil
	}
	opened, err := r.images.Repository(img)
	if err != nil {
		return nil, err
	}
	r.opened[img.Repository()] = opened
	return opened, nil
}

// Measure works out Sizes from Images.
func (i *Info) Measure() {
	users := map[v1.Hash]int{}
	prefixes := map[chain][]string{} // the images that are exactly these layers
	sharing := map[chain]int{}       // how many images start with these layers
	for _, name := range slices.Sorted(maps.Keys(i.Images)) {
		for hash := range distinctLayers(i.Images[name].Layers) {
			users[hash]++
		}
		chains := chainsOf(i.Images[name].Layers)
		for _, c := range chains {
			sharing[c]++
		}
		if len(chains) > 0 {
			whole := chains[len(chains)-1]
			prefixes[whole] = append(prefixes[whole], name)
		}
	}
	i.Sizes = make(map[string]Size, len(i.Images))
	for name, img := range i.Images {
		size := Size{Layers: len(img.Layers)}
		for hash, bytes := range distinctLayers(img.Layers) {
			size.Bytes += bytes
			if users[hash] == 1 {
				size.Unique += bytes
			}
		}
		size.Base = baseOf(img.Layers, prefixes, sharing)
		i.Sizes[name] = size
	}
}

// baseOf looks from the top down for what an image is built on.
func baseOf(layers []v1.Descriptor, images map[chain][]string, sharing map[chain]int) string {
	chains := chainsOf(layers)
	for n := len(chains) - 2; n >= 0; n-- {
		if names := images[chains[n]]; len(names) > 0 {
			return names[0]
		}
	}
	for n := len(chains) - 2; n >= 0; n-- {
		if sharing[chains[n]] > 1 {
			return layers[n].Digest.Hex[:12]
		}
	}
	return ""
}

// chain stands for layers on top of each other: the hash of the chain below and of the topmost layer's digest.
type chain [sha256.Size]byte

// chainsOf names every beginning of a list of layers.
func chainsOf(layers []v1.Descriptor) []chain {
	chains := make([]chain, len(layers))
	var below chain
	for n, l := range layers {
		below = sha256.Sum256(append(below[:], l.Digest.String()...))
		chains[n] = below
	}
	return chains
}

// distinctLayers are the sizes of layers; one that an image has twice is stored once.
func distinctLayers(layers []v1.Descriptor) map[v1.Hash]int64 {
	out := make(map[v1.Hash]int64, len(layers))
	for _, l := range layers {
		out[l.Digest] = l.Size
	}
	return out
}

// TotalBytes is what all component images take together, and what remains when layers that several have are counted once.
func (i *Info) TotalBytes() (all, once int64) {
	seen := map[v1.Hash]bool{}
	for _, img := range i.Images {
		for hash, bytes := range distinctLayers(img.Layers) {
			all += bytes
			if !seen[hash] {
				seen[hash] = true
				once += bytes
			}
		}
	}
	return all, once
}
