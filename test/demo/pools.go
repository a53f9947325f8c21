package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/view/nodes"
)

// observeNodes updates the pools after a change of nodes or poolObjects, and adds a note for each node with another step.
func (s *story) observeNodes(now time.Time) {
	status, err := nodes.NewStatus(nodes.Cluster{
		At: now, Pools: slices.Collect(maps.Values(s.poolObjects)), Nodes: slices.Collect(maps.Values(s.nodes)),
	}, "")
	if err != nil {
		return // only a pool that is selected by its name may be missing
	}
	before := steps(s.pools)
	s.pools = status.Pools
	if p := s.current(); p != nil && !p.ended.IsZero() && p.nodesEnded.IsZero() && s.nodesUpdated() {
		p.nodesEnded = now
	}
	after := steps(s.pools)
	for _, p := range s.pools {
		for _, n := range p.Nodes {
			if step := after[n.Name]; step != "" && step != before[n.Name] {
				kind := plainNote
				if n.Phase == nodes.Degraded {
					kind = badNote
				}
				s.notes = append(s.notes, note{at: now, kind: kind, detail: true, text: fmt.Sprintf("node %s: %s", n.Name, step)})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, isBusy := after[name]; !isBusy {
			s.notes = append(s.notes, note{at: now, kind: goodNote, detail: true, text: fmt.Sprintf("node %s: uncordoned; %s", name, strings.Join(counts(s.pools), ", "))})
		}
	}
}

// steps describes the nodes that update, by name.
func steps(pools []nodes.Pool) map[string]string {
	steps := map[string]string{}
	for _, p := range pools {
		for _, n := range p.Nodes {
			switch n.Phase {
			case nodes.Waiting:
			case nodes.Draining:
				steps[n.Name] = "cordoned, draining"
			case nodes.Degraded:
				steps[n.Name] = "degraded: " + oneLine(n.Why)
			case nodes.Applying, nodes.Rebooting, nodes.Done:
				steps[n.Name] = strings.ToLower(string(n.Phase))
			}
		}
	}
	return steps
}

// counts describes the pools that have nodes.
func counts(pools []nodes.Pool) []string {
	var texts []string
	for _, p := range pools {
		if p.Total > 0 {
			texts = append(texts, fmt.Sprintf("%d of %d updated in pool %s", p.Done, p.Total, p.Name))
		}
	}
	return texts
}

// nodesUpdated reports whether all nodes run the configs of their pools.
func (s *story) nodesUpdated() bool {
	total := 0
	for _, p := range s.pools {
		if p.State != nodes.PoolUpdated {
			return false
		}
		total += p.Total
	}
	return total > 0 && total == len(s.nodes)
}

// poolLines draws a line for each pool that has nodes.
func (v *view) poolLines() []string {
	var out []string
	for _, p := range v.story.pools {
		if p.Total == 0 {
			continue
		}
		mark, style := v.busy.Render("●"), v.busy
		switch p.State {
		case nodes.PoolUpdated:
			mark, style = v.good.Render("✓"), v.good
		case nodes.PoolDegraded:
			mark, style = v.bad.Render("✗"), v.bad
		case nodes.PoolEmpty, nodes.PoolPaused, nodes.PoolUpdating:
		}
		var busy []string
		for _, n := range p.Nodes {
			if n.Phase != nodes.Waiting {
				busy = append(busy, n.Name+" "+strings.ToLower(string(n.Phase)))
			}
		}
		text := fmt.Sprintf("%d of %d nodes updated", p.Done, p.Total)
		if len(busy) > 0 {
			text += ": " + strings.Join(busy, ", ")
		}
		const cells = 10
		bar := pad(v.bar(p.Done, p.Total, min(p.Total, cells), style), cells)
		out = append(out, ansi.Truncate(fmt.Sprintf("  %s pool %s  %s  %s", mark, pad(p.Name, 6), bar, text), v.width-1, "…"))
	}
	return out
}

// observeNode records a Node; nil if it is deleted.
func (s *story) observeNode(name string, n *corev1.Node, now time.Time) {
	record(s.nodes, name, n)
	s.observeNodes(now)
}

// observePool records a MachineConfigPool; nil if it is deleted.
func (s *story) observePool(name string, p *mcfgv1.MachineConfigPool, now time.Time) {
	record(s.poolObjects, name, p)
	s.observeNodes(now)
}

func record[T any](objects map[string]*T, name string, object *T) {
	if object == nil {
		delete(objects, name)
		return
	}
	objects[name] = object
}
