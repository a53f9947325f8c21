package preflight

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/release"
)

// Lookup looks up images with the cluster's current configuration; see image.Reader.Exist.
type Lookup func(ctx context.Context, cv *configv1.ClusterVersion, images []release.Image) ([]error, error)

// Images is the result of looking up the images that an update would newly pull. Nothing is known about an image in Unknown, for example
// because its registry cannot be reached.
type Images struct{ Missing, Unknown []preview.Image }

// lookupTime limits the time to look up all images.
const lookupTime = time.Minute

// findImages looks up the images in manifests that the running release does not use, where nodes would pull them.
func (f *Flight) findImages(ctx context.Context, manifests []*manifest.Manifest) Images {
	var running []*manifest.Manifest
	if f.Input.Running != nil && f.Input.Running.Payload != nil {
		running = f.Input.Running.Payload.Manifests
	}
	return FindImages(ctx, manifests, running, func(ctx context.Context, images []release.Image) ([]error, error) {
		if f.Lookup == nil {
			return nil, errors.New("all, because this operator does not contact registries")
		}
		return f.Lookup(ctx, f.Input.ClusterVersion, images)
	})
}

// FindImages looks up the images in manifests that the manifests of the running release do not contain. lookup returns one error for each
// image, or an error if it cannot look up any.
func FindImages(ctx context.Context, manifests, running []*manifest.Manifest, lookup func(context.Context, []release.Image) ([]error, error)) Images {
	components := imagesOf(manifests)
	for pullspec := range imagesOf(running) {
		delete(components, pullspec)
	}
	var out Images
	var images []release.Image
	for _, pullspec := range slices.Sorted(maps.Keys(components)) {
		if pullspec.HasDigest() {
			images = append(images, release.Image{Pullspec: string(pullspec), Digest: pullspec.Digest()})
		} else {
			out.Unknown = append(out.Unknown, preview.Image{
				Image: string(pullspec), Components: components[pullspec], Message: "only images by digest are looked up",
			})
		}
	}
	if len(images) == 0 {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	results, err := lookup(ctx, images)
	if err != nil {
		return Images{Unknown: []preview.Image{{Message: err.Error()}}}
	}
	for i, err := range results {
		image := preview.Image{Image: images[i].Pullspec, Components: components[release.Pullspec(images[i].Pullspec)]}
		switch {
		case errors.Is(err, failure.ErrNotFound):
			out.Missing = append(out.Missing, image)
		case err != nil:
			image.Message = err.Error()
			out.Unknown = append(out.Unknown, image)
		}
	}
	return out
}

// imagesOf returns the pullspecs in manifests except tombstones, with the components that contain each, sorted: those by digest, and the
// images of containers.
func imagesOf(manifests []*manifest.Manifest) map[release.Pullspec][]string {
	images := map[release.Pullspec][]string{}
	add := func(m *manifest.Manifest, pullspec release.Pullspec) {
		if at, known := slices.BinarySearch(images[pullspec], m.Component); !known && pullspec != "" {
			images[pullspec] = slices.Insert(images[pullspec], at, m.Component)
		}
	}
	for _, m := range manifests {
		if m.Tombstone() {
			continue
		}
		for text := range manifest.Texts(m.Object.Object) {
			for _, pullspec := range release.Pullspecs(text) {
				add(m, pullspec)
			}
		}
		for _, list := range []string{"initContainers", "containers"} {
			containers, _, _ := unstructured.NestedSlice(m.Object.Object, append(slices.Clone(inject.PodSpecPath(m.Object)), list)...)
			for _, entry := range containers {
				container, _ := entry.(map[string]any)
				image, _ := container["image"].(string)
				add(m, release.Pullspec(image))
			}
		}
	}
	return images
}

// maxListed is the number of images that a message names.
const maxListed = 5
