// Package taskgraph orders the manifests of a release: it takes manifests and a run mode and returns a graph whose
// edges say what must have settled before what, walks such a graph with a fixed number of goroutines, and prints it as
// text, DOT, SVG and JSON. Building is pure and the result never changes. What it means to apply a manifest, and when
// one has settled, is left to the caller of Walk; nothing here knows a cluster.
package taskgraph

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Group is a component's place in the order of a release, the first two numbers of a manifest's file name.
type Group struct {
	Runlevel  int    `json:"runlevel"`
	Component string `json:"component"`
}

// String reads like `10/config-operator`.
func (g Group) String() string { return fmt.Sprintf("%02d/%s", g.Runlevel, g.Component) }

// Node is one manifest, or a barrier: a node without a manifest where many nodes meet many others, so that n×m edges
// become n+m.
type Node struct {
	// Index is the node's position in Graph.Nodes. Every edge leads from a lower to a higher index.
	Index int
	// Manifest is nil for a barrier.
	Manifest *manifest.Manifest
	// Runlevel is where the node runs: that of its file name, or of its first user if it is drawn forward. A
	// barrier has the runlevel that it leads to.
	Runlevel int
	// Component is that of the file name; empty for a barrier.
	Component string
	// Drawn marks a CRD or Namespace that runs before its own place, because something before that place needs it.
	Drawn bool
	// From is the place that the file name gives a drawn node.
	From Group

	// job: a Job that splits the order, so everything before it precedes it and everything after it follows it.
	job bool
	// operator: the Deployment of the operator itself, which splits an update in the same way.
	operator bool
	// segment is the stretch between two barriers or Jobs that the node belongs to, from 0.
	segment int
}

// Group is where the node runs.
func (n *Node) Group() Group { return Group{Runlevel: n.Runlevel, Component: n.Component} }

// Barrier reports whether the node has no manifest.
func (n *Node) Barrier() bool { return n.Manifest == nil }

// Job reports whether the node is a Job, which is awaited by all that comes after it.
func (n *Node) Job() bool { return n.job }

// Operator reports whether the node is the Deployment of the operator itself, at which an update is handed over to the
// operator of the release.
func (n *Node) Operator() bool { return n.operator }

// Label names the node: its object, or what the barrier stands before.
func (n *Node) Label() string {
	if n.Barrier() {
		return fmt.Sprintf("barrier before runlevel %02d", n.Runlevel)
	}
	return n.Manifest.ID().String()
}

// Graph is the order of a release's manifests in one mode. It is immutable and safe for concurrent use; slices that
// its methods return are shared and must not be written to.
type Graph struct {
	mode  release.Mode
	nodes []*Node
	tasks []*Node
	// preds and succs are by node index; each list is sorted by index.
	preds, succs [][]*Node
	edges        int
	// rest is, by node index, the number of tasks on the longest path that starts at the node.
	rest []int
}

// Mode is the mode the graph was built for.
func (g *Graph) Mode() release.Mode { return g.mode }

// Nodes returns all nodes, barriers included, in a topological order.
func (g *Graph) Nodes() []*Node { return g.nodes }

// Tasks returns the nodes that have a manifest, in a topological order.
func (g *Graph) Tasks() []*Node { return g.tasks }

// Edges is the number of edges.
func (g *Graph) Edges() int { return g.edges }

// Predecessors returns what must have settled directly before n, by index.
func (g *Graph) Predecessors(n *Node) []*Node { return g.preds[n.Index] }

// Successors returns what waits directly for n, by index.
func (g *Graph) Successors(n *Node) []*Node { return g.succs[n.Index] }

// Runlevels returns the runlevels in which anything runs, ascending.
func (g *Graph) Runlevels() []int {
	var levels []int
	for _, n := range g.tasks {
		levels = append(levels, n.Runlevel)
	}
	slices.Sort(levels)
	return slices.Compact(levels)
}

// Components returns the names of the components that bring a manifest, sorted.
func (g *Graph) Components() []string {
	var names []string
	for _, n := range g.tasks {
		names = append(names, n.Component)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Backward returns the tasks in the reverse order, step by step: what waits for a task is in an earlier step, and a task is
// in the last step that what it waits for allows. So what many components of a runlevel begin with, such
// as their namespaces, shares a step, however long each of them is. There are as many steps as the critical path has tasks,
// and each lists its tasks in the order of the graph.
func (g *Graph) Backward() [][]*Node {
	behind := make([]int, len(g.nodes)) // the longest path of tasks to each node, itself included
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

// CriticalPath returns the tasks of a longest path, counted in tasks: with workers enough, no walk has fewer visits
// one after the other. Among equally long paths it takes the lowest indexes.
func (g *Graph) CriticalPath() []*Node {
	var path []*Node
	for next := g.longest(g.nodes); next != nil; next = g.longest(g.succs[next.Index]) {
		if !next.Barrier() {
			path = append(path, next)
		}
	}
	return path
}

// longest returns the node with the longest path ahead, the first of several, nil if there is none.
func (g *Graph) longest(nodes []*Node) *Node {
	var best *Node
	for _, n := range nodes {
		if best == nil || g.rest[n.Index] > g.rest[best.Index] {
			best = n
		}
	}
	return best
}

// newGraph links nodes by edges, pairs of node indexes (from, to) in which from is the lower and no pair is double.
func newGraph(mode release.Mode, nodes []*Node, edges [][2]int) *Graph {
	g := &Graph{mode: mode, nodes: nodes, edges: len(edges), rest: make([]int, len(nodes))}
	g.tasks = make([]*Node, 0, len(nodes))
	for _, n := range nodes {
		if !n.Barrier() {
			g.tasks = append(g.tasks, n)
		}
	}
	slices.SortFunc(edges, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	g.preds = adjacent(nodes, edges, 1, 0)
	g.succs = adjacent(nodes, edges, 0, 1)
	for i := len(nodes) - 1; i >= 0; i-- {
		for _, s := range g.succs[i] {
			g.rest[i] = max(g.rest[i], g.rest[s.Index])
		}
		g.rest[i] += boolInt(!nodes[i].Barrier())
	}
	return g
}

// adjacent returns, for each node as one end of an edge, the nodes at the other end, in the order of edges. All
// lists lie in one slice.
func adjacent(nodes []*Node, edges [][2]int, near, far int) [][]*Node {
	start := make([]int, len(nodes)+1)
	for _, e := range edges {
		start[e[near]+1]++
	}
	for i := range nodes {
		start[i+1] += start[i]
	}
	all := make([]*Node, len(edges))
	lists := make([][]*Node, len(nodes))
	for i := range nodes {
		lists[i] = all[start[i]:start[i]:start[i+1]]
	}
	for _, e := range edges {
		lists[e[near]] = append(lists[e[near]], nodes[e[far]])
	}
	return lists
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
