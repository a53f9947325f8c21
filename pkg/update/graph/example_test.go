package graph_test

import (
	"fmt"
	"strings"

	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
)

func ExampleGraph_Updates() {
	g, err := updategraph.Parse(strings.NewReader(`{
  "nodes": [
    {"version": "1.1.0", "payload": "registry.example/release@sha256:1111111111111111111111111111111111111111111111111111111111111111"},
    {"version": "1.1.1", "payload": "registry.example/release@sha256:2222222222222222222222222222222222222222222222222222222222222222"},
    {"version": "1.2.0", "payload": "registry.example/release@sha256:3333333333333333333333333333333333333333333333333333333333333333"}
  ],
  "edges": [[0, 1]],
  "conditionalEdges": [{
    "edges": [{"from": "1.1.0", "to": "1.2.0"}],
    "risks": [{"name": "SlowDNS", "url": "https://example.com/slow-dns", "message": "Names resolve slowly.", "matchingRules": [{"type": "Always"}]}]
  }]
}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	updates, err := g.Updates(updategraph.Query{Version: "1.1.0", Channel: "stable"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, u := range updates.Available {
		fmt.Println("recommended:", u.Version)
	}
	for _, u := range updates.Conditional {
		fmt.Println("conditional:", u.Release.Version, u.Risks[0].Name)
	}
	// Output:
	// recommended: 1.1.1
	// conditional: 1.2.0 SlowDNS
}
