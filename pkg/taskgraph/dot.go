package taskgraph

import (
	"fmt"
	"io"
	"strings"

	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/encoding"
	"gonum.org/v1/gonum/graph/encoding/dot"
	"gonum.org/v1/gonum/graph/simple"

	"github.com/cluster-version/cvo/pkg/release"
)

// WriteDOT prints the graph for Graphviz: a box for each manifest, a point for each barrier, and when Updating a
// cluster for each runlevel. It returns the error of w.
func WriteDOT(w io.Writer, g *Graph) error {
	out, err := dot.Marshal(newDotGraph(g), "release", "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the graph as DOT: %w", err)
	}
	_, err = w.Write(append(out, '\n'))
	return err
}

// dotGraph is the graph as gonum sees it.
type dotGraph struct {
	*simple.DirectedGraph
	clusters []dot.Graph
}

func newDotGraph(g *Graph) dotGraph {
	d := dotGraph{DirectedGraph: simple.NewDirectedGraph()}
	nodes := make([]dotNode, len(g.nodes))
	for _, n := range g.nodes {
		nodes[n.Index] = dotNode{n}
		d.AddNode(nodes[n.Index])
	}
	for _, n := range g.nodes {
		for _, s := range g.succs[n.Index] {
			d.SetEdge(d.NewEdge(nodes[n.Index], nodes[s.Index]))
		}
	}
	if g.mode == release.Updating {
		for _, level := range g.Runlevels() {
			cluster := dotCluster{DirectedGraph: simple.NewDirectedGraph(), runlevel: level}
			for _, n := range g.tasks {
				if n.Runlevel == level {
					cluster.AddNode(dotMember(n.Index))
				}
			}
			d.clusters = append(d.clusters, cluster)
		}
	}
	return d
}

// Structure returns the clusters (gonum's dot.Structurer).
func (d dotGraph) Structure() []dot.Graph { return d.clusters }

// DOTAttributers returns what all nodes share (gonum's dot.Attributers).
func (d dotGraph) DOTAttributers() (graph, node, edge encoding.Attributer) {
	return attributes{{Key: "rankdir", Value: "LR"}},
		attributes{{Key: "shape", Value: "box"}, {Key: "fontname", Value: "sans-serif"}, {Key: "fontsize", Value: "10"}},
		attributes{}
}

// dotNode is a node with its attributes.
type dotNode struct{ *Node }

// ID is the node's index (gonum's graph.Node).
func (n dotNode) ID() int64 { return int64(n.Index) }

// DOTID names the node in the output.
func (n dotNode) DOTID() string { return dotID(n.Index) }

// Attributes are the node's own, see encoding.Attributer.
func (n dotNode) Attributes() []encoding.Attribute {
	if n.Barrier() {
		return attributes{{Key: "shape", Value: "point"}, {Key: "tooltip", Value: dotQuote(n.Label())}}
	}
	lines := []string{n.Group().String(), n.Label()}
	list := attributes{{}}
	switch {
	case n.Drawn:
		lines = append(lines, "drawn forward from "+n.From.String())
		list = append(list, encoding.Attribute{Key: "style", Value: "dashed"})
	case n.job:
		lines = append(lines, "barrier")
		list = append(list, encoding.Attribute{Key: "penwidth", Value: "3"})
	case n.operator:
		lines = append(lines, "the operator is replaced here")
		list = append(list, encoding.Attribute{Key: "penwidth", Value: "3"})
	case n.Manifest.Tombstone():
		lines = append(lines, "deleted")
		list = append(list, encoding.Attribute{Key: "style", Value: "dotted"})
	}
	list[0] = encoding.Attribute{Key: "label", Value: dotQuote(lines...)}
	return list
}

// dotMember names a node inside a cluster; its attributes are given once, by the dotNode.
type dotMember int

// ID is the node's index (gonum's graph.Node).
func (n dotMember) ID() int64 { return int64(n) }

// DOTID names the node in the output.
func (n dotMember) DOTID() string { return dotID(int(n)) }

func dotID(index int) string { return fmt.Sprintf("n%d", index) }

// dotCluster frames the tasks of a runlevel.
type dotCluster struct {
	*simple.DirectedGraph
	runlevel int
}

// DOTID names the cluster; Graphviz frames what is called so.
func (c dotCluster) DOTID() string { return fmt.Sprintf("cluster_%02d", c.runlevel) }

// DOTAttributers gives the cluster its title (gonum's dot.Attributers).
func (c dotCluster) DOTAttributers() (graph, node, edge encoding.Attributer) {
	return attributes{{Key: "label", Value: dotQuote(fmt.Sprintf("Runlevel %02d", c.runlevel))}}, attributes{}, attributes{}
}

// attributes are a list that is an encoding.Attributer.
type attributes []encoding.Attribute

// Attributes returns the list.
func (a attributes) Attributes() []encoding.Attribute { return a }

// dotQuote makes lines one quoted string. Backslashes are escaped because labels give them a meaning.
func dotQuote(lines ...string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	for i, line := range lines {
		lines[i] = escape.Replace(plain(line))
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}

var _ graph.Directed = dotGraph{}
