package manifest_test

import (
	"fmt"

	"github.com/cluster-version/cvo/pkg/manifest"
)

const dnsFile = `
apiVersion: v1
kind: Namespace
metadata:
  name: dns
  annotations: {include.release.openshift.io/self-managed-high-availability: "true"}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  namespace: dns
  name: operator
  annotations: {include.release.openshift.io/single-node-developer: "true"}
`

func ExampleParse() {
	manifests, err := manifest.Parse("0000_30_dns_01.yaml", []byte(dnsFile), manifest.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range manifests {
		runlevel, component := manifest.Place(m.File)
		fmt.Println(runlevel, component, m.ID())
	}
	// Output:
	// 30 dns Namespace dns
	// 30 dns Deployment.apps dns/operator
}
