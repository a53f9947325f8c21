// Command gen completes the operator's own manifests with the CustomResourceDefinitions of the pinned API module. It
// writes them into the current directory, which is the folder of the set for `go generate ./manifests`; -to sets another.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/cluster-version/cvo/manifests/apicrd"
)

func main() {
	to := flag.String("to", ".", "folder to write the definitions into")
	flag.Parse()
	if _, err := apicrd.Copy(context.Background(), *to); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
