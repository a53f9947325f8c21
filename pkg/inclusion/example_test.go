package inclusion_test

import (
	"fmt"

	"github.com/cluster-version/cvo/pkg/inclusion"
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

func ExampleFilter_Exclude() {
	manifests, err := manifest.Parse("0000_30_dns_01.yaml", []byte(dnsFile), manifest.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster := inclusion.Filter{} // self-managed, default feature set
	for _, m := range manifests {
		if reason, excluded := cluster.Exclude(m); excluded {
			fmt.Printf("%s: %s\n", m.ID(), reason)
		}
	}
	// Output: Deployment.apps dns/operator: no annotation include.release.openshift.io/self-managed-high-availability
}
