package upgradeable_test

import (
	"fmt"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

func ExampleFind() {
	obstacles := upgradeable.Find(upgradeable.Input{
		Current: "1.1.0", Overrides: []configv1.ComponentOverride{{Kind: "ConfigMap", Namespace: "shop", Name: "web", Unmanaged: true}},
	})
	for _, o := range obstacles {
		fmt.Println(o.Reason)
		fmt.Println("blocks 1.1.1:", o.Concerns("1.1.0", "1.1.1"))
		fmt.Println("blocks 1.2.0:", o.Concerns("1.1.0", "1.2.0"))
	}
	// Output:
	// ClusterVersionOverridesSet
	// blocks 1.1.1: false
	// blocks 1.2.0: true
}
