package release_test

import (
	"fmt"
	"slices"

	"github.com/cluster-version/cvo/pkg/release"
)

func ExamplePullspec() {
	p := release.Pullspec("registry.example:5000/platform/release:1.2.0")
	fmt.Println(p.Repository(), p.Tag(), p.HasDigest())
	// Output: registry.example:5000/platform/release 1.2.0 false
}

func ExampleCompareVersions() {
	versions := []string{"1.10.0", "1.9.3", "1.10.0-rc.1"}
	slices.SortFunc(versions, release.CompareVersions)
	fmt.Println(versions)
	// Output: [1.9.3 1.10.0-rc.1 1.10.0]
}

func ExampleParseKubernetesRange() {
	supported, err := release.ParseKubernetesRange(">=1.30.0 <1.34.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, version := range []string{"v1.31.2-eks-a737599", "v1.34.0"} {
		ok, err := supported.Contains(version)
		fmt.Println(version, ok, err)
	}
	// Output:
	// v1.31.2-eks-a737599 true <nil>
	// v1.34.0 false <nil>
}
