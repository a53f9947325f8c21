package taskgraph

import (
	"encoding/json"
	"io"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Document is the graph as WriteJSON prints it. Scripts may rely on it: fields are added, never renamed or removed.
type Document struct {
	Mode    release.Mode `json:"mode"`
	Summary Summary      `json:"summary"`
	// CriticalPath lists the indexes of a longest path.
	CriticalPath []int `json:"criticalPath"`
	// Nodes are in a topological order; a node's index is its position.
	Nodes []DocumentNode `json:"nodes"`
}

// DocumentNode is one node of a Document.
type DocumentNode struct {
	Index int `json:"index"`
	// Barrier nodes have no object; everything in After settles before anything that waits for the barrier.
	Barrier   bool         `json:"barrier,omitempty"`
	Runlevel  int          `json:"runlevel"`
	Component string       `json:"component,omitempty"`
	Object    *manifest.ID `json:"object,omitempty"`
	File      string       `json:"file,omitempty"`
	Document  int          `json:"document,omitempty"`
	// DrawnFrom is set for a node that was drawn forward: the place that its file name gives it.
	DrawnFrom *Group `json:"drawnFrom,omitempty"`
	// Job marks Jobs that divide the order.
	Job bool `json:"job,omitempty"`
	// Operator marks the Deployment of the operator itself, at which an update is handed over to the operator of the release.
	Operator bool `json:"operator,omitempty"`
	// Delete marks objects that the release deletes.
	Delete bool `json:"delete,omitempty"`
	// After lists the indexes of the nodes that settle directly before this one.
	After []int `json:"after"`
}

// NewDocument turns the graph into plain values.
func NewDocument(g *Graph) Document {
	d := Document{Mode: g.mode, Summary: g.Summary(), CriticalPath: indexes(g.CriticalPath()), Nodes: make([]DocumentNode, 0, len(g.nodes))}
	for _, n := range g.nodes {
		node := DocumentNode{
			Index: n.Index, Barrier: n.Barrier(), Runlevel: n.Runlevel, Component: n.Component, Job: n.job, Operator: n.operator,
			After: indexes(g.preds[n.Index]),
		}
		if m := n.Manifest; m != nil {
			id := m.ID()
			node.Object, node.File, node.Document, node.Delete = &id, m.File, m.Document, m.Tombstone()
		}
		if n.Drawn {
			node.DrawnFrom = &n.From
		}
		d.Nodes = append(d.Nodes, node)
	}
	return d
}

// WriteJSON prints the graph as a Document. It returns the error of w.
func WriteJSON(w io.Writer, g *Graph) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(NewDocument(g))
}

func indexes(nodes []*Node) []int {
	list := make([]int, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, n.Index)
	}
	return list
}
