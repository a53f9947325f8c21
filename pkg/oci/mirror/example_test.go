package mirror_test

import (
	"fmt"

	"github.com/cluster-version/cvo/pkg/oci/mirror"
)

func ExampleDigestMirrorSet() {
	set := mirror.DigestMirrorSet("1.2.0", []mirror.Moved{{Source: "registry.example/platform/web", To: []string{"mirror.example/copy"}}})
	for _, m := range set.Spec.ImageDigestMirrors {
		fmt.Println(m.Source, m.Mirrors)
	}
	// Output: registry.example/platform/web [mirror.example/copy]
}
