package taskgraph_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/graph/simple"
	"gonum.org/v1/gonum/graph/topo"

	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture/graphs"
)

// Short names for fixtures.
var object, tombstone, crd, platform = graphs.Object, graphs.Tombstone, graphs.CRD, graphs.Platform

func build(t testing.TB, mode release.Mode, manifests ...*manifest.Manifest) *taskgraph.Graph {
	t.Helper()
	g, err := taskgraph.Build(manifests, mode)
	require.NoError(t, err)
	return g
}

// links returns each task's predecessors by name, and replaces barriers by the nodes before them.
func links(g *taskgraph.Graph) map[string][]string {
	all := map[string][]string{}
	names := func(n *taskgraph.Node) []string {
		var list []string
		for _, p := range g.Predecessors(n) {
			if p.Barrier() {
				list = append(list, "|")
			} else {
				list = append(list, p.Label())
			}
		}
		return list
	}
	for _, n := range g.Tasks() {
		all[n.Label()] = names(n)
	}
	return all
}

// withOutcome returns the tasks with an outcome, sorted by index.
func withOutcome(g *taskgraph.Graph, r taskgraph.Result, o taskgraph.Outcome) []*taskgraph.Node {
	return slices.DeleteFunc(slices.Clone(g.Tasks()), func(n *taskgraph.Node) bool { return r.Of(n) != o })
}

// reaches returns, by index, the nodes that each node waits for directly or indirectly.
func reaches(g *taskgraph.Graph) []map[int]bool {
	before := make([]map[int]bool, len(g.Nodes()))
	for _, n := range g.Nodes() {
		before[n.Index] = map[int]bool{}
		for _, p := range g.Predecessors(n) {
			before[n.Index][p.Index] = true
			for i := range before[p.Index] {
				before[n.Index][i] = true
			}
		}
	}
	return before
}

// requireSound checks the properties of every graph: indexes, symmetric edges, no cycle, and every manifest once.
func requireSound(t testing.TB, g *taskgraph.Graph, manifests []*manifest.Manifest) {
	t.Helper()
	directed := simple.NewDirectedGraph()
	for i, n := range g.Nodes() {
		require.Equal(t, i, n.Index)
		directed.AddNode(simple.Node(i))
	}
	for _, n := range g.Nodes() {
		for _, s := range g.Successors(n) {
			require.Less(t, n.Index, s.Index, "%s to %s", n.Label(), s.Label())
			require.Contains(t, g.Predecessors(s), n)
			require.False(t, directed.HasEdgeFromTo(int64(n.Index), int64(s.Index)), "edge twice")
			directed.SetEdge(directed.NewEdge(simple.Node(n.Index), simple.Node(s.Index)))
		}
	}
	_, err := topo.Sort(directed)
	require.NoError(t, err)
	seen := map[*manifest.Manifest]bool{}
	for _, n := range g.Tasks() {
		require.False(t, seen[n.Manifest])
		seen[n.Manifest] = true
	}
	require.Len(t, seen, len(manifests))
}

// random returns a payload of n manifests with all possible contradictions.
func random(r *rand.Rand, n int) []*manifest.Manifest {
	manifests := make([]*manifest.Manifest, 0, n)
	for range n {
		place := fmt.Sprintf("%d/%c/%02d", r.IntN(6)*10, 'a'+rune(r.IntN(4)), r.IntN(30))
		space, kind := r.IntN(6), r.IntN(6)
		var m *manifest.Manifest
		switch r.IntN(12) {
		case 0:
			m = object(place, fmt.Sprintf("v1 Namespace ns%d/ns%d", r.IntN(6), space)) // with a stray namespace
		case 1:
			m = crd(place, fmt.Sprintf("Kind%d.example.com", kind))
		case 2:
			if r.IntN(4) == 0 {
				m = object(place, fmt.Sprintf("batch/v1 Job ns%d/job", space))
				break
			}
			if r.IntN(4) == 0 {
				m = object(place, "apps/v1 Deployment openshift-cluster-version/cluster-version-operator")
				break
			}
			m = crd(place, "CustomResourceDefinition.apiextensions.k8s.io") // claims to define CRDs
		case 3, 4, 5:
			m = object(place, fmt.Sprintf("example.com/v1 Kind%d ns%d/object", kind, space))
		case 6:
			m = object(place, fmt.Sprintf("example.com/v1 Kind%d object", kind))
		default:
			m = object(place, fmt.Sprintf("v1 ConfigMap ns%d/config", space))
		}
		if r.IntN(8) == 0 {
			tombstone(m)
		}
		manifests = append(manifests, m)
	}
	return manifests
}
