package taskgraph

import (
	"cmp"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/graph/simple"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

var (
	namespaceKind = schema.GroupKind{Kind: "Namespace"}
	crdKind       = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	jobKind       = schema.GroupKind{Group: "batch", Kind: "Job"}
)

// Build sorts manifests for a mode. It returns an error for an unknown mode and for a manifest without an object.
//
// First it sorts all manifests into one line, by runlevel, component, file name and document. The files' folders do not matter, and equal
// manifests keep their order. When Updating, the operator's own Deployment moves to the end of its runlevel: the objects that it needs come
// before it, and the replaced operator applies nothing after it.
//
// Then it cuts the line into segments. When Updating, it cuts at every Job, at the operator's Deployment and at every change of runlevel. A
// Job is a segment of its own, as in the task list of OpenShift's operator. In the other modes the whole line is one segment. A segment
// starts once the previous segment has settled completely. Inside a segment:
//
//   - When Updating, the manifests of one component form a chain. Components do not wait for each other.
//   - In the other modes, a Job waits for the earlier manifests of its component, and the later ones wait for the Job.
//   - In every mode, a CRD precedes the objects of its kind, and a Namespace precedes the objects in it.
//
// Where the last rule contradicts the line, only the CRD or Namespace moves. If its first user is in an earlier segment, the node is drawn
// forward to the start of that segment. If an earlier user is in the same segment, the node is loosened: it waits only for the start of the
// segment, while the rest of its chain still waits for it. In the same way it waits for no Job, but the next Job of its component still
// waits for it.
//
// The result has no cycle. Sort the nodes by segment, then barrier before drawn or loosened nodes before all others, then by place in the
// line: every edge leads upwards in this order. This is obvious between segments and from a barrier. Drawn and loosened nodes are CRDs and
// Namespaces, which have no prerequisites, so their only incoming edge comes from the start of the segment. Their outgoing edges lead to
// the other nodes or to the next segment. All remaining edges connect two nodes that kept their places. Edges of chains and Jobs follow the
// line. An implied edge against the line would have loosened its start node.
//
// Tombstones are not prerequisites. A tombstone waits for the CRD or Namespace of its object if the payload also contains it, not as a
// tombstone, and if the line allows it. It draws nothing forward, because a deletion needs no prerequisites.
//
// Build does not know whether a kind is cluster-scoped. A cluster-scoped object with a stray namespace waits for that namespace, which is
// harmless.
func Build(manifests []*manifest.Manifest, mode release.Mode) (*Graph, error) {
	if !slices.Contains(release.Modes(), mode) {
		return nil, fmt.Errorf("building the task graph: unknown mode %q", mode)
	}
	line, err := lineUp(manifests, mode)
	if err != nil {
		return nil, fmt.Errorf("building the task graph: %w", err)
	}
	b := builder{line: line, chained: mode == release.Updating, graph: simple.NewDirectedGraph()}
	b.cutSegments()
	b.drawForward()
	b.assemble()
	g, err := newGraph(mode, b.graph)
	if err != nil {
		return nil, fmt.Errorf("building the task graph: %w", err)
	}
	return g, nil
}

// place is a manifest's place in the line, with the properties that Build's rules need.
type place struct {
	*manifest.Manifest
	kind            schema.GroupKind
	namespace, name string
	tombstone       bool
	// operator is true for the operator's own Deployment.
	operator bool
	// defines is the kind that a CRD defines.
	defines schema.GroupKind
	// segment is the segment in which the manifest runs.
	segment int
	// loose is true if the manifest waits only for the start of its segment and not for its chain.
	loose bool
	// drawn is true if the manifest moved to an earlier segment: the segment of its first user drawnFor.
	drawn    bool
	drawnFor int
	// node is the manifest's node in the graph.
	node *Node
}

func (p *place) job() bool { return p.kind == jobKind && !p.tombstone }

// alone reports whether the manifest is a separate segment.
func (p *place) alone(chained bool) bool { return chained && (p.job() || p.operator) }

// prerequisite reports whether other manifests may have to wait for this one.
func (p *place) prerequisite() bool { return p.kind == namespaceKind || p.kind == crdKind }

// lineUp sorts manifests and reads the properties that Build's rules need.
func lineUp(manifests []*manifest.Manifest, mode release.Mode) ([]place, error) {
	line := make([]place, len(manifests))
	for i, m := range manifests {
		if m == nil || m.Object == nil {
			return nil, fmt.Errorf("manifest %d of %d has no object", i+1, len(manifests))
		}
		line[i] = place{
			Manifest: m, kind: m.GVK().GroupKind(), namespace: m.Object.GetNamespace(), name: m.Object.GetName(),
			tombstone: m.Tombstone(), operator: !m.Tombstone() && manifest.IsOperatorDeployment(m.Object),
		}
		line[i].defines, _ = m.Defines()
	}
	last := func(p *place) int { return boolInt(mode == release.Updating && p.operator) }
	slices.SortStableFunc(line, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.Runlevel, b.Runlevel), cmp.Compare(last(&a), last(&b)), a.Compare(b.Manifest))
	})
	return line, nil
}

type builder struct {
	line []place
	// chained is true if the manifests of runlevels and components are ordered.
	chained bool
	// segments is the number of segments.
	segments int
	// implied contains pairs of places: a prerequisite and its user.
	implied [][2]int

	graph *simple.DirectedGraph
}

// cutSegments divides the line into segments.
func (b *builder) cutSegments() {
	for i := range b.line {
		p := &b.line[i]
		if i == 0 || p.alone(b.chained) || b.line[i-1].alone(b.chained) || (b.chained && p.Runlevel != b.line[i-1].Runlevel) {
			b.segments++
		}
		p.segment = b.segments - 1
	}
}

// drawForward finds the users of every CRD and Namespace. It moves a CRD or Namespace that is needed before its place.
func (b *builder) drawForward() {
	namespaces, definitions := b.prerequisites()
	addPair := func(prerequisite, user int) {
		p, u := &b.line[prerequisite], &b.line[user]
		b.implied = append(b.implied, [2]int{prerequisite, user})
		switch {
		case u.tombstone || prerequisite < user:
		case u.segment == p.segment:
			p.loose = true
		case !p.drawn: // the first user in the line decides
			p.drawn, p.drawnFor, p.loose, p.segment = true, user, true, u.segment
		}
	}
	for i := range b.line {
		p := &b.line[i]
		if p.prerequisite() {
			continue // its fields need nothing from the payload, and Build's proof needs this
		}
		if definition, ok := definitions[p.kind]; ok {
			addPair(definition, i)
		}
		if namespace, ok := namespaces[p.namespace]; ok && p.namespace != "" {
			addPair(namespace, i)
		}
	}
}

// prerequisites finds the Namespaces by name and the CRDs by the kind that they define, without tombstones. Loading a payload rejects
// duplicates; here the first in the line counts.
func (b *builder) prerequisites() (namespaces map[string]int, definitions map[schema.GroupKind]int) {
	namespaces, definitions = map[string]int{}, map[schema.GroupKind]int{}
	for i := range b.line {
		p := &b.line[i]
		switch {
		case p.tombstone:
		case p.kind == namespaceKind:
			if _, ok := namespaces[p.name]; !ok {
				namespaces[p.name] = i
			}
		case p.kind == crdKind:
			if _, ok := definitions[p.defines]; !ok {
				definitions[p.defines] = i
			}
		}
	}
	return namespaces, definitions
}

// assemble creates the nodes and edges, segment by segment.
func (b *builder) assemble() {
	segments := make([][]int, b.segments) // places; loosened ones first, both parts in the line's order
	for _, loose := range []bool{true, false} {
		for i := range b.line {
			if p := &b.line[i]; p.loose == loose {
				segments[p.segment] = append(segments[p.segment], i)
			}
		}
	}
	needs := b.needs()
	var open []*Node // nodes that the next segment has to wait for
	for s, places := range segments {
		if len(places) == 0 {
			continue // all of them were drawn forward
		}
		if len(open) > 1 && len(places) > 1 {
			open = []*Node{b.barrier(s, b.runlevel(places), open)}
		}
		for _, i := range places {
			b.addNode(i)
		}
		if b.chained {
			b.chain(places)
		} else {
			b.awaitJobs(places)
		}
		for _, i := range places {
			for _, need := range needs[i] {
				b.link(b.line[need].node, b.line[i].node)
			}
		}
		open = b.connectSegment(open, places)
	}
}

// needs returns, by place, the prerequisites that need an edge. They are in the same segment, and no barrier, chain or wait of a Job
// precedes them already. A tombstone gets no edge that would lead backwards.
func (b *builder) needs() [][]int {
	needs := make([][]int, len(b.line))
	for _, pair := range b.implied {
		p, u := &b.line[pair[0]], &b.line[pair[1]]
		forward := pair[0] < pair[1]
		switch {
		case p.segment != u.segment:
		case u.tombstone && !p.loose && !forward:
		case b.chained && forward && !p.drawn && p.Component == u.Component:
		case !b.chained && forward && u.job() && p.Component == u.Component:
		default:
			needs[pair[1]] = append(needs[pair[1]], pair[0])
		}
	}
	return needs
}

// runlevel returns the runlevel after a segment's barrier.
func (b *builder) runlevel(places []int) int { return b.line[places[len(places)-1]].Runlevel }

// barrier adds a node without a manifest after the open nodes and returns it.
func (b *builder) barrier(segment, runlevel int, open []*Node) *Node {
	n := b.node(&Node{Runlevel: runlevel, segment: segment})
	for _, o := range open {
		b.link(o, n)
	}
	return n
}

// addNode creates the node of a place.
func (b *builder) addNode(i int) {
	p := &b.line[i]
	n := &Node{
		Manifest: p.Manifest, Runlevel: p.Runlevel, Component: p.Component,
		job: p.job(), operator: b.chained && p.operator, alone: p.alone(b.chained), segment: p.segment,
		definition: !b.chained && p.kind == crdKind && !p.tombstone,
	}
	if p.drawn {
		n.Drawn, n.From, n.For = true, n.Group(), b.line[p.drawnFor].Manifest
		n.Runlevel = n.For.Runlevel
	}
	p.node = b.node(n)
}

// node adds a node to the graph under the next id.
func (b *builder) node(n *Node) *Node {
	n.id = int64(b.graph.Nodes().Len())
	b.graph.AddNode(n)
	return n
}

// link adds an edge: the second node waits for the first.
func (b *builder) link(before, after *Node) {
	b.graph.SetEdge(simple.Edge{F: before, T: after})
}

// chain links the places of each component in the line's order. A loosened place waits for none of them, but the next place that is not
// loosened waits for it.
func (b *builder) chain(places []int) {
	places = slices.Clone(places)
	slices.Sort(places)
	component := ""
	var before []*Node // predecessors of the component's next place: loosened nodes, then the chain's tail
	var tail *Node
	for _, i := range places {
		p := &b.line[i]
		if p.drawn {
			continue
		}
		if p.Component != component {
			component, tail, before = p.Component, nil, nil
		}
		if p.loose {
			before = append(before, p.node)
			continue
		}
		if tail != nil {
			before = append(before, tail)
		}
		for _, node := range before {
			b.link(node, p.node)
		}
		tail, before = p.node, before[:0]
	}
}

// awaitJobs orders the places of each component with Jobs. A Job waits for the places before it in the line, and the places after it wait
// for the Job. A loosened place waits for no Job.
func (b *builder) awaitJobs(places []int) {
	type component struct {
		job  *Node   // the last Job; nil before the first one
		last []*Node // the nodes that the next Job waits for
	}
	components := map[string]*component{}
	for _, i := range places {
		if p := &b.line[i]; p.job() {
			components[p.Component] = &component{}
		}
	}
	if len(components) == 0 {
		return
	}
	places = slices.Clone(places)
	slices.Sort(places)
	for _, i := range places {
		p := &b.line[i]
		c := components[p.Component]
		switch {
		case c == nil:
		case p.job():
			if c.job != nil {
				b.link(c.job, p.node)
			}
			for _, node := range c.last {
				b.link(node, p.node)
			}
			c.job, c.last = p.node, nil
		default:
			if c.job != nil && !p.loose {
				b.link(c.job, p.node)
			}
			c.last = append(c.last, p.node)
		}
	}
}

// connectSegment links the open nodes to all nodes without predecessors in the segment. It returns the nodes without successors in the
// segment. When it is called, no edge leaves the segment yet.
func (b *builder) connectSegment(open []*Node, places []int) []*Node {
	var starts, ends []*Node
	for _, i := range places {
		n := b.line[i].node
		if b.graph.To(n.id).Len() == 0 {
			starts = append(starts, n)
		}
		if b.graph.From(n.id).Len() == 0 {
			ends = append(ends, n)
		}
	}
	for _, n := range starts {
		for _, o := range open {
			b.link(o, n)
		}
	}
	return ends
}
