package rollout

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/taskgraph"
)

func (p *pass) progress() Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.progressLocked()
}

// progressLocked sums up the slots; the caller holds the lock.
func (p *pass) progressLocked() Progress {
	progress := Progress{Release: p.plan.Release, Mode: p.plan.Mode(), Total: p.plan.total}
	components := map[taskgraph.Group]*Component{}
	for _, n := range p.plan.Graph.Tasks() {
		t, s := &p.plan.tasks[n.Index], &p.slots[n.Index]
		e := s.entry
		if !s.visited {
			e = p.before.entries[t.id]
		}
		done := e.reached
		progress.count(components, n, done)
		if done && t.id.Name == api.MachineConfigOperator && isClusterOperator(n.Manifest) {
			progress.HandedOver = true
		}
		if len(e.dropped) > 0 {
			progress.Dropped = append(progress.Dropped, Dropped{ID: t.id, File: n.Manifest.File, Fields: e.dropped})
		}
		if len(e.loosened) > 0 {
			progress.Loosened = append(progress.Loosened, Loosened{ID: t.id, Fields: e.loosened})
		}
		if e.result == Deleting {
			progress.Deletions = append(progress.Deletions, Deletion{ID: t.id, Since: e.at, Message: e.message})
		}
		if problem, ok := problemOf(n, s); ok {
			progress.Problems = append(progress.Problems, problem)
		}
		if !s.lookAt.IsZero() && (progress.RetryAt.IsZero() || s.lookAt.Before(progress.RetryAt)) {
			progress.RetryAt = s.lookAt
		}
	}
	progress.collect(components)
	progress.Paused = p.paused(progress)
	sortProblems(progress.Problems)
	return progress
}

func (p *Progress) count(components map[taskgraph.Group]*Component, n *taskgraph.Node, done bool) {
	c := components[n.Group()]
	if c == nil {
		c = &Component{Name: n.Component}
		components[n.Group()] = c
	}
	c.Total++
	if done {
		c.Done++
		p.Done++
	}
}

// collect arranges the counts of components by runlevel, both ascending.
func (p *Progress) collect(components map[taskgraph.Group]*Component) {
	groups := slices.SortedFunc(maps.Keys(components), func(a, b taskgraph.Group) int {
		return cmp.Or(cmp.Compare(a.Runlevel, b.Runlevel), cmp.Compare(a.Component, b.Component))
	})
	for _, g := range groups {
		if last := len(p.Runlevels) - 1; last < 0 || p.Runlevels[last].Runlevel != g.Runlevel {
			p.Runlevels = append(p.Runlevels, Runlevel{Runlevel: g.Runlevel})
		}
		level, c := &p.Runlevels[len(p.Runlevels)-1], components[g]
		level.Total += c.Total
		level.Done += c.Done
		level.Components = append(level.Components, *c)
	}
}

func problemOf(n *taskgraph.Node, s *slot) (Problem, bool) {
	if !s.visited || s.cancelled || s.unknown || s.err == nil && s.verdict.Reason == "" {
		return Problem{}, false
	}
	problem := Problem{
		ID: n.Manifest.ID(), File: n.Manifest.File, Runlevel: n.Runlevel, Component: n.Component,
		State: s.verdict.State, Patience: s.verdict.Patience, Reason: s.verdict.Reason, Message: s.verdict.Message,
		Since: s.verdict.Since, Err: s.err,
	}
	if s.entry.waitingSince.After(problem.Since) {
		problem.Since = s.entry.waitingSince
	}
	if s.err != nil {
		problem.State, problem.Reason, problem.Message = gate.Failed, reasonOf(s.err), s.err.Error()
	}
	return problem, true
}
