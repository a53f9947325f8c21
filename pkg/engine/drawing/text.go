// Package drawing prints a task graph for people and scripts: as text, as a document for JSON and YAML, in DOT, and as a picture
// in SVG. It takes a graph and a writer. Package taskgraph builds and walks the graph.
package drawing

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/release"
)

// WriteText prints the graph as text: a summary, then the runlevels, their components, and the components' manifests in order. Each line
// has the object and the file. A line also lists the predecessors that are neither in the lines above it in the component nor in an earlier
// runlevel. It returns the error of w.
func WriteText(w io.Writer, g *taskgraph.Graph) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s: %s\n", g.Mode(), summaryOf(g))
	if g.Mode() != release.Updating {
		fmt.Fprintf(&out, "%s\n", flatNote)
	}
	for _, tasks := range segmentsOf(g) {
		if last := len(tasks) - 1; tasks[last].Alone() {
			writeBoxes(&out, g, tasks[:last])
			what := "Job, a barrier"
			if tasks[last].Operator() {
				what = "Handover to the release's operator, a barrier"
			}
			fmt.Fprintf(&out, "\n%s: everything above finishes before it, everything below starts after it\n", what)
			writeBox(&out, g, box{group: tasks[last].Group(), nodes: tasks[last:]})
			continue
		}
		writeBoxes(&out, g, tasks)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// definition is the kind of a CRD with the space before its name, as a label has it.
const definition = "CustomResourceDefinition.apiextensions.k8s.io "

const flatNote = "This mode has no runlevels: a CRD or Namespace comes before its users, and a Job is a barrier in its component."

// writeBoxes prints tasks by runlevel and component.
func writeBoxes(out *bytes.Buffer, g *taskgraph.Graph, tasks []*taskgraph.Node) {
	for i, all := 0, boxes(tasks); i < len(all); i++ {
		if i == 0 || all[i].group.Runlevel != all[i-1].group.Runlevel {
			fmt.Fprintf(out, "\nRunlevel %02d\n", all[i].group.Runlevel)
		}
		writeBox(out, g, all[i])
	}
}

// writeBox prints one component's manifests.
func writeBox(out *bytes.Buffer, g *taskgraph.Graph, b box) {
	fmt.Fprintf(out, "  %s\n", printable.Text(b.group.Component))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, n := range b.nodes {
		file := n.Manifest.File
		if n.Manifest.Document > 1 {
			file = fmt.Sprintf("%s[%d]", file, n.Manifest.Document)
		}
		line := []string{"    " + printable.Text(n.Label()), printable.Text(file)}
		if remarks := remarksOn(g, n); len(remarks) > 0 {
			line = append(line, "("+strings.Join(remarks, "; ")+")")
		}
		fmt.Fprintln(table, strings.Join(line, "\t"))
	}
	_ = table.Flush() // writes to memory
}

// remarksOn returns notes on a task for its line.
func remarksOn(g *taskgraph.Graph, n *taskgraph.Node) []string {
	var remarks []string
	if n.Drawn {
		remarks = append(remarks, "drawn forward from "+printable.Text(n.From.String()))
	}
	if n.Job() {
		remarks = append(remarks, jobRemark(n))
	}
	if n.Operator() {
		remarks = append(remarks, "the operator is replaced here")
	}
	if n.Manifest.Tombstone() {
		remarks = append(remarks, "deleted")
	}
	var after []string
	for _, p := range g.Predecessors(n) {
		inChain := p.Group() == n.Group() && !p.Drawn
		if g.Mode() != release.Updating {
			inChain = n.Job() && p.Component == n.Component
		}
		if !p.Barrier() && p.Segment() == n.Segment() && !inChain {
			after = append(after, printable.Text(strings.Replace(p.Label(), definition, "CRD ", 1)))
		}
	}
	if len(after) > 0 {
		remarks = append(remarks, "after "+strings.Join(after, ", "))
	}
	return remarks
}

// jobRemark describes the effect of a Job on the order.
func jobRemark(n *taskgraph.Node) string {
	if n.Alone() {
		return "barrier"
	}
	return "barrier in its component"
}

// summaryOf returns the counts of a graph's parts as a sentence.
func summaryOf(g *taskgraph.Graph) string {
	s := g.Summary()
	text := fmt.Sprintf("%s, %s, %s; critical path %s", printable.Count(s.Manifests, "manifest"),
		printable.Count(s.Components, "component"), printable.Count(s.Runlevels, "runlevel"), printable.Count(s.CriticalPath, "manifest"))
	if s.Drawn > 0 {
		text += fmt.Sprintf("; %d drawn forward", s.Drawn)
	}
	if s.Jobs > 0 {
		text += "; " + printable.Count(s.Jobs, "Job")
	}
	return text
}

// segmentsOf splits the tasks at barriers and Jobs.
func segmentsOf(g *taskgraph.Graph) [][]*taskgraph.Node {
	var all [][]*taskgraph.Node
	for i, n := range g.Tasks() {
		if i == 0 || n.Segment() != g.Tasks()[i-1].Segment() {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], n)
	}
	return all
}

// box is the part of a component in one runlevel.
type box struct {
	group taskgraph.Group
	nodes []*taskgraph.Node
}

// boxes groups tasks by runlevel and component, sorted by both.
func boxes(tasks []*taskgraph.Node) []box {
	tasks = slices.Clone(tasks)
	slices.SortStableFunc(tasks, func(a, b *taskgraph.Node) int { return a.Group().Compare(b.Group()) })
	var all []box
	for i, n := range tasks {
		if i == 0 || n.Group() != tasks[i-1].Group() {
			all = append(all, box{group: n.Group()})
		}
		all[len(all)-1].nodes = append(all[len(all)-1].nodes, n)
	}
	return all
}
