package preview

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// UsedImages returns the pullspecs in manifests except tombstones, with the components that contain each, sorted: those by digest, and
// the images of containers.
func UsedImages(manifests []*manifest.Manifest) map[release.Pullspec][]string {
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
