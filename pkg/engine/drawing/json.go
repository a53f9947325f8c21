package drawing

import (
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Document is the graph for scripts. Its format is stable: fields may be added, but are never renamed or removed.
type Document struct {
	Mode    release.Mode      `json:"mode"`
	Summary taskgraph.Summary `json:"summary"`
	// CriticalPath lists the indexes of a longest path.
	CriticalPath []int `json:"criticalPath"`
	// Nodes is in topological order. A node's index is its position.
	Nodes []DocumentNode `json:"nodes"`
}

// DocumentNode is one node of a Document.
type DocumentNode struct {
	Index int `json:"index"`
	// Barrier is true for a node without an object. All nodes in After settle before the nodes that wait for the barrier.
	Barrier   bool         `json:"barrier,omitempty"`
	Runlevel  int          `json:"runlevel"`
	Component string       `json:"component,omitempty"`
	Object    *manifest.ID `json:"object,omitempty"`
	File      string       `json:"file,omitempty"`
	Document  int          `json:"document,omitempty"`
	// DrawnFrom is set for a node that was drawn forward: the place that its file name gives it.
	DrawnFrom *taskgraph.Group `json:"drawnFrom,omitempty"`
	// Job marks Jobs that divide the order.
	Job bool `json:"job,omitempty"`
	// Operator is true for the operator's own Deployment, where an update is handed over to the operator of the release.
	Operator bool `json:"operator,omitempty"`
	// Delete is true for an object that the release deletes.
	Delete bool `json:"delete,omitempty"`
	// After contains the indexes of the nodes that this node waits for directly.
	After []int `json:"after"`
}

// NewDocument converts the graph to a Document.
func NewDocument(g *taskgraph.Graph) Document {
	d := Document{Mode: g.Mode(), Summary: g.Summary(), CriticalPath: indexes(g.CriticalPath()), Nodes: make([]DocumentNode, 0, len(g.Nodes()))}
	for _, n := range g.Nodes() {
		node := DocumentNode{
			Index: n.Index, Barrier: n.Barrier(), Runlevel: n.Runlevel, Component: n.Component, Job: n.Job(), Operator: n.Operator(),
			After: indexes(g.Predecessors(n)),
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

func indexes(nodes []*taskgraph.Node) []int {
	list := make([]int, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, n.Index)
	}
	return list
}
