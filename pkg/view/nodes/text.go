package nodes

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/internal/terminal"
)

const (
	// mostNodes is the number of nodes that a text lists for each pool, and mostNames the number of names in a sentence.
	mostNodes, mostNames = 20, 10
	// whyText is the maximum length of an explanation in a table, in bytes, and errorText that of an error of a pool.
	whyText, errorText = 300, 2000
	// noPools is the text for a cluster without pools.
	noPools = "There are no MachineConfigPools yet."
)

// Text prints the pools as a table, then those nodes of each pool that are not done. It lists at most 20 nodes for each pool.
func (s *Status) Text(w io.Writer) error {
	var out bytes.Buffer
	if len(s.Pools) == 0 {
		line(&out, noPools)
	} else {
		s.poolTable(&out)
	}
	for i := range s.Pools {
		s.poolText(&out, &s.Pools[i])
	}
	s.strayText(&out)
	_, err := w.Write(out.Bytes())
	return err
}

func (s *Status) poolTable(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row(table, "POOL", "STATE", "NODES", "DONE", "UPDATING", "DEGRADED", "UNAVAILABLE", "CONFIG")
	for _, p := range s.Pools {
		row(table, p.Name, p.stateText(), p.Total, p.Done, p.Updating, p.Degraded, p.unavailableText(), cmp.Or(p.Config, "-"))
	}
	_ = table.Flush() // writing to a buffer never fails
}

func (p *Pool) stateText() string {
	if p.Paused && p.State != PoolPaused {
		return string(p.State) + ",Paused"
	}
	return string(p.State)
}

func (p *Pool) unavailableText() string {
	if p.MaxUnavailable == 0 {
		return fmt.Sprintf("%d", p.Unavailable)
	}
	return fmt.Sprintf("%d of %d", p.Unavailable, p.MaxUnavailable)
}

// poolText prints the problems of a pool and its nodes, or nothing if the pool has neither.
func (s *Status) poolText(out io.Writer, p *Pool) {
	var lines []string
	for _, text := range []string{p.RenderError, p.SpecError, p.Waiting} {
		if text != "" {
			lines = append(lines, oneLine(text, errorText))
		}
	}
	if p.Degraded == 0 && p.NodeErrors != "" {
		lines = append(lines, oneLine(p.NodeErrors, errorText)) // otherwise, the rows of the nodes show it
	}
	if len(lines)+len(p.Nodes) == 0 {
		return
	}
	line(out, "")
	line(out, "Pool %s:", p.Name)
	for _, text := range lines {
		line(out, "  %s", text)
	}
	if len(p.Nodes) == 0 {
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row(table, "  NODE", "PHASE", "SINCE", "ATTEMPT", "CONFIG", "WHY")
	for _, n := range p.Nodes[:min(len(p.Nodes), mostNodes)] {
		since, attempt := "-", "-"
		if n.Since != nil {
			since = duration.HumanDuration(max(0, s.At.Sub(*n.Since)))
		}
		if n.Attempt > 0 {
			attempt = fmt.Sprintf("%d", n.Attempt)
		}
		row(table, "  "+n.Name, n.Phase, since, attempt, n.configText(), cmp.Or(oneLine(n.Why, whyText), "-"))
	}
	_ = table.Flush() // writing to a buffer never fails
	moreText(out, len(p.Nodes))
}

// moreText prints how many nodes a table leaves out.
func moreText(out io.Writer, total int) {
	if more := total - mostNodes; more > 0 {
		line(out, "  … and %d more: use -o json for all", more)
	}
}

func (n Node) configText() string {
	if n.Current == n.Desired {
		return shortConfig(n.Current)
	}
	return shortConfig(n.Current) + " -> " + shortConfig(n.Desired)
}

// shortConfig returns the name of a rendered MachineConfig without its prefix and without most of its hash.
func shortConfig(name string) string {
	const hash = 8
	name = strings.TrimPrefix(name, "rendered-")
	if end := strings.LastIndexByte(name, '-') + 1 + hash; end < len(name) {
		name = name[:end]
	}
	return cmp.Or(name, "none")
}

// strayText prints the nodes that no pool counts.
func (s *Status) strayText(out io.Writer) {
	var lines []string
	if n := len(s.WithoutPool); n > 0 {
		lines = append(lines, fmt.Sprintf("%s in no pool: %s", printable.Count(n, "node"), printable.List(s.WithoutPool, mostNames)))
	}
	if n := len(s.Released); n > 0 {
		lines = append(lines, fmt.Sprintf("%s released from the node stage: %s", printable.Count(n, "node"), printable.List(s.Released, mostNames)))
	}
	if n := len(s.WithoutDaemon); n > 0 {
		lines = append(lines, fmt.Sprintf("%s without a daemon, not counted above: %s", printable.Count(n, "node"), printable.List(s.WithoutDaemon, mostNames)))
	}
	for i, c := range s.Contested {
		if i == mostNames {
			lines = append(lines, fmt.Sprintf("%d more nodes are selected by several pools", len(s.Contested)-mostNames))
			break
		}
		lines = append(lines, fmt.Sprintf("Node %s is in no pool, because several select it: %s", c.Node, strings.Join(c.Pools, ", ")))
	}
	for i, text := range lines {
		if i == 0 {
			line(out, "")
		}
		line(out, "%s", text)
	}
}

// Summary returns the progress of all pools on one line.
func (s *Status) Summary() string {
	texts := make([]string, len(s.Pools))
	for i, p := range s.Pools {
		texts[i] = fmt.Sprintf("%s: %s, %d of %d nodes done", p.Name, p.stateText(), p.Done, p.Total)
		for _, count := range []struct {
			n    int
			noun string
		}{{p.Updating, "updating"}, {p.Degraded, "degraded"}} {
			if count.n > 0 {
				texts[i] += fmt.Sprintf(", %d %s", count.n, count.noun)
			}
		}
	}
	return terminal.OneLine(cmp.Or(strings.Join(texts, "; "), noPools))
}

// oneLine returns a text from the cluster as one line of limited length.
func oneLine(text string, limit int) string { return terminal.OneLine(printable.Excerpt(text, limit)) }

// line prints a line. A text from the cluster can neither end the line nor control a terminal.
func line(out io.Writer, format string, args ...any) {
	fmt.Fprintln(out, printable.Text(fmt.Sprintf(format, args...)))
}

// row prints a row of a table. A text from the cluster can neither end its cell nor control a terminal.
func row(table io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = printable.Text(fmt.Sprint(cell))
	}
	fmt.Fprintln(table, strings.Join(texts, "\t"))
}
