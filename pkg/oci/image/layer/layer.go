// Package layer reads the two manifest folders from the layers of an image. It takes layers as tar streams, compressed or not, and applies
// them on top of each other. It returns the files, either one at a time or as a file system in memory. It enforces limits and follows no
// links. Callers fetch layers and check their digests.
package layer

import (
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
)

// Limits bound the cost of reading the layers of an image. Zero fields use the defaults.
type Limits struct {
	// LayerBytes bounds the transferred size of each layer, which is usually compressed; default 2 GiB.
	LayerBytes int64
	// Layers bounds the number of layers of an image; default 512.
	Layers int
	// UnpackedBytes bounds the total unpacked size of all layers; default 4 GiB.
	UnpackedBytes int64
	// Ratio bounds the compression ratio of a layer that unpacks to more than 64 MiB; default 200.
	Ratio int64
	// Entries bounds the number of files and folders in all layers; default 300,000.
	Entries int
	// Files bounds the number of files in the two manifest folders; default 20,000.
	Files int
	// FileBytes bounds the size of each file in the two manifest folders; default 8 MiB.
	FileBytes int64
	// TotalBytes bounds the total size of the files in the two manifest folders; default 128 MiB.
	TotalBytes int64
}

// WithDefaults returns the limits with zero fields replaced by their defaults.
func (l Limits) WithDefaults() Limits {
	setDefault(&l.LayerBytes, 2<<30)
	setDefault(&l.Layers, 512)
	setDefault(&l.UnpackedBytes, 4<<30)
	setDefault(&l.Ratio, 200)
	setDefault(&l.Entries, 300_000)
	setDefault(&l.Files, 20_000)
	setDefault(&l.FileBytes, 8<<20)
	setDefault(&l.TotalBytes, 128<<20)
	return l
}

func setDefault[T int | int64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Check checks the number, sizes and types of the layers in a manifest before any layer is fetched.
func Check(layers []v1.Descriptor, limits Limits) error {
	if len(layers) > limits.Layers {
		return fmt.Errorf("%w: the image has %d layers, the limit is %d", failure.ErrLimit, len(layers), limits.Layers)
	}
	for i, desc := range layers {
		if _, err := document.Content(desc, limits.LayerBytes); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(layers), err)
		}
		if !isReadable(desc.MediaType) {
			return fmt.Errorf("layer %d of %d: %w: layer %s has the unsupported media type %q: rebuild the image with plain layers",
				i+1, len(layers), failure.ErrIntegrity, desc.Digest, desc.MediaType)
		}
	}
	return nil
}

// isReadable reports whether a layer of this media type can be read. Foreign layers are on other hosts, and encrypted layers need a key.
func isReadable(t types.MediaType) bool {
	switch t {
	case types.OCILayer, types.OCILayerZStd, types.OCIUncompressedLayer, types.DockerLayer, types.DockerUncompressedLayer:
		return true
	}
	return false
}
