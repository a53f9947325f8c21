package nodes

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/cluster-version/cvo/internal/printable"
)

// Text prints the plan of each pool: the changes of its nodes, the nodes in order, and what their drains delete. It lists at most 20 nodes for
// each pool.
func (p *Plan) Text(w io.Writer) error {
	var out bytes.Buffer
	if len(p.Pools) == 0 {
		line(&out, noPools)
	}
	for i := range p.Pools {
		if i > 0 {
			line(&out, "")
		}
		p.Pools[i].text(&out)
	}
	_, err := w.Write(out.Bytes())
	return err
}

func (p *PoolPlan) text(out io.Writer) {
	if p.Error != "" && (p.Target == "" || p.Done == p.Total) {
		line(out, "Pool %s: no node would start, because of an error (see below).", p.Name)
		return
	}
	if p.Done == p.Total {
		line(out, "Pool %s: nothing to do, %d of %s updated to %s.", p.Name, p.Done, printable.Count(p.Total, "node"), p.Target)
		return
	}
	turns := map[Turn]int{}
	for _, n := range p.Nodes {
		turns[n.Turn]++
	}
	line(out, "Pool %s: %d of %s would be updated to %s.", p.Name, p.Total-p.Done, printable.Count(p.Total, "node"), p.Target)
	line(out, "  At most %d at a time: %d running, %d start now, %d wait.", p.MaxUnavailable, turns[Running], turns[Start], turns[Wait])
	if p.Error != "" {
		line(out, "  The MachineConfigs cannot be rendered (see below), so this is the pool's current config.")
	} else {
		line(out, "  From MachineConfigs: %s", printable.List(p.Sources, mostNames))
	}
	for _, job := range p.Jobs {
		line(out, "  %s.", job)
	}
	if p.Paused {
		line(out, "  The pool is paused: no node starts before 'cvo nodes resume %s'.", p.Name)
	}
	if p.Reported != "" {
		line(out, "  The controller also checks the API servers, metrics and Jobs before nodes start. It reports: %s", oneLine(p.Reported, errorText))
	}
	for _, t := range p.Transitions {
		line(out, "  Nodes with config %s need %s: %s", shortConfig(t.From), t.needs(),
			oneLine(cmp.Or(t.Unknown, printable.List(t.Changes, mostNames), "no change of the host"), errorText))
	}
	line(out, "")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row(table, "  NODE", "TURN", "CONFIG", "NEEDS", "EVICTS", "WHY")
	for _, n := range p.Nodes[:min(len(p.Nodes), mostNodes)] {
		needs := "-"
		if t := p.transition(n.From); t != nil {
			needs = t.needs()
		}
		row(table, "  "+n.Name, n.Turn, shortConfig(n.From), needs, printable.Count(n.Evicted, "pod"), cmp.Or(oneLine(n.Why, whyText), "-"))
	}
	_ = table.Flush() // writing to a buffer never fails
	moreText(out, len(p.Nodes))
	p.lossText(out)
}

// needs returns a noun phrase such as "drain, reboot".
func (t Transition) needs() string {
	if t.Unknown != "" {
		return "unknown actions"
	}
	var all []string
	if t.Drain {
		all = append(all, "drain")
	}
	for _, action := range t.Actions {
		if action != "none" && action != "drain" {
			all = append(all, action)
		}
	}
	return cmp.Or(strings.Join(all, ", "), "nothing")
}

// lossText prints the pods that a drain deletes permanently or cannot evict, with their nodes.
func (p *PoolPlan) lossText(out io.Writer) {
	for _, list := range []struct {
		title string
		names func(PlannedNode) []string
	}{
		{"Pods without a controller, which are deleted permanently", func(n PlannedNode) []string { return n.Unmanaged }},
		{"Pods that lose the data in their emptyDir volumes", func(n PlannedNode) []string { return n.EmptyDir }},
		{"Pods whose completion a drain waits for, by a drain rule", func(n PlannedNode) []string { return n.Awaited }},
		{"PodDisruptionBudgets that allow no disruption now, so a drain waits", func(n PlannedNode) []string { return n.ZeroBudgets }},
		{"Pods that several PodDisruptionBudgets select, so they cannot be evicted", func(n PlannedNode) []string { return n.Contested }},
	} {
		nodes := map[string][]string{}
		for _, n := range p.Nodes {
			for _, name := range list.names(n) {
				nodes[name] = append(nodes[name], n.Name)
			}
		}
		var all []string
		for _, name := range slices.Sorted(maps.Keys(nodes)) {
			all = append(all, fmt.Sprintf("%s (%s)", name, printable.List(nodes[name], 1)))
		}
		if len(all) > 0 {
			line(out, "")
			line(out, "  %s: %s", list.title, printable.List(all, mostNames))
		}
	}
}
