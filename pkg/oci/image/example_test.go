package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/oci/image"
)

// imageOf returns an image with one file.
func imageOf(name, content string) (v1.Image, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return nil, err
	}
	if _, err := w.Write([]byte(content)); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return mutate.AppendLayers(empty.Image, static.NewLayer(archive.Bytes(), types.OCIUncompressedLayer))
}

func ExampleReader_Manifests() {
	dir, err := os.MkdirTemp("", "layout-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	made, err := imageOf("release-manifests/release-metadata", `{"kind": "cincinnati-metadata-v0", "version": "1.2.0"}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := layout.Write(dir, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: made})); err != nil {
		fmt.Println(err)
		return
	}

	// A pullspec names an image in a registry, or the folder of an OCI layout, as here.
	reader, err := image.New(image.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	release, err := reader.Resolve(context.Background(), dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	files, err := reader.Manifests(context.Background(), release)
	if err != nil {
		fmt.Println(err)
		return
	}
	metadata, err := fs.ReadFile(files, "release-manifests/release-metadata")
	fmt.Println(string(metadata), err)
	// Output: {"kind": "cincinnati-metadata-v0", "version": "1.2.0"} <nil>
}
