package registry_test

import (
	"fmt"

	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/oci/registry/mirrorset"
)

func ExampleAccess_Candidates() {
	objects, err := mirrorset.Parse([]byte(`{apiVersion: config.openshift.io/v1, kind: ImageTagMirrorSet, metadata: {name: platform},
  spec: {imageTagMirrors: [{source: registry.example/platform, mirrors: [mirror.example/copy]}]}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	mirrors, err := mirrorset.New(objects...)
	if err != nil {
		fmt.Println(err)
		return
	}
	access := registry.New(registry.Options{Mirrors: mirrors})
	ref, err := access.Reference("registry.example/platform/release:1.2.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(access.Candidates(ref))
	// Output: [mirror.example/copy/release:1.2.0 registry.example/platform/release:1.2.0]
}
