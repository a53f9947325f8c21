package taskgraph

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

var (
	namespaceKind = schema.GroupKind{Kind: "Namespace"}
	crdKind       = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	jobKind       = schema.GroupKind{Group: "batch", Kind: "Job"}

	deploymentKind = schema.GroupKind{Group: "apps", Kind: "Deployment"}
)

// Build orders manifests for a mode. It fails on an unknown mode and on a manifest without an object.
//
// All manifests are first put into one line, sorted by runlevel, component, file name and document, wherever in the
// payload their files lie; equal ones keep their order. When Updating, the Deployment of the operator itself goes to the
// end of its runlevel: what it needs comes before it, and what it replaces does nothing after it. The line is cut into
// segments: at every Job (which is a segment of its own), as OpenShift's operator splits its task list, and, when
// Updating, at that Deployment and at every change of runlevel.
// A segment begins when all of the segment before it has settled. Inside a segment:
//
//   - when Updating, the manifests of one component form a chain; components do not wait for each other;
//   - in every mode, a CRD comes before the objects of its kind and a Namespace before what is in it.
//
// Where the second rule contradicts the line, the CRD or Namespace yields, and only it. If its first user is in an
// earlier segment it is drawn forward to the start of that segment. If an earlier user is in the same segment it
// leaves its place in the chain, waits only for the start of the segment, and the chain still waits for it.
//
// The result has no cycle. Sort nodes by (segment; barrier, then drawn or loosened nodes, then the others; place in
// the line): every edge leads upwards in this order. Between segments and from a barrier that is plain. Drawn and
// loosened nodes are CRDs and Namespaces, which have no prerequisites, so nothing but the segment's start leads to
// one, and what leads from one leads to the others, to the next segment, or nowhere. The edges that are left join two
// nodes that kept their places: chain edges follow the line, and an implied edge against the line would have loosened
// the node it starts from.
//
// Tombstones are no prerequisites. One waits for the CRD or Namespace of its object where the payload has that alive
// and the line allows it, but draws nothing forward: deleting something needs nothing to be there.
//
// Scope is not known here, so a cluster-scoped object with a stray namespace waits for that namespace, which is
// harmless.
func Build(manifests []*manifest.Manifest, mode release.Mode) (*Graph, error) {
	if !slices.Contains(release.Modes(), mode) {
		return nil, fmt.Errorf("building the task graph: unknown mode %q", mode)
	}
	line, err := lineUp(manifests, mode)
	if err != nil {
		return nil, fmt.Errorf("building the task graph: %w", err)
	}
	b := builder{line: line, chained: mode == release.Updating}
	b.cut()
	b.imply()
	b.assemble()
	return newGraph(mode, b.nodes, b.edges), nil
}

// place is a manifest's place in the line, with what the rules ask about it.
type place struct {
	*manifest.Manifest
	kind            schema.GroupKind
	namespace, name string
	tombstone       bool
	// defines is the kind that a CRD brings.
	defines schema.GroupKind
	// segment is where it runs.
	segment int
	// loose: it waits for the start of its segment only, not for its chain.
	loose bool
	// drawn: it was moved to an earlier segment, for drawnFor's sake.
	drawn    bool
	drawnFor int
	// node is its index in the graph.
	node int
}

func (p *place) job() bool { return p.kind == jobKind && !p.tombstone }

// operator reports whether it is the Deployment of the operator itself.
func (p *place) operator() bool {
	return p.kind == deploymentKind && p.namespace == api.OperatorNamespace && p.name == api.OperatorDeployment && !p.tombstone
}

// alone reports whether it is a segment of its own.
func (p *place) alone(chained bool) bool { return p.job() || chained && p.operator() }

// prerequisite reports whether others may have to wait for it.
func (p *place) prerequisite() bool { return p.kind == namespaceKind || p.kind == crdKind }

// lineUp sorts manifests and reads from each what the rules ask.
func lineUp(manifests []*manifest.Manifest, mode release.Mode) ([]place, error) {
	line := make([]place, len(manifests))
	for i, m := range manifests {
		if m == nil || m.Object == nil {
			return nil, fmt.Errorf("manifest %d of %d has no object", i+1, len(manifests))
		}
		line[i] = place{
			Manifest: m, kind: m.GVK().GroupKind(), namespace: m.Object.GetNamespace(), name: m.Object.GetName(),
			tombstone: m.Tombstone(),
		}
		if line[i].kind == crdKind {
			group, _, _ := unstructured.NestedString(m.Object.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(m.Object.Object, "spec", "names", "kind")
			line[i].defines = schema.GroupKind{Group: group, Kind: kind}
		}
	}
	last := func(p *place) int { return boolInt(mode == release.Updating && p.operator()) }
	slices.SortStableFunc(line, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.Runlevel, b.Runlevel), cmp.Compare(last(&a), last(&b)), cmp.Compare(a.Component, b.Component),
			cmp.Compare(a.File, b.File), cmp.Compare(a.Document, b.Document))
	})
	return line, nil
}

type builder struct {
	line []place
	// chained: runlevels and components order what lies in them.
	chained bool
	// segments is how many there are.
	segments int
	// implied are pairs of places, prerequisite and user.
	implied [][2]int

	nodes []*Node
	edges [][2]int
}

// cut divides the line into segments.
func (b *builder) cut() {
	for i := range b.line {
		p := &b.line[i]
		if i == 0 || p.alone(b.chained) || b.line[i-1].alone(b.chained) || (b.chained && p.Runlevel != b.line[i-1].Runlevel) {
			b.segments++
		}
		p.segment = b.segments - 1
	}
}

// imply finds who needs which CRD or Namespace, and moves those that are needed before their place.
func (b *builder) imply() {
	namespaces, definitions := b.prerequisites()
	note := func(prerequisite, user int) {
		p, u := &b.line[prerequisite], &b.line[user]
		b.implied = append(b.implied, [2]int{prerequisite, user})
		switch {
		case u.tombstone || prerequisite < user:
		case u.segment == p.segment:
			p.loose = true
		case !p.drawn: // users come in the line's order, so the first one is the one to be drawn to
			p.drawn, p.drawnFor, p.loose, p.segment = true, user, true, u.segment
		}
	}
	for i := range b.line {
		p := &b.line[i]
		if p.prerequisite() {
			continue // needs nothing that a payload brings, whatever its fields claim; no cycle depends on this
		}
		if definition, ok := definitions[p.kind]; ok {
			note(definition, i)
		}
		if namespace, ok := namespaces[p.namespace]; ok && p.namespace != "" {
			note(namespace, i)
		}
	}
}

// prerequisites finds the living Namespaces by name and CRDs by the kind they define. Loading a payload refuses
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

// assemble makes the nodes, segment by segment, and the edges.
func (b *builder) assemble() {
	segments := make([][]int, b.segments) // places; those that left their chain first, each part in the line's order
	for _, loose := range []bool{true, false} {
		for i := range b.line {
			if p := &b.line[i]; p.loose == loose {
				segments[p.segment] = append(segments[p.segment], i)
			}
		}
	}
	b.nodes = make([]*Node, 0, len(b.line)+b.segments)
	b.edges = make([][2]int, 0, 4*len(b.line))
	needs := b.needs()
	var open []int // nodes that the next segment has to wait for
	for s, places := range segments {
		if len(places) == 0 {
			continue // all of it was drawn forward
		}
		if len(open) > 1 && len(places) > 1 {
			open = []int{b.barrier(s, b.runlevel(places), open)}
		}
		for _, i := range places {
			b.add(i)
		}
		inner := len(b.edges)
		if b.chained {
			b.chain(places)
		}
		for _, i := range places {
			for _, need := range needs[i] {
				b.edges = append(b.edges, [2]int{b.line[need].node, b.line[i].node})
			}
		}
		open = b.join(open, places, b.edges[inner:])
	}
}

// needs lists, by place, the prerequisites that need an edge: those of the same segment that neither a barrier nor
// the chain already puts first. A tombstone goes without where its edge would lead back.
func (b *builder) needs() [][]int {
	needs := make([][]int, len(b.line))
	for _, pair := range b.implied {
		p, u := &b.line[pair[0]], &b.line[pair[1]]
		forward := pair[0] < pair[1]
		switch {
		case p.segment != u.segment:
		case u.tombstone && !p.loose && !forward:
		case b.chained && forward && !p.drawn && p.Component == u.Component:
		default:
			needs[pair[1]] = append(needs[pair[1]], pair[0])
		}
	}
	return needs
}

// runlevel is the runlevel that a segment's barrier leads to. Only Updating has segments of one runlevel; elsewhere
// a barrier stands before a Job that has something drawn to it.
func (b *builder) runlevel(places []int) int { return b.line[places[len(places)-1]].Runlevel }

// barrier adds a node without a manifest after the open ones and returns its index.
func (b *builder) barrier(segment, runlevel int, open []int) int {
	n := &Node{Index: len(b.nodes), Runlevel: runlevel, segment: segment}
	b.nodes = append(b.nodes, n)
	for _, i := range open {
		b.edges = append(b.edges, [2]int{i, n.Index})
	}
	return n.Index
}

// add makes the node of a place.
func (b *builder) add(i int) {
	p := &b.line[i]
	n := &Node{
		Index: len(b.nodes), Manifest: p.Manifest, Runlevel: p.Runlevel, Component: p.Component,
		job: p.job(), operator: b.chained && p.operator(), segment: p.segment,
	}
	if p.drawn {
		n.Drawn, n.From, n.Runlevel = true, n.Group(), b.line[p.drawnFor].Runlevel
	}
	p.node = n.Index
	b.nodes = append(b.nodes, n)
}

// chain links the places of each component in the line's order. A loosened place waits for none of them but is
// waited for by the next one that kept its place.
func (b *builder) chain(places []int) {
	places = slices.Clone(places)
	slices.Sort(places)
	component := ""
	var before []int // what the next place of the component waits for: loosened nodes, and last the chain's tail
	tail := -1
	for _, i := range places {
		p := &b.line[i]
		if p.drawn {
			continue
		}
		if p.Component != component {
			component, tail, before = p.Component, -1, nil
		}
		if p.loose {
			before = append(before, p.node)
			continue
		}
		if tail >= 0 {
			before = append(before, tail)
		}
		for _, node := range before {
			b.edges = append(b.edges, [2]int{node, p.node})
		}
		tail, before = p.node, before[:0]
	}
}

// join makes the nodes of a segment that wait for nothing inside it wait for the open ones, and returns those that
// nothing inside it waits for.
func (b *builder) join(open, places []int, inner [][2]int) []int {
	first := b.line[places[0]].node
	entered, left := make([]bool, len(places)), make([]bool, len(places))
	for _, e := range inner {
		left[e[0]-first], entered[e[1]-first] = true, true
	}
	var ends []int
	for k := range places {
		if !entered[k] {
			for _, o := range open {
				b.edges = append(b.edges, [2]int{o, first + k})
			}
		}
		if !left[k] {
			ends = append(ends, first+k)
		}
	}
	return ends
}
