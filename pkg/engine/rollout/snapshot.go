package rollout

import (
	"time"

	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Objects returns the latest result of every manifest in the current or last plan, in the order of the graph. It returns nil before the
// first pass.
func (p *Executor) Objects() []report.Object {
	if pass := p.last.Load(); pass != nil {
		return pass.objects()
	}
	return nil
}

func (p *pass) objects() []report.Object {
	p.mu.Lock()
	defer p.mu.Unlock()
	objects := make([]report.Object, 0, len(p.plan.tasks))
	for _, n := range p.plan.Graph.Tasks() {
		t, s := &p.plan.tasks[n.Index], p.latest(n)
		applied, observed := s.entry.applied, s.entry.observed
		o := report.Object{
			ID: t.id, File: n.Manifest.File, Runlevel: n.Runlevel, Component: n.Component,
			Result: applied.Result, At: applied.At, Loosened: observed.Loosened.Confirmed, Controller: observed.Controller,
			ScaledToZero: s.entry.scaledToZero, Dropped: applied.Dropped, Message: applied.Message,
		}
		if repairs := observed.Repairs; repairs != nil {
			o.Repairs, o.LastRepair = repairs.Total, repairs.Last
		}
		o.State, o.Since, o.Reason, o.Message = stateOf(s)
		objects = append(objects, o)
	}
	return objects
}

// stateOf returns the state of a manifest from this pass, or from before the pass if it was not visited.
func stateOf(s *slot) (state report.State, since time.Time, reason, message string) {
	applied, wait := s.entry.applied, s.entry.wait
	switch {
	case s.err != nil:
		return report.StateFailed, wait.since, reasonOf(s.err), s.err.Error()
	case !s.visited && wait.reached && applied.Stands:
		return report.StateSettled, applied.At, "", applied.Message
	case !s.visited || s.canceled:
		return report.StatePending, time.Time{}, "", ""
	case s.verdict.State == gate.Waiting:
		return report.StateWaiting, wait.since, s.verdict.Reason, s.verdict.Message
	case s.verdict.State == gate.Failed:
		return report.StateFailed, wait.since, s.verdict.Reason, s.verdict.Message
	case applied.Result == report.Skipped:
		return report.StateSkipped, applied.At, "", applied.Message
	case s.verdict.Reason != "":
		return report.StateSettled, applied.At, s.verdict.Reason, s.verdict.Message
	}
	return report.StateSettled, applied.At, "", applied.Message
}

// Settled returns the current state of the running or last pass. The caller can save the inventory during a pass.
func (p *Executor) Settled() Settled {
	if pass := p.last.Load(); pass != nil {
		pass.mu.Lock()
		defer pass.mu.Unlock()
		return pass.settled()
	}
	return Settled{}
}

// settled returns the input of the next pass. It drops objects without a manifest in the plan.
func (p *pass) settled() Settled {
	next := make(map[manifest.ID]entry, len(p.plan.tasks))
	for _, n := range p.plan.Graph.Tasks() {
		if s := p.slots[n.Index]; s.known {
			next[p.plan.tasks[n.Index].id] = s.entry
		}
	}
	out := Settled{entries: next, watched: p.watched, examined: p.examined}
	out.watched = out.watched || p.plan.Mode() == release.Initializing && out.stands(p.plan)
	return out
}
