package payload_test

import (
	"fmt"
	"testing/fstest"

	"github.com/cluster-version/cvo/pkg/payload"
)

func ExampleLoad() {
	image := fstest.MapFS{
		"manifests/0000_00_operator_00.yaml": {Data: []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: operator,
  annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}}`)},
		"release-manifests/0000_30_dns_00.yaml": {Data: []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: dns,
  annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}}`)},
		"release-manifests/0000_30_dns_01.yaml": {Data: []byte(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: dns, name: debug}}`)},
		payload.MetadataFile:                    {Data: []byte(`{kind: cincinnati-metadata-v0, version: 1.2.0}`)},
		payload.ReferencesFile:                  {Data: []byte(`{apiVersion: image.openshift.io/v1, kind: ImageStream, metadata: {name: 1.2.0}}`)},
	}
	p, err := payload.Load(image, "registry.example/release:1.2.0", payload.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("release", p.Release.Version)
	for _, m := range p.Manifests {
		fmt.Println("included:", m.ID())
	}
	for _, e := range p.Excluded {
		fmt.Println("excluded:", e.Manifest.ID(), "-", e.Reason)
	}
	// Output:
	// release 1.2.0
	// included: Namespace operator
	// included: Namespace dns
	// excluded: ConfigMap dns/debug - no annotations
}
