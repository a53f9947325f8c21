package taskgraph_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// exampleGraph returns the graph of an update with these files. Each contains a ConfigMap named after the colon.
func exampleGraph(files ...string) (*taskgraph.Graph, error) {
	var manifests []*manifest.Manifest
	for _, file := range files {
		file, name, _ := strings.Cut(file, ":")
		list, err := manifest.Parse(file, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: "+name+"}}"), manifest.Limits{})
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, list...)
	}
	return taskgraph.Build(manifests, release.Updating)
}

func ExampleBuild() {
	g, err := exampleGraph("0000_30_dns_01.yaml:settings", "0000_30_dns_02.yaml:zones", "0000_30_network_01.yaml:routes", "0000_50_console_01.yaml:console")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range g.Tasks() {
		fmt.Println(n.Group(), n.Label())
	}
	fmt.Println(len(g.CriticalPath()), "steps or more")
	// Output:
	// 30/dns ConfigMap ns/settings
	// 30/dns ConfigMap ns/zones
	// 30/network ConfigMap ns/routes
	// 50/console ConfigMap ns/console
	// 3 steps or more
}

func ExampleWalk() {
	g, err := exampleGraph("0000_30_dns_01.yaml:settings", "0000_30_dns_02.yaml:zones", "0000_50_console_01.yaml:console")
	if err != nil {
		fmt.Println(err)
		return
	}
	// The gate of zones has not settled yet, so runlevel 50 does not start.
	result, err := taskgraph.Walk(context.Background(), g, 1, nil, func(_ context.Context, n *taskgraph.Node) taskgraph.Outcome {
		if n.Manifest.Object.GetName() == "zones" {
			return taskgraph.Held
		}
		return taskgraph.Settled
	})
	for _, n := range g.Tasks() {
		fmt.Println(n.Label(), result.Of(n))
	}
	fmt.Println(result.Complete(), err)
	// Output:
	// ConfigMap ns/settings Settled
	// ConfigMap ns/zones Held
	// ConfigMap ns/console NotReached
	// false <nil>
}
