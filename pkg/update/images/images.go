// Package images looks up the images that an update would newly pull, where nodes would pull them.
package images

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/release"
)

// Found is the result of looking up images. No location from which nodes may pull has an image in Missing. Nothing is known about an image in
// Unknown, for example because its registry cannot be reached.
type Found struct{ Missing, Unknown []preview.Image }

// lookupTime limits the time to look up all images.
const lookupTime = time.Minute

// Find looks up the images in the manifests of an update that the manifests of the running release do not contain. It leaves out the image
// or folder of the update itself, which the caller has read. lookup returns one error for each image, or an error if it cannot look up any;
// see image.Reader.Exist.
func Find(ctx context.Context, update release.Pullspec, manifests, running []*manifest.Manifest, lookup func(context.Context, []release.Image) ([]error, error),
) Found {
	components := Used(manifests)
	delete(components, update)
	for pullspec := range Used(running) {
		delete(components, pullspec)
	}
	var out Found
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
		out.Unknown = append(out.Unknown, preview.Image{Message: err.Error()})
		return out
	}
	for i, err := range results {
		if err == nil {
			continue
		}
		image := preview.Image{Image: images[i].Pullspec, Components: components[release.Pullspec(images[i].Pullspec)], Message: err.Error()}
		if errors.Is(err, failure.ErrNotFound) {
			out.Missing = append(out.Missing, image)
		} else {
			out.Unknown = append(out.Unknown, image)
		}
	}
	return out
}

// Used returns the pullspecs in manifests except tombstones, with the components that contain each, sorted: those by digest, and
// the images of containers.
func Used(manifests []*manifest.Manifest) map[release.Pullspec][]string {
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
			containers, _, _ := unstructured.NestedSlice(m.Object.Object, append(slices.Clone(manifest.PodSpecPath(m.Object)), list)...)
			for _, entry := range containers {
				container, _ := entry.(map[string]any)
				image, _ := container["image"].(string)
				add(m, release.Pullspec(image))
			}
		}
	}
	return images
}
