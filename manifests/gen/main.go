// Command gen generates the definitions of ClusterVersion and ClusterOperator from the pinned API module: without descriptions into the
// current directory, which is the folder of the set for `go generate ./manifests`, and with descriptions into its folder described.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/manifests/apicrd"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	definitions, err := apicrd.Read(ctx)
	if err != nil {
		return err
	}
	for name, data := range definitions {
		plain, err := apicrd.WithoutDescriptions(data)
		if err != nil {
			return err
		}
		if err := apicrd.WriteChanged(name, plain); err != nil {
			return err
		}
		if err := apicrd.WriteChanged(filepath.Join("described", name), append([]byte(manifests.DescriptionOf(plain)), data...)); err != nil {
			return err
		}
	}
	return nil
}
