package inspect_test

import (
	"context"
	"fmt"
	"testing/fstest"

	"github.com/cluster-version/cvo/pkg/author/inspect"
)

func ExampleDescribe() {
	// Open reads an image instead.
	release := inspect.OpenFS("1.2.0", fstest.MapFS{
		"release-manifests/release-metadata": {Data: []byte(`{"kind": "cincinnati-metadata-v0", "version": "1.2.0", "previous": ["1.1.0"]}`)},
		"release-manifests/image-references": {Data: []byte(`{"apiVersion": "image.openshift.io/v1", "kind": "ImageStream", "metadata": {"name": "1.2.0"},
  "spec": {"tags": [{"name": "dns", "from": {"kind": "DockerImage", "name": "registry.example/dns@sha256:1111111111111111111111111111111111111111111111111111111111111111"}}]}}`)},
	})
	info, err := inspect.Describe(context.Background(), release)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("updates from", info.Metadata.Previous, "to", info.Metadata.Version)
	for _, tag := range inspect.SortTags(info.References) {
		fmt.Println(tag.Name, inspect.Pullspec(tag))
	}
	// Output:
	// updates from [1.1.0] to 1.2.0
	// dns registry.example/dns@sha256:1111111111111111111111111111111111111111111111111111111111111111
}
