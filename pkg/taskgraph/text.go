package taskgraph

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/cluster-version/cvo/pkg/release"
)

// WriteText prints the graph to be read: a summary, then runlevels, in them components, in them manifests in the order
// in which they run. Each line names object and file, and what else it waits for than the lines above it in its
// component and what lies before its runlevel. It returns the error of w.
func WriteText(w io.Writer, g *Graph) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s: %s\n", g.mode, g.summary())
	if g.mode != release.Updating {
		fmt.Fprintf(&out, "%s\n", flatNote)
	}
	for _, tasks := range g.segments() {
		if last := len(tasks) - 1; tasks[last].job || tasks[last].operator {
			writeBoxes(&out, g, tasks[:last])
			what := "Job, a barrier"
			if tasks[last].operator {
				what = "Handover to the operator of the release, a barrier"
			}
			fmt.Fprintf(&out, "\n%s: all above ends before it, all below begins after it\n", what)
			writeBox(&out, g, box{group: tasks[last].Group(), nodes: tasks[last:]})
			continue
		}
		writeBoxes(&out, g, tasks)
	}
	_, err := w.Write(out.Bytes())
	return err
}

const flatNote = "Runlevels do not order this mode; only a CRD or Namespace comes before what needs it, and Jobs divide."

// writeBoxes prints tasks by runlevel and component.
func writeBoxes(out *bytes.Buffer, g *Graph, tasks []*Node) {
	for i, all := 0, boxes(tasks); i < len(all); i++ {
		if i == 0 || all[i].group.Runlevel != all[i-1].group.Runlevel {
			fmt.Fprintf(out, "\nRunlevel %02d\n", all[i].group.Runlevel)
		}
		writeBox(out, g, all[i])
	}
}

// writeBox prints one component's manifests.
func writeBox(out *bytes.Buffer, g *Graph, b box) {
	fmt.Fprintf(out, "  %s\n", plain(b.group.Component))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, n := range b.nodes {
		file := n.Manifest.File
		if n.Manifest.Document > 1 {
			file = fmt.Sprintf("%s[%d]", file, n.Manifest.Document)
		}
		line := []string{"    " + plain(n.Label()), plain(file)}
		if remarks := g.remarks(n); len(remarks) > 0 {
			line = append(line, "("+strings.Join(remarks, "; ")+")")
		}
		fmt.Fprintln(table, strings.Join(line, "\t"))
	}
	_ = table.Flush() // writes to memory
}

// remarks are what is special about a task.
func (g *Graph) remarks(n *Node) []string {
	var remarks []string
	if n.Drawn {
		remarks = append(remarks, "drawn forward from "+plain(n.From.String()))
	}
	if n.job {
		remarks = append(remarks, "barrier")
	}
	if n.operator {
		remarks = append(remarks, "the operator is replaced here")
	}
	if n.Manifest.Tombstone() {
		remarks = append(remarks, "deleted")
	}
	var after []string
	for _, p := range g.preds[n.Index] {
		inChain := g.mode == release.Updating && p.Group() == n.Group() && !p.Drawn
		if !p.Barrier() && p.segment == n.segment && !inChain {
			after = append(after, plain(strings.Replace(p.Label(), crdKind.String()+" ", "CRD ", 1)))
		}
	}
	if len(after) > 0 {
		remarks = append(remarks, "after "+strings.Join(after, ", "))
	}
	return remarks
}

// Summary is the graph in figures.
type Summary struct {
	Manifests  int `json:"manifests"`
	Components int `json:"components"`
	Runlevels  int `json:"runlevels"`
	// Drawn counts what was drawn forward.
	Drawn int `json:"drawnForward"`
	Jobs  int `json:"jobs"`
	// CriticalPath is the number of tasks on a longest path.
	CriticalPath int `json:"criticalPath"`
	// Width is how many tasks can run at once at most.
	Width int `json:"width"`
}

// Summary counts what the graph holds.
func (g *Graph) Summary() Summary {
	s := Summary{
		Manifests: len(g.tasks), Components: len(g.Components()), Runlevels: len(g.Runlevels()),
		CriticalPath: len(g.CriticalPath()), Width: g.Width(),
	}
	for _, n := range g.tasks {
		s.Drawn += boolInt(n.Drawn)
		s.Jobs += boolInt(n.job)
	}
	return s
}

// summary is Summary as a sentence.
func (g *Graph) summary() string {
	s := g.Summary()
	text := fmt.Sprintf("%s, %s, %s; critical path %s, up to %d at once", count(s.Manifests, "manifest"),
		count(s.Components, "component"), count(s.Runlevels, "runlevel"), count(s.CriticalPath, "manifest"), s.Width)
	if s.Drawn > 0 {
		text += fmt.Sprintf("; %d drawn forward", s.Drawn)
	}
	if s.Jobs > 0 {
		text += "; " + count(s.Jobs, "Job")
	}
	return text
}

// count reads like `1 manifest` or `2 manifests`.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// segments divides the tasks at barriers and Jobs.
func (g *Graph) segments() [][]*Node {
	var all [][]*Node
	for i, n := range g.tasks {
		if i == 0 || n.segment != g.tasks[i-1].segment {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], n)
	}
	return all
}

// box is what a component brings to a runlevel.
type box struct {
	group Group
	nodes []*Node
}

// boxes groups tasks by runlevel and component, sorted by both.
func boxes(tasks []*Node) []box {
	tasks = slices.Clone(tasks)
	slices.SortStableFunc(tasks, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(a.Runlevel, b.Runlevel), cmp.Compare(a.Component, b.Component))
	})
	var all []box
	for i, n := range tasks {
		if i == 0 || n.Group() != tasks[i-1].Group() {
			all = append(all, box{group: n.Group()})
		}
		all[len(all)-1].nodes = append(all[len(all)-1].nodes, n)
	}
	return all
}

// plain replaces what a terminal would not print: names come from the release as they are.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return '?' // not U+FFFD, which some readers of DOT refuse
	}, s)
}
