package inspect

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/image/repository"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// maxReads is the maximum number of component images that are read in parallel. Each needs two small requests, and registries accept that
// many from a single client.
const maxReads = 16

// ComponentImage describes a component's image. Its JSON has the same field names as `oc image info -o json`.
type ComponentImage struct {
	// Name is the pullspec.
	Name string `json:"name"`
	// Digest is the digest of the manifest. ListDigest is the digest of the index that lists it; empty without an index.
	Digest        release.Digest  `json:"digest"`
	ContentDigest release.Digest  `json:"contentDigest"`
	ListDigest    release.Digest  `json:"listDigest"`
	MediaType     types.MediaType `json:"mediaType"`
	Layers        []v1.Descriptor `json:"layers"`
	Config        *ImageConfig    `json:"config"`
}

// ImageConfig is the configuration of an image. Its JSON has the fields of the original client, named as in Docker's image format.
type ImageConfig struct {
	*v1.ConfigFile
	LegacyConfig
	// Size is the compressed size of the layers in bytes.
	Size int64 `json:"size,omitempty"`
}

// LegacyConfig contains fields of Docker's image format that the OCI format does not have.
type LegacyConfig struct {
	ID      string `json:"id"`
	Parent  string `json:"parent,omitempty"`
	Comment string `json:"comment,omitempty"`
	// ContainerConfig is the configuration of the container that the image was created from.
	ContainerConfig v1.Config `json:"container_config"`
}

// Size is the size of a component's image.
type Size struct {
	// Layers is the number of layers, Bytes their total compressed size.
	Layers int
	Bytes  int64
	// Unique is the compressed size in bytes of the layers that no other image in the release has.
	Unique int64
	// Base is the image in the release that this image is built on. Without one, it is the topmost layer of the longest prefix shared with
	// other images; empty if no layers are shared.
	Base string
}

// readComponent fetches and verifies an image's manifest and configuration.
func readComponent(ctx context.Context, repository *repository.Repository, img release.Image) (*ComponentImage, error) {
	doc, err := repository.Image(ctx, img.Digest)
	if err != nil {
		return nil, err
	}
	raw, err := repository.Config(ctx, doc)
	if err != nil {
		return nil, err
	}
	config := &ImageConfig{}
	if config.ConfigFile, err = v1.ParseConfigFile(bytes.NewReader(raw)); err == nil {
		err = json.Unmarshal(raw, &config.LegacyConfig)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of %s: %w: %w", doc.Digest, failure.ErrIntegrity, err)
	}
	for _, layer := range doc.Layers {
		config.Size += layer.Size
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

// ReadImages fetches and verifies the manifest and configuration of all component images in parallel. If the release's own repository is a
// mirror, all images must be there. Otherwise they are where the release references them. ReadImages calls done, if set, with each name,
// from several goroutines. It returns all errors joined.
func (i *Info) ReadImages(ctx context.Context, images *image.Reader, done func(component string)) error {
	read := make(map[string]*ComponentImage, len(i.References.Spec.Tags))
	var mu sync.Mutex
	err := i.eachImage(ctx, images, done, func(component string, repository *repository.Repository, img release.Image) error {
		got, err := readComponent(ctx, repository, img)
		mu.Lock()
		defer mu.Unlock()
		read[component] = got
		return err
	})
	if err == nil {
		i.Images = read
	}
	return err
}

// VerifyImages verifies the manifests and configurations of the release image and of all component images, for every platform of an index. It
// skips attestations, which no cluster pulls. Its parameters and errors are those of ReadImages.
func (i *Info) VerifyImages(ctx context.Context, images *image.Reader, done func(component string)) error {
	verify := func(_ string, repository *repository.Repository, img release.Image) error {
		v := &platformVerifier{Repository: repository, outcomes: map[release.Digest]outcome{}}
		return v.verify(ctx, img.Digest, 0)
	}
	components := i.eachImage(ctx, images, done, verify)
	img := release.Image{Pullspec: i.Image, Digest: cmp.Or(i.ListDigest, i.Digest)}
	own, err := images.Repositories().Of(img)
	if err == nil {
		err = verify("", own, img)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("the release image: %w", err)
	}
	return errors.Join(err, components)
}

// maxDocuments is the maximum number of documents of one image.
const maxDocuments = 1000

// platformVerifier verifies each document of an image once, and again only if it reaches a document that was too deep on a shorter path.
type platformVerifier struct {
	*repository.Repository
	outcomes map[release.Digest]outcome
}

// outcome is the result of verifying a document at a depth.
type outcome struct {
	depth int
	err   error
}

func (v *platformVerifier) verify(ctx context.Context, d release.Digest, depth int) (err error) {
	if known, ok := v.outcomes[d]; ok && (depth >= known.depth || !errors.Is(known.err, failure.ErrLimit)) {
		return known.err
	}
	defer func() { v.outcomes[d] = outcome{depth, err} }()
	if depth > document.MaxIndexDepth || len(v.outcomes) >= maxDocuments {
		return fmt.Errorf("%w: more than %d nested indexes or more than %d documents", failure.ErrLimit, document.MaxIndexDepth, maxDocuments)
	}
	doc, err := v.Document(ctx, d)
	if err != nil {
		return err
	}
	if !doc.IsIndex() {
		_, err := v.Config(ctx, doc)
		return err
	}
	var errs []error
	if !slices.ContainsFunc(doc.Manifests, func(desc v1.Descriptor) bool { return !document.IsAttestation(desc) }) {
		errs = append(errs, fmt.Errorf("index %s lists no image: %w", d, failure.ErrNotFound))
	}
	for _, desc := range doc.Manifests {
		if document.IsAttestation(desc) {
			continue
		}
		digest, err := release.ParseDigest(desc.Digest.String())
		if err == nil {
			err = v.verify(ctx, digest, depth+1)
		}
		switch {
		case err != nil && desc.Platform != nil:
			err = fmt.Errorf("platform %s: %w", desc.Platform, err)
		case err != nil:
			err = fmt.Errorf("an entry of index %s: %w", d, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// eachImage calls do for all component images in parallel, and then done, if set. It returns all errors joined.
func (i *Info) eachImage(ctx context.Context, images *image.Reader, done func(component string),
	do func(component string, repository *repository.Repository, img release.Image) error,
) error {
	references := payload.ImageReferences(i.References)
	names := slices.Sorted(maps.Keys(references))
	mirrored := i.isMirrored(ctx, images, references)
	errs := make([]error, len(names))
	repositories := images.Repositories()
	var group errgroup.Group
	group.SetLimit(maxReads)
	for n, name := range names {
		group.Go(func() error {
			img, err := pinned(references[name])
			place := img
			if mirrored {
				place.Pullspec = i.Image
			}
			var repository *repository.Repository
			if err == nil {
				repository, err = repositories.Of(place)
			}
			if err == nil {
				err = do(name, repository, img)
			}
			if err != nil {
				errs[n] = fmt.Errorf("image %s: %w", printable.Text(name), err)
			}
			if done != nil {
				done(name)
			}
			return nil
		})
	}
	_ = group.Wait() // the goroutines record their errors in errs
	i.Served = repositories.Served()
	if err := errors.Join(errs...); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	return nil
}

// mirrorSamples is the number of images that show whether a repository is a mirror. One image could be missing there.
const mirrorSamples = 5

// isMirrored reports whether the release's own repository or layout is a mirror: it has images that the release references elsewhere. If it
// cannot be reached, it counts as none.
func (i *Info) isMirrored(ctx context.Context, images *image.Reader, references map[string]string) bool {
	if i.ByDigest == "" {
		return false // a folder
	}
	var samples []release.Image
	for _, name := range slices.Sorted(maps.Keys(references)) {
		img, err := pinned(references[name])
		if err != nil || img.Repository() == release.Pullspec(i.Image).Repository() {
			continue
		}
		if samples = append(samples, release.Image{Pullspec: i.Image, Digest: img.Digest}); len(samples) == mirrorSamples {
			break
		}
	}
	return slices.Contains(images.Exist(ctx, samples), nil)
}

// pinned returns an image of a release. It rejects a pullspec with a tag, because its content may change.
func pinned(pullspec string) (release.Image, error) {
	written := release.Pullspec(pullspec).Digest()
	if written == "" {
		return release.Image{}, fmt.Errorf("%q has no digest: %w", pullspec, failure.ErrIntegrity)
	}
	digest, err := release.ParseDigest(string(written))
	if err != nil {
		return release.Image{}, fmt.Errorf("%q: %w: %w", pullspec, failure.ErrIntegrity, err)
	}
	return release.Image{Pullspec: pullspec, Digest: digest}, nil
}

// Measure computes Sizes from Images.
func (i *Info) Measure() {
	users := map[v1.Hash]int{}
	prefixes := map[chain][]string{} // images with exactly these layers
	sharing := map[chain]int{}       // number of images that start with these layers
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

// baseOf returns the base of an image: the first match from the topmost layer down.
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

// chain identifies a stack of layers. It is the hash of the chain below and the digest of the topmost layer.
type chain [sha256.Size]byte

// chainsOf returns the chains of all prefixes of the layers.
func chainsOf(layers []v1.Descriptor) []chain {
	chains := make([]chain, len(layers))
	var below chain
	for n, l := range layers {
		below = sha256.Sum256(append(below[:], l.Digest.String()...))
		chains[n] = below
	}
	return chains
}

// distinctLayers returns the sizes of the distinct layers. A duplicate layer in an image is stored only once.
func distinctLayers(layers []v1.Descriptor) map[v1.Hash]int64 {
	out := make(map[v1.Hash]int64, len(layers))
	for _, l := range layers {
		out[l.Digest] = l.Size
	}
	return out
}

// TotalBytes returns the total compressed size of all component images, and the size if shared layers are counted once.
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
