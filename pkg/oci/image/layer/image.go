package layer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/oci/failure"
)

// WalkImage is like image.Reader.Walk for the given image, but reads one layer at a time with the default limits. It visits a layer's
// files before it has verified the layer. The files are valid only if WalkImage returns no error.
func WalkImage(img v1.Image, visit func(File) error) error {
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	limits := Limits{}.WithDefaults()
	if len(layers) > limits.Layers {
		return fmt.Errorf("%w: the image has %d layers, the limit is %d", failure.ErrLimit, len(layers), limits.Layers)
	}
	w := NewWalker(limits, visit)
	for i, layer := range slices.Backward(layers) {
		err := w.imageLayer(layer)
		switch {
		case errors.Is(err, fs.SkipAll):
			return nil
		case err != nil:
			return fmt.Errorf("layer %d of %d: %w", i+1, len(layers), err)
		case w.done:
			return nil
		}
	}
	return nil
}

// imageLayer reads a layer to its end, where the layer's reader reports a wrong digest.
func (w *Walker) imageLayer(layer v1.Layer) (err error) {
	size, err := layer.Size()
	if err != nil {
		return err
	}
	content, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	if err := w.Layer(content, size); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, content)
	return err
}
