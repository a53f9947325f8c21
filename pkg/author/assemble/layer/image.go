package layer

import (
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image rebuilds an image with Docker's media types, which every registry and runtime accepts. It keeps the runtime configuration
// (entrypoint, environment, user) and replaces the origin (labels, history, times).
func Image(from v1.Image, created time.Time, labels map[string]string) (v1.Image, error) {
	config, err := from.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of the base image: %w", err)
	}
	layers, err := from.Layers()
	if err != nil {
		return nil, fmt.Errorf("reading the layers of the base image: %w", err)
	}
	config = &v1.ConfigFile{
		OS: config.OS, OSVersion: config.OSVersion, Architecture: config.Architecture, Variant: config.Variant,
		Created: v1.Time{Time: created}, Config: *config.Config.DeepCopy(),
	}
	config.Config.Labels, config.Config.Image, config.Config.Hostname = labels, "", ""
	if config.OS == "" {
		config.OS, config.Architecture = "linux", "amd64"
	}
	return Stack(config, layers)
}

// Stack returns an image with the given configuration and layers, and Docker's media types.
func Stack(config *v1.ConfigFile, layers []v1.Layer) (v1.Image, error) {
	config.RootFS, config.History = v1.RootFS{Type: "layers"}, nil
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.DockerManifestSchema2), types.DockerConfigJSON)
	img, err := mutate.ConfigFile(img, config)
	if err != nil {
		return nil, err
	}
	var adds []mutate.Addendum
	for _, layer := range layers {
		mediaType, err := stackedType(layer)
		if err != nil {
			return nil, err
		}
		adds = append(adds, mutate.Addendum{Layer: layer, MediaType: mediaType})
	}
	return mutate.Append(img, adds...)
}

func stackedType(layer v1.Layer) (types.MediaType, error) {
	mediaType, err := layer.MediaType()
	if err != nil {
		return "", fmt.Errorf("reading the layers of the base image: %w", err)
	}
	switch mediaType {
	case types.DockerLayer, types.OCILayer:
		return types.DockerLayer, nil
	case types.DockerUncompressedLayer, types.OCIUncompressedLayer:
		return types.DockerUncompressedLayer, nil
	}
	return "", fmt.Errorf("the base image has a layer of type %s, which Docker's image format does not support: rebuild it with gzip layers", mediaType)
}
