package rollout

import (
	"time"

	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Objects returns the last result of every manifest of the plan that is passed over, or was last, in the order of the
// graph; nothing before the first pass.
func (p *Passer) Objects() []Object {
	if pass := p.last.Load(); pass != nil {
		return pass.objects()
	}
	return nil
}

func (p *pass) objects() []Object {
	p.mu.Lock()
	defer p.mu.Unlock()
	objects := make([]Object, 0, len(p.plan.tasks))
	for _, n := range p.plan.Graph.Tasks() {
		t, s := &p.plan.tasks[n.Index], &p.slots[n.Index]
		e := s.entry
		if !s.visited {
			e = p.before.entries[t.id]
		}
		o := Object{
			ID: t.id, File: n.Manifest.File, Runlevel: n.Runlevel, Component: n.Component,
			Result: e.result, At: e.at, Loosened: e.loosened, Dropped: e.dropped, Message: e.message,
		}
		if e.repairs != nil {
			o.Repairs, o.LastRepair = e.repairs.total, e.repairs.last
		}
		o.State, o.Since, o.Reason, o.Message = stand(s, e)
		objects = append(objects, o)
	}
	return objects
}

// stand tells where a manifest stands by what the pass has found, or what was known before it.
func stand(s *slot, e entry) (state State, since time.Time, reason, message string) {
	switch {
	case s.err != nil:
		return StateFailed, e.waitingSince, reasonOf(s.err), s.err.Error()
	case !s.visited && e.reached && e.applied:
		return StateSettled, e.at, "", e.message
	case !s.visited || s.cancelled:
		return StatePending, time.Time{}, "", ""
	case s.verdict.State == gate.Waiting:
		return StateWaiting, e.waitingSince, s.verdict.Reason, s.verdict.Message
	case s.verdict.State == gate.Failed:
		return StateFailed, e.waitingSince, s.verdict.Reason, s.verdict.Message
	case e.result == Skipped:
		return StateSkipped, e.at, "", e.message
	case s.verdict.Reason != "":
		return StateSettled, e.at, s.verdict.Reason, s.verdict.Message
	}
	return StateSettled, e.at, "", e.message
}

// Settled is what the pass that is under way, or was last, knows so far; for an inventory that is kept during a pass.
func (p *Passer) Settled() Settled {
	if pass := p.last.Load(); pass != nil {
		pass.mu.Lock()
		defer pass.mu.Unlock()
		return pass.settled()
	}
	return Settled{}
}

// settled is the outcome of the pass for the next one; objects that no manifest of the plan names are left behind.
func (p *pass) settled() Settled {
	next := make(map[manifest.ID]entry, len(p.plan.tasks))
	for _, n := range p.plan.Graph.Tasks() {
		id := p.plan.tasks[n.Index].id
		if s := p.slots[n.Index]; s.visited {
			next[id] = s.entry
		} else if e, ok := p.before.entries[id]; ok {
			next[id] = e
		}
	}
	return Settled{entries: next}
}
