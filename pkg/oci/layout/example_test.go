package layout_test

import (
	"bytes"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cluster-version/cvo/pkg/oci/layout"
)

func ExampleWriter() {
	dir, err := os.MkdirTemp("", "layout-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()

	content := []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json"}`)
	digest, size, err := v1.SHA256(bytes.NewReader(content))
	if err != nil {
		fmt.Println(err)
		return
	}
	image := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, Size: size}
	w := layout.NewWriter(dir)
	if err := w.Begin(); err != nil {
		fmt.Println(err)
		return
	}
	if err := w.Write(image, bytes.NewReader(content)); err != nil {
		fmt.Println(err)
		return
	}
	w.List(image, "1.2.0")
	if err := w.Close(); err != nil {
		fmt.Println(err)
		return
	}

	found, err := layout.NewReader(dir, 1<<20).Find("1.2.0", func(string) bool { return false })
	fmt.Println(string(found) == digest.String(), err)
	// Output: true <nil>
}
