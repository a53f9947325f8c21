package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/release"
)

// Lookup looks up images with the cluster's current configuration; see image.Reader.Exist.
type Lookup func(ctx context.Context, cv *configv1.ClusterVersion, images []release.Image) ([]error, error)

// found is the result of looking up the images that an update would newly pull, as `component: pullspec`. Nothing is known about an image in
// unknown, for example because its registry cannot be reached.
type found struct{ missing, unknown []string }

// lookupTime limits the time to look up all images.
const lookupTime = time.Minute

// findImages looks up the images in manifests that the running release does not use, where nodes would pull them.
func (f *Flight) findImages(ctx context.Context, manifests []*manifest.Manifest) found {
	components := imagesOf(manifests)
	if f.Input.Running != nil && f.Input.Running.Payload != nil {
		for pullspec := range imagesOf(f.Input.Running.Payload.Manifests) {
			delete(components, pullspec)
		}
	}
	var out found
	var images []release.Image
	for _, pullspec := range slices.Sorted(maps.Keys(components)) {
		if pullspec.HasDigest() {
			images = append(images, release.Image{Pullspec: string(pullspec), Digest: pullspec.Digest()})
		} else {
			out.unknown = append(out.unknown, fmt.Sprintf("%s: %s: only images by digest are looked up", components[pullspec], pullspec))
		}
	}
	if len(images) == 0 {
		return out
	}
	if f.Lookup == nil {
		return found{unknown: []string{"all, because this operator does not contact registries"}}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	results, err := f.Lookup(ctx, f.Input.ClusterVersion, images)
	if err != nil {
		return found{unknown: []string{err.Error()}}
	}
	for i, err := range results {
		name := components[release.Pullspec(images[i].Pullspec)] + ": " + images[i].Pullspec
		switch {
		case errors.Is(err, failure.ErrNotFound):
			out.missing = append(out.missing, name)
		case err != nil:
			out.unknown = append(out.unknown, fmt.Sprintf("%s: %v", name, err))
		}
	}
	return out
}

// imagesOf returns the pullspecs in manifests except tombstones, with the component of the first manifest that contains each: those by
// digest, and the images of containers.
func imagesOf(manifests []*manifest.Manifest) map[release.Pullspec]string {
	images := map[release.Pullspec]string{}
	add := func(m *manifest.Manifest, pullspec release.Pullspec) {
		if _, known := images[pullspec]; !known && pullspec != "" {
			images[pullspec] = m.Component
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
