package drawing_test

import (
	"fmt"
	"os"

	"github.com/cluster-version/cvo/pkg/engine/drawing"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

func ExampleWriteText() {
	var manifests []*manifest.Manifest
	for _, file := range []string{"0000_30_dns_01.yaml", "0000_30_network_01.yaml", "0000_50_console_01.yaml"} {
		list, err := manifest.Parse(file, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: settings}}"), manifest.Limits{})
		if err != nil {
			fmt.Println(err)
			return
		}
		manifests = append(manifests, list...)
	}
	graph, err := taskgraph.Build(manifests, release.Updating)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := drawing.WriteText(os.Stdout, graph); err != nil {
		fmt.Println(err)
	}
	// Output:
	// Updating: 3 manifests, 3 components, 2 runlevels; critical path 2 manifests
	//
	// Runlevel 30
	//   dns
	//     ConfigMap ns/settings  0000_30_dns_01.yaml
	//   network
	//     ConfigMap ns/settings  0000_30_network_01.yaml
	//
	// Runlevel 50
	//   console
	//     ConfigMap ns/settings  0000_50_console_01.yaml
}
