// Package taskgraph orders the manifests of a release. From manifests and a run mode it builds a graph whose edges show which manifest must
// settle first. It walks a graph with a fixed number of goroutines. Building is pure and the result is immutable. The caller of Walk applies
// the manifests and decides when a manifest has settled. This package does not access a cluster.
package taskgraph

import (
	"cmp"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/simple"
	"gonum.org/v1/gonum/graph/topo"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Group is a component's place in the order of a release. It comes from the start of a manifest's file name.
type Group struct {
	Runlevel  int    `json:"runlevel"`
	Component string `json:"component"`
}

// String reads like `10/config-operator`.
func (g Group) String() string { return fmt.Sprintf("%02d/%s", g.Runlevel, g.Component) }

// Compare orders groups by runlevel and component.
func (g Group) Compare(other Group) int {
	return cmp.Or(cmp.Compare(g.Runlevel, other.Runlevel), cmp.Compare(g.Component, other.Component))
}

// Node is one manifest or a barrier. A barrier is a node without a manifest between n and m other nodes, which reduces n×m edges to n+m.
type Node struct {
	// Index is the node's position in Graph.Nodes. Every edge leads from a lower to a higher index.
	Index int
	// Manifest is nil for a barrier.
	Manifest *manifest.Manifest
	// Runlevel is the runlevel in which the node runs. That is the runlevel in its file name or, if it is drawn forward, the runlevel of
	// its first user. For a barrier it is the next runlevel.
	Runlevel int
	// Component is the component in the file name; empty for a barrier.
	Component string
	// Drawn is true for a CRD or Namespace that runs before its own place because an earlier object needs it.
	Drawn bool
	// From is the place in the file name of a drawn node. For is its first user.
	From Group
	For  *manifest.Manifest

	// job is true for a Job. When Updating, the Job separates everything before it from everything after it. In the other modes it only
	// does so in its component.
	job bool
	// operator is true for the operator's own Deployment, which separates the manifests of an update in the same way.
	operator bool
	// definition is true for a CustomResourceDefinition, except a tombstone, in a graph without chains.
	definition bool
	// alone is true for the only node of its segment, which makes it a barrier for the whole payload.
	alone bool
	// segment is the number of the node's segment, from 0. Barriers and Jobs separate segments.
	segment int
	// id identifies the node while the graph is built. Ids follow the load order.
	id int64
}

// ID returns the node's identity (gonum's graph.Node).
func (n *Node) ID() int64 { return n.id }

// Group returns the runlevel and component in which the node runs.
func (n *Node) Group() Group { return Group{Runlevel: n.Runlevel, Component: n.Component} }

// Barrier reports whether the node has no manifest.
func (n *Node) Barrier() bool { return n.Manifest == nil }

// Job reports whether the node is a Job. All later manifests wait for it when Updating; in the other modes only the later manifests of its
// component wait.
func (n *Node) Job() bool { return n.job }

// Operator reports whether the node is the operator's own Deployment, where an update is handed over to the operator of the release.
func (n *Node) Operator() bool { return n.operator }

// Alone reports whether the node divides the order of the whole payload: everything else is before or after it.
func (n *Node) Alone() bool { return n.alone }

// Segment returns the number of the stretch between two barriers or Jobs that the node belongs to, from 0.
func (n *Node) Segment() int { return n.segment }

// Label returns the name of the node's object, or the runlevel after a barrier.
func (n *Node) Label() string {
	if n.Barrier() {
		return fmt.Sprintf("barrier before runlevel %02d", n.Runlevel)
	}
	return n.Manifest.ID().String()
}

// Graph is the order of a release's manifests in one mode. It is immutable and safe for concurrent use. The slices that its methods return
// are shared, so callers must not modify them.
type Graph struct {
	mode  release.Mode
	nodes []*Node
	tasks []*Node
	// preds and succs contain lists by node index, each sorted by index.
	preds, succs [][]*Node
	// pathLengths[i] is the number of tasks on the longest path from node i.
	pathLengths []int
}

// Mode returns the mode the graph was built for.
func (g *Graph) Mode() release.Mode { return g.mode }

// Nodes returns all nodes, including barriers, in topological order.
func (g *Graph) Nodes() []*Node { return g.nodes }

// Tasks returns the nodes with a manifest, in topological order.
func (g *Graph) Tasks() []*Node { return g.tasks }

// Predecessors returns the nodes that n waits for directly, sorted by index.
func (g *Graph) Predecessors(n *Node) []*Node { return g.preds[n.Index] }

// Successors returns the nodes that wait directly for n, sorted by index.
func (g *Graph) Successors(n *Node) []*Node { return g.succs[n.Index] }

// Runlevels returns the runlevels with tasks, in ascending order.
func (g *Graph) Runlevels() []int {
	var levels []int
	for _, n := range g.tasks {
		levels = append(levels, n.Runlevel)
	}
	slices.Sort(levels)
	return slices.Compact(levels)
}

// Components returns the sorted names of all components.
func (g *Graph) Components() []string {
	var names []string
	for _, n := range g.tasks {
		names = append(names, n.Component)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Backward returns the tasks in reverse order, in steps. All dependents of a task are in earlier steps, and each task is in the last step
// that its predecessors allow. The first tasks of a runlevel's components, such as their namespaces, therefore share a step, no matter how
// long each component is. There are as many steps as tasks on the critical path. Each step has the order of the graph.
func (g *Graph) Backward() [][]*Node {
	behind := make([]int, len(g.nodes)) // the number of tasks on the longest path to each node, including the node
	longest := 0
	for i, n := range g.nodes {
		for _, p := range g.preds[i] {
			behind[i] = max(behind[i], behind[p.Index])
		}
		behind[i] += boolInt(!n.Barrier())
		longest = max(longest, behind[i])
	}
	steps := make([][]*Node, longest)
	for _, n := range g.tasks {
		step := &steps[longest-behind[n.Index]]
		*step = append(*step, n)
	}
	return steps
}

// CriticalPath returns the tasks on the path with the most tasks. No walk has fewer sequential visits, even with enough workers. Of several
// such paths, it returns the one with the lowest indexes.
func (g *Graph) CriticalPath() []*Node {
	var path []*Node
	for next := g.longest(g.nodes); next != nil; next = g.longest(g.succs[next.Index]) {
		if !next.Barrier() {
			path = append(path, next)
		}
	}
	return path
}

// longest returns the node with the longest path ahead. Of several, it returns the first; nil if nodes is empty.
func (g *Graph) longest(nodes []*Node) *Node {
	var best *Node
	for _, n := range nodes {
		if best == nil || g.pathLengths[n.Index] > g.pathLengths[best.Index] {
			best = n
		}
	}
	return best
}

// Summary contains counts of a graph's parts.
type Summary struct {
	Manifests  int `json:"manifests"`
	Components int `json:"components"`
	Runlevels  int `json:"runlevels"`
	// Drawn counts the nodes that were drawn forward.
	Drawn int `json:"drawnForward"`
	Jobs  int `json:"jobs"`
	// CriticalPath is the number of tasks on a longest path.
	CriticalPath int `json:"criticalPath"`
}

// Summary counts the parts of the graph.
func (g *Graph) Summary() Summary {
	s := Summary{
		Manifests: len(g.tasks), Components: len(g.Components()), Runlevels: len(g.Runlevels()),
		CriticalPath: len(g.CriticalPath()),
	}
	for _, n := range g.tasks {
		s.Drawn += boolInt(n.Drawn)
		s.Jobs += boolInt(n.job)
	}
	return s
}

// newGraph sorts the nodes of a directed graph topologically, and by id where the edges leave a choice. It returns an error if nodes form a
// cycle.
func newGraph(mode release.Mode, directed *simple.DirectedGraph) (*Graph, error) {
	order, err := topo.SortStabilized(directed, func(nodes []graph.Node) {
		slices.SortFunc(nodes, func(a, b graph.Node) int { return cmp.Compare(a.ID(), b.ID()) })
	})
	if err != nil {
		return nil, fmt.Errorf("manifests wait for each other: %w", err)
	}
	g := &Graph{mode: mode, nodes: make([]*Node, 0, len(order)), pathLengths: make([]int, len(order))}
	for i, node := range order {
		n := node.(*Node)
		n.Index = i
		g.nodes = append(g.nodes, n)
		if !n.Barrier() {
			g.tasks = append(g.tasks, n)
		}
	}
	g.preds, g.succs = make([][]*Node, len(order)), make([][]*Node, len(order))
	for i, n := range g.nodes {
		g.preds[i] = byIndex(directed.To(n.id))
		g.succs[i] = byIndex(directed.From(n.id))
	}
	for i, n := range slices.Backward(g.nodes) {
		for _, s := range g.succs[i] {
			g.pathLengths[i] = max(g.pathLengths[i], g.pathLengths[s.Index])
		}
		g.pathLengths[i] += boolInt(!n.Barrier())
	}
	return g, nil
}

// byIndex returns the nodes sorted by index.
func byIndex(all graph.Nodes) []*Node {
	nodes := make([]*Node, 0, all.Len())
	for all.Next() {
		nodes = append(nodes, all.Node().(*Node))
	}
	slices.SortFunc(nodes, func(a, b *Node) int { return cmp.Compare(a.Index, b.Index) })
	return nodes
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
