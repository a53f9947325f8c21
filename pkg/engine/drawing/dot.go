package drawing

import (
	"fmt"
	"io"
	"strings"

	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/encoding"
	"gonum.org/v1/gonum/graph/encoding/dot"
	"gonum.org/v1/gonum/graph/simple"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/release"
)

// WriteDOT prints the graph for Graphviz, with a box for each manifest and a point for each barrier. When Updating, each runlevel is a
// cluster. It returns the error of w.
func WriteDOT(w io.Writer, g *taskgraph.Graph) error {
	out, err := dot.Marshal(newDotGraph(g), "release", "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the graph as DOT: %w", err)
	}
	_, err = w.Write(append(out, '\n'))
	return err
}

// dotGraph is the graph in the form that gonum needs.
type dotGraph struct {
	*simple.DirectedGraph
	clusters []dot.Graph
}

func newDotGraph(g *taskgraph.Graph) dotGraph {
	d := dotGraph{DirectedGraph: simple.NewDirectedGraph()}
	nodes := make([]dotNode, len(g.Nodes()))
	for _, n := range g.Nodes() {
		nodes[n.Index] = dotNode{n}
		d.AddNode(nodes[n.Index])
	}
	for _, n := range g.Nodes() {
		for _, s := range g.Successors(n) {
			d.SetEdge(d.NewEdge(nodes[n.Index], nodes[s.Index]))
		}
	}
	if g.Mode() == release.Updating {
		for _, level := range g.Runlevels() {
			cluster := dotCluster{DirectedGraph: simple.NewDirectedGraph(), runlevel: level}
			for _, n := range g.Tasks() {
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

// DOTAttributers returns the common attributes of all nodes (gonum's dot.Attributers).
func (d dotGraph) DOTAttributers() (graph, node, edge encoding.Attributer) {
	return attributes{{Key: "rankdir", Value: "LR"}},
		attributes{{Key: "shape", Value: "box"}, {Key: "fontname", Value: "sans-serif"}, {Key: "fontsize", Value: "10"}},
		attributes{}
}

// dotNode is a node with its attributes.
type dotNode struct{ *taskgraph.Node }

// DOTID returns the node's name in the output.
func (n dotNode) DOTID() string { return dotID(n.Index) }

// Attributes returns the node's own attributes; see encoding.Attributer.
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
	case n.Job():
		lines = append(lines, jobRemark(n.Node))
		list = append(list, encoding.Attribute{Key: "penwidth", Value: "3"})
	case n.Operator():
		lines = append(lines, "the operator is replaced here")
		list = append(list, encoding.Attribute{Key: "penwidth", Value: "3"})
	case n.Manifest.Tombstone():
		lines = append(lines, "deleted")
		list = append(list, encoding.Attribute{Key: "style", Value: "dotted"})
	}
	list[0] = encoding.Attribute{Key: "label", Value: dotQuote(lines...)}
	return list
}

// dotMember is the name of a node inside a cluster. The attributes are set once, by the dotNode.
type dotMember int

// ID returns the node's index (gonum's graph.Node).
func (n dotMember) ID() int64 { return int64(n) }

// DOTID returns the node's name in the output.
func (n dotMember) DOTID() string { return dotID(int(n)) }

func dotID(index int) string { return fmt.Sprintf("n%d", index) }

// dotCluster is a frame around the tasks of a runlevel.
type dotCluster struct {
	*simple.DirectedGraph
	runlevel int
}

// DOTID returns the cluster's name. Graphviz draws frames around graphs with this prefix.
func (c dotCluster) DOTID() string { return fmt.Sprintf("cluster_%02d", c.runlevel) }

// DOTAttributers sets the cluster's title (gonum's dot.Attributers).
func (c dotCluster) DOTAttributers() (graph, node, edge encoding.Attributer) {
	return attributes{{Key: "label", Value: dotQuote(fmt.Sprintf("Runlevel %02d", c.runlevel))}}, attributes{}, attributes{}
}

// attributes is a list that implements encoding.Attributer.
type attributes []encoding.Attribute

// Attributes returns the list.
func (a attributes) Attributes() []encoding.Attribute { return a }

// dotQuote joins lines into one quoted string. It escapes backslashes because they have a meaning in labels.
func dotQuote(lines ...string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	for i, line := range lines {
		lines[i] = escape.Replace(printable.Text(line))
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}

var _ graph.Directed = dotGraph{}
