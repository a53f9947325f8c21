package lint_test

import (
	"fmt"

	"github.com/cluster-version/cvo/pkg/author/lint"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
)

func ExampleCheck() {
	report := lint.Check([]source.File{
		{Name: "release-manifests/release-metadata", Data: []byte(`{"kind": "cincinnati-metadata-v0", "version": "1.2.0"}`)},
		{Name: "release-manifests/image-references", Data: []byte(`{"apiVersion": "image.openshift.io/v1", "kind": "ImageStream", "metadata": {"name": "1.2.0"}}`)},
		{Name: "release-manifests/0000_30_dns_01.yaml", Data: []byte(`apiVersion: v1
kind: ConfigMap
metadata:
  namespace: dns
  name: settings
`)},
	}, lint.Options{Disable: []string{"folder", "verification-missing"}}) // the release has neither an operator nor keys
	for _, f := range report.Findings {
		fmt.Printf("%s:%d: %s: %s\n", f.File, f.Line, f.Rule, f.Message)
	}
	// Output:
	// release-manifests/0000_30_dns_01.yaml:1: never-included: the object has no annotation include.release.openshift.io/<profile>, so it will never be installed
}
