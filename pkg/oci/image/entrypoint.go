package image

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/release"
)

// Entrypoint returns the entrypoint of an image; empty if the image has none. For an index, it reads the image for the platform.
func (r *Reader) Entrypoint(ctx context.Context, img release.Image) ([]string, error) {
	s, err := r.Repository(img)
	if err != nil {
		return nil, err
	}
	doc, err := s.Image(ctx, img.Digest)
	if err != nil {
		return nil, err
	}
	data, err := s.Config(ctx, doc)
	if err != nil {
		return nil, err
	}
	config := &v1.ConfigFile{}
	if err := json.Unmarshal(data, config); err != nil {
		return nil, fmt.Errorf("reading the configuration of image %s: %w", img.Digest, err)
	}
	return config.Config.Entrypoint, nil
}
