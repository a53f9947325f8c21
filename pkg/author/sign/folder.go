package sign

import (
	"bytes"
	"context"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	ggcrlayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
)

// inFolder is the destination for an image in an OCI layout.
type inFolder struct {
	dir    string
	image  release.Image
	writer *layout.Writer
}

// openFolder locks a layout against other writers until end.
func openFolder(dir string, image release.Image) (to destination, end func() error, err error) {
	w := layout.NewWriter(dir)
	if err := w.Begin(); err != nil {
		return nil, nil, err
	}
	return inFolder{dir, image, w}, w.Close, nil
}

func (f inFolder) subject(context.Context) (v1.Descriptor, error) {
	path := layout.Path(f.dir, f.image.Digest)
	raw, err := os.ReadFile(path)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("reading the OCI layout: %w", err)
	}
	doc, err := document.Parse(raw)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("reading %s: %w", path, err)
	}
	return v1.Descriptor{MediaType: doc.MediaType, Digest: document.HashOf(f.image.Digest), Size: int64(len(raw))}, nil
}

func (f inFolder) tagged(_ context.Context, tag string) (img v1.Image, ok bool, err error) {
	listed, ok := f.writer.Listed(tag)
	if !ok {
		return nil, false, nil
	}
	if img, err = ggcrlayout.Path(f.dir).Image(listed.Digest); err != nil {
		return nil, false, fmt.Errorf("reading %s:%s: %w", f.dir, tag, err)
	}
	return img, true, nil
}

func (f inFolder) putTagged(_ context.Context, tag string, img v1.Image) (string, error) {
	layers, err := img.Layers()
	if err != nil {
		return "", err
	}
	for _, layer := range layers {
		if err := f.writeLayer(layer); err != nil {
			return "", err
		}
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return "", err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return "", err
	}
	if err := f.write(manifest.Config, config); err != nil {
		return "", err
	}
	raw, err := img.RawManifest()
	if err != nil {
		return "", err
	}
	if _, err := f.list(raw, tag, ""); err != nil {
		return "", err
	}
	return f.dir + ":" + tag, nil
}

func (f inFolder) putReferrer(_ context.Context, manifest []byte, blobs []v1.Layer) (string, error) {
	for _, blob := range blobs {
		if err := f.writeLayer(blob); err != nil {
			return "", err
		}
	}
	digest, err := f.list(manifest, "", sigstore.BundleMediaType)
	return f.dir + "@" + digest.String(), err
}

func (f inFolder) writeLayer(layer v1.Layer) error {
	desc, err := layerDescriptor(layer)
	if err != nil || f.writer.Has(desc) {
		return err
	}
	content, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer content.Close()
	return f.writer.Write(desc, content)
}

func (f inFolder) write(desc v1.Descriptor, content []byte) error {
	if f.writer.Has(desc) {
		return nil
	}
	return f.writer.Write(desc, bytes.NewReader(content))
}

// list writes the manifest of an image and adds it to the layout's list. name may be empty.
func (f inFolder) list(manifest []byte, name, artifactType string) (v1.Hash, error) {
	digest, size, err := v1.SHA256(bytes.NewReader(manifest))
	if err != nil {
		return v1.Hash{}, err
	}
	desc := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, Size: size, ArtifactType: artifactType}
	if err := f.write(desc, manifest); err != nil {
		return v1.Hash{}, err
	}
	f.writer.List(desc, name)
	return digest, nil
}
