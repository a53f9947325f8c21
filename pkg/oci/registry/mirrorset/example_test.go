package mirrorset_test

import (
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/cluster-version/cvo/pkg/oci/registry/mirrorset"
)

func ExampleMirrors_Locations() {
	objects, err := mirrorset.Parse([]byte(`{apiVersion: config.openshift.io/v1, kind: ImageDigestMirrorSet, metadata: {name: platform},
  spec: {imageDigestMirrors: [{source: registry.example/platform, mirrors: [mirror.internal/copy], mirrorSourcePolicy: NeverContactSource}]}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	mirrors, err := mirrorset.New(objects...)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, pullspec := range []string{
		"registry.example/platform/release@sha256:1111111111111111111111111111111111111111111111111111111111111111",
		"registry.example/platform/release:1.2.0", // an ImageDigestMirrorSet does not apply to tags
	} {
		ref, err := name.ParseReference(pullspec)
		if err != nil {
			fmt.Println(err)
			return
		}
		locations, source := mirrors.Locations(ref)
		fmt.Println(locations, "source:", source)
	}
	// Output:
	// [mirror.internal/copy/release] source: false
	// [] source: true
}
