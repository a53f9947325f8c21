package drawing

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/release"
)

// Sizes in the picture, in pixels. A row gets columns until the page is full, then a new row starts.
const (
	svgPage     = 1680
	svgMargin   = 24
	svgCard     = 248 // width of a card
	svgCardRow  = 30  // height of a card including the gap below it
	svgCardGap  = 6
	svgPad      = 10 // padding of a column
	svgGap      = 30 // between columns, contains the arrow
	svgHead     = 46 // title of a column
	svgTop      = 118
	svgMaxCards = 12 // maximum cards in a stack; a runlevel with more cards has several stacks
	svgMaxName  = 29 // maximum runes of a name on a card; two fewer beside a gate mark
	svgMaxTip   = 60 // maximum lines of a tooltip
)

const svgStyle = `
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", Helvetica, Arial, sans-serif; fill: #1f2933; }
  .title { font-size: 22px; font-weight: 600; }
  .note, .count { font-size: 12px; fill: #52606d; }
  .head { font-size: 15px; font-weight: 600; }
  .name { font-size: 12px; }
  .column { fill: #f1f4f8; }
  .card { fill: #ffffff; stroke: #b8c4d0; }
  .critical { stroke: #1d5fbf; stroke-width: 2; }
  .drawn { fill: #fff6e0; stroke: #c98a00; stroke-dasharray: 5 3; }
  .job { fill: #c0392b; }
  .gate { fill: #2e8b57; }
  .arrow { fill: #8795a5; }
`

// WriteSVG prints the graph as a picture. It has a column for each runlevel, with a card for each component. The card shows the number of
// manifests, and their names as a tooltip. It returns the error of w.
func WriteSVG(w io.Writer, g *taskgraph.Graph) error {
	p := newPicture(g)
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n",
		p.width, p.height, p.width, p.height)
	fmt.Fprintf(&out, "<title>Task graph, %s</title>\n<style>%s</style>\n", escape(string(g.Mode())), svgStyle)
	fmt.Fprintf(&out, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", p.width, p.height)
	p.writeHeader(&out)
	for _, c := range p.columns {
		p.writeColumn(&out, c)
	}
	out.WriteString("</svg>\n")
	_, err := w.Write(out.Bytes())
	return err
}

// picture is the graph with its layout.
type picture struct {
	graph         *taskgraph.Graph
	critical      map[*taskgraph.Node]bool
	columns       []column
	width, height int
}

// column is a runlevel with its position.
type column struct {
	runlevel            int
	cards               []box
	x, y, width, height int
	// arrow is true if an arrow leads to the next column.
	arrow bool
}

// stack returns the height of the column's stacks in cards, as even as possible and at most svgMaxCards.
func (c column) stack() int {
	stacks := (len(c.cards) + svgMaxCards - 1) / svgMaxCards
	return (len(c.cards) + stacks - 1) / stacks
}

func newPicture(g *taskgraph.Graph) *picture {
	p := &picture{graph: g, critical: map[*taskgraph.Node]bool{}, width: 2*svgMargin + 760}
	for _, n := range g.CriticalPath() {
		p.critical[n] = true
	}
	for _, b := range cards(g.Tasks()) {
		if len(p.columns) == 0 || p.columns[len(p.columns)-1].runlevel != b.group.Runlevel {
			p.columns = append(p.columns, column{runlevel: b.group.Runlevel})
		}
		last := &p.columns[len(p.columns)-1]
		last.cards = append(last.cards, b)
	}
	p.place()
	return p
}

// cards groups tasks by runlevel and component. Tasks that were drawn forward get separate cards, by their origin.
func cards(tasks []*taskgraph.Node) []box {
	var all []box
	for _, b := range boxes(tasks) {
		own := box{group: b.group}
		var drawn []box
		for _, n := range b.nodes {
			switch k := len(drawn) - 1; {
			case !n.Drawn:
				own.nodes = append(own.nodes, n)
			case k >= 0 && drawn[k].nodes[0].From == n.From:
				drawn[k].nodes = append(drawn[k].nodes, n)
			default:
				drawn = append(drawn, box{group: b.group, nodes: []*taskgraph.Node{n}})
			}
		}
		all = append(all, drawn...)
		if len(own.nodes) > 0 {
			all = append(all, own)
		}
	}
	return all
}

// place sets the position of every column, row by row. The columns of a row have the same height.
func (p *picture) place() {
	x, y := svgMargin, svgTop
	row := 0 // first column of the row
	closeRow := func(end int) {
		height := 0
		for _, c := range p.columns[row:end] {
			height = max(height, svgHead+c.stack()*svgCardRow+svgPad)
		}
		for i := range p.columns[row:end] {
			p.columns[row+i].height = height
		}
		y += height + svgGap
		row = end
	}
	for i := range p.columns {
		c := &p.columns[i]
		stacks := (len(c.cards) + c.stack() - 1) / c.stack()
		c.width = stacks*(svgCard+svgPad) + svgPad
		if i > row && x+c.width > svgPage-svgMargin {
			closeRow(i)
			x = svgMargin
		}
		c.x, c.y, c.arrow = x, y, p.graph.Mode() == release.Updating && i < len(p.columns)-1
		x += c.width + svgGap
		p.width = max(p.width, x-svgGap+svgMargin)
	}
	closeRow(len(p.columns))
	p.width = max(p.width, 2*svgMargin+svgCard)
	if row > 0 && p.columns[0].arrow {
		p.width += svgMargin // room for the arrow at the end of a row
	}
	p.height = y - svgGap + svgMargin
}

// writeHeader prints the title, summary and legend.
func (p *picture) writeHeader(out *bytes.Buffer) {
	writeText(out, "title", svgMargin, 38, "Task graph, "+string(p.graph.Mode()))
	note := summaryOf(p.graph)
	if p.graph.Mode() != release.Updating {
		note += ". " + flatNote
	} else {
		note += ". Runlevels follow each other; components of one runlevel run in parallel."
	}
	writeText(out, "note", svgMargin, 60, note)
	x := svgMargin
	for _, entry := range []struct{ class, text string }{
		{"card", "component, number of manifests"},
		{"card critical", "on the critical path"},
		{"card drawn", "drawn forward to its first user"},
		{"gate", "waits for its ClusterOperator"},
		{"job", "barrier (Job or operator): everything before it finishes first"},
	} {
		switch entry.class {
		case "gate":
			fmt.Fprintf(out, `<circle class="gate" cx="%d" cy="88" r="4"/>`+"\n", x+18)
		case "job":
			fmt.Fprintf(out, `<rect class="job" x="%d" y="80" width="5" height="16"/>`+"\n", x+17)
		default:
			fmt.Fprintf(out, `<rect class="%s" x="%d" y="80" width="22" height="16" rx="3"/>`+"\n", entry.class, x)
		}
		writeText(out, "note", x+28, 92, entry.text)
		x += 48 + 13*len(entry.text)/2
	}
}

// writeColumn prints one runlevel.
func (p *picture) writeColumn(out *bytes.Buffer, c column) {
	manifests, components := 0, map[string]bool{}
	for _, b := range c.cards {
		manifests += len(b.nodes)
		components[b.group.Component] = true
	}
	fmt.Fprintf(out, `<rect class="column" x="%d" y="%d" width="%d" height="%d" rx="6"/>`+"\n", c.x, c.y, c.width, c.height)
	writeText(out, "head", c.x+svgPad, c.y+20, fmt.Sprintf("Runlevel %02d", c.runlevel))
	writeText(out, "count", c.x+svgPad, c.y+37, printable.Count(manifests, "manifest")+", "+printable.Count(len(components), "component"))
	if c.arrow {
		x, y := c.x+c.width+(svgGap-14)/2, c.y+16
		fmt.Fprintf(out, `<path class="arrow" d="M%d %d h7 v-5 l8 8 l-8 8 v-5 h-7 z"/>`+"\n", x, y)
	}
	for i, b := range c.cards {
		x := c.x + svgPad + i/c.stack()*(svgCard+svgPad)
		y := c.y + svgHead + i%c.stack()*svgCardRow
		p.writeCard(out, b, x, y)
	}
}

// writeCard prints one component of a runlevel.
func (p *picture) writeCard(out *bytes.Buffer, b box, x, y int) {
	class, name := "card", b.group.Component
	gate, job := false, false
	for _, n := range b.nodes {
		if p.critical[n] {
			class = "card critical"
		}
		gate = gate || n.Manifest.Is("config.openshift.io", "ClusterOperator") && !n.Manifest.Tombstone()
		job = job || n.Job() || n.Operator()
	}
	if b.nodes[0].Drawn {
		class += " drawn"
		name = fmt.Sprintf("%s, from %02d", shorten(name, svgMaxName-9), b.nodes[0].From.Runlevel)
	}
	fmt.Fprintf(out, `<g><title>%s</title><rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="4"/>`+"\n",
		escape(tooltip(b)), class, x, y, svgCard, svgCardRow-svgCardGap)
	if job {
		fmt.Fprintf(out, `<rect class="job" x="%d" y="%d" width="5" height="%d"/>`+"\n", x+1, y+1, svgCardRow-svgCardGap-2)
	}
	room := svgMaxName
	if gate {
		room -= 2
	}
	writeText(out, "name", x+12, y+16, shorten(name, room))
	if gate {
		fmt.Fprintf(out, `<circle class="gate" cx="%d" cy="%d" r="4"/>`+"\n", x+svgCard-38, y+12)
	}
	fmt.Fprintf(out, `<text class="count" x="%d" y="%d" text-anchor="end">%d</text></g>`+"\n", x+svgCard-8, y+16, len(b.nodes))
}

// tooltip lists the manifests of a card.
func tooltip(b box) string {
	lines := []string{fmt.Sprintf("%s: %s", b.group, printable.Count(len(b.nodes), "manifest"))}
	if b.nodes[0].Drawn {
		lines[0] += ", drawn forward from " + b.nodes[0].From.String()
	}
	for i, n := range b.nodes {
		if i == svgMaxTip {
			lines = append(lines, fmt.Sprintf("and %d more", len(b.nodes)-i))
			break
		}
		lines = append(lines, n.Label())
	}
	return strings.Join(lines, "\n")
}

func writeText(out *bytes.Buffer, class string, x, y int, text string) {
	fmt.Fprintf(out, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, x, y, escape(text))
}

// escape escapes text for XML and replaces characters that XML does not allow.
func escape(s string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(s)) // writes to memory
	return out.String()
}

// shorten truncates a text to the given number of runes.
func shorten(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}
