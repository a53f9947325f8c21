package cache

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/release"
)

// receivedAnnotation marks received files in the cache's index.json. Its value is the image's digest.
const receivedAnnotation = "cvo.cluster-version.github.io/received-for"

// receivedType is the media type of the empty configuration of received files.
const receivedType = types.MediaType("application/vnd.cluster-version.received.v1+json")

// ReceivedFor returns the digest of the files received for an image, from index.json.
func (c *Folder) ReceivedFor(d release.Digest) (release.Digest, bool) {
	for _, listed := range c.listed() {
		if listed.Annotations[receivedAnnotation] != string(d) {
			continue
		}
		if found, err := release.ParseDigest(listed.Digest.String()); err == nil {
			return found, true
		}
	}
	return "", false
}

// ForgetReceived removes the files received for an image from index.json.
func (c *Folder) ForgetReceived(d release.Digest) error {
	return c.edit(func(listed []v1.Descriptor) []v1.Descriptor {
		return slices.DeleteFunc(listed, func(m v1.Descriptor) bool { return m.Annotations[receivedAnnotation] == string(d) })
	})
}

// KeepReceived stores a layer of received files as an image. An annotation contains the digest of the original image. The digest of the
// stored image depends only on the layer.
func (c *Folder) KeepReceived(of release.Digest, layer []byte) error {
	config := []byte("{}")
	manifest := v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: describe(receivedType, config), Layers: []v1.Descriptor{describe(types.OCILayerZStd, layer)},
		Annotations: map[string]string{receivedAnnotation: string(of)},
	}
	raw, err := json.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("writing image cache: %w", err)
	}
	for _, content := range [][]byte{layer, config, raw} {
		if err := c.Store(document.DigestOf(content), content); err != nil {
			return err
		}
	}
	entry := describe(types.OCIManifestSchema1, raw)
	entry.ArtifactType = string(receivedType)
	entry.Annotations = map[string]string{receivedAnnotation: string(of)}
	return c.edit(func(listed []v1.Descriptor) []v1.Descriptor {
		listed = slices.DeleteFunc(listed, func(m v1.Descriptor) bool { return m.Annotations[receivedAnnotation] == string(of) })
		return append(listed, entry)
	})
}

func describe(mediaType types.MediaType, content []byte) v1.Descriptor {
	return v1.Descriptor{MediaType: mediaType, Size: int64(len(content)), Digest: document.HashOf(document.DigestOf(content))}
}
