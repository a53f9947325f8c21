package credentials_test

import (
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/cluster-version/cvo/pkg/oci/registry/credentials"
)

func ExamplePullSecret_Resolve() {
	secret, err := credentials.ParsePullSecret([]byte(`{"auths": {
  "registry.example": {"username": "everyone", "password": "…"},
  "registry.example/platform": {"username": "platform", "password": "…"}
}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, text := range []string{"registry.example/platform/release", "registry.example/tools", "other.example/tools"} {
		repository, err := name.NewRepository(text)
		if err != nil {
			fmt.Println(err)
			return
		}
		authenticator, err := secret.Resolve(repository)
		if err != nil {
			fmt.Println(err)
			return
		}
		login, err := authenticator.Authorization()
		fmt.Printf("%s: %q %v\n", text, login.Username, err)
	}
	// Output:
	// registry.example/platform/release: "platform" <nil>
	// registry.example/tools: "everyone" <nil>
	// other.example/tools: "" <nil>
}
