package reference_test

import (
	"fmt"

	"github.com/cluster-version/cvo/pkg/verify/reference"
)

func ExampleScopes() {
	scopes, err := reference.Scopes("registry.example/platform/release:1.2.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, scope := range scopes {
		fmt.Println(scope)
	}
	// Output:
	// registry.example/platform/release:1.2.0
	// registry.example/platform/release
	// registry.example/platform
	// registry.example
	// *.example
}
