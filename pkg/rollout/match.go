package rollout

import (
	"context"

	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/observe"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/taskgraph"
)

// match makes the object match its manifest, unless it is known to. If it reports pending, the slot's verdict says what
// has to be waited for before that is known.
func (p *pass) match(ctx context.Context, n *taskgraph.Node, t *task, s *slot) (pending bool) {
	now, e := p.Clock.Now(), &s.entry
	sum, err := p.Applier.Content(n.Manifest)
	content := inventory.ContentOf(sum)
	if e.err != nil && e.content == content && now.Before(e.retryAt) {
		s.err, s.lookAt = e.err, e.retryAt
		return false
	}
	if err != nil {
		p.failed(ctx, content, s, err)
		return false
	}
	look := p.look(ctx, n.Manifest, e)
	if n.Manifest.Tombstone() && p.plan.Mode() != release.Initializing {
		e.absent(content, look, now)
	}
	need := assess(t, n.Manifest, e, content, look, now)
	if !need.apply && !need.unknown {
		if back := p.setBack(t, n.Manifest, e, content); back.apply {
			need = back
		}
	}
	s.lookAt = need.at
	switch until := e.repairs.heldBack(now); {
	case need.unknown:
		s.unknown = true
		s.verdict = waiting(gate.NotObserved, "the state of %s is not observed yet", t.id)
		return true
	case need.apply && e.isEnding(content, look) && !n.Manifest.Tombstone():
		// Its end is the next event; applying once more would not bring it about.
	case need.apply && !n.Manifest.Tombstone() && look.Synced && look.State != nil && look.State.Deleting:
		// Somebody else deletes it: what would be applied now goes with the object, and would be applied again.
		e.applied, e.content, e.result, e.at, e.message, e.ended = false, content, Deleting, now, "", true
		s.lookAt = now.Add(watchPatience)
	case need.drift != "" && !until.IsZero():
		s.lookAt = until
		s.verdict = fighting(t.id, e.repairs)
	case need.apply:
		p.apply(ctx, n, t, s, content, look, need)
	case n.Manifest.Tombstone() && look.Synced:
		e.follow(look.State, now)
	case look.State != nil && look.State.Deleting && !t.gated:
		s.verdict = ending(t.id, look.State.Finalizers, p.left(ctx, n.Manifest, look.State))
	}
	if state := look.State; state != nil && e.unconfirmed(state) {
		p.confirm(ctx, n, e, state)
	}
	return p.awaitsEnd(ctx, n, t, s, look.State)
}

// look asks for what is known of an object. An install does without watches: it passes tombstones over, and until it is
// complete nobody is to change what was just applied, while watches of kinds that are only seconds old would cost the
// API server as much as the objects do. What an install took up again after a restart has to be confirmed, though.
func (p *pass) look(ctx context.Context, m *manifest.Manifest, e *entry) observe.Look {
	switch {
	case p.plan.Mode() != release.Initializing:
		return p.Observer.Look(ctx, m, e.byName || m.Tombstone())
	case m.Tombstone():
		return observe.Look{Synced: true}
	case e.applied && !e.trusted:
		return p.Observer.Look(ctx, m, e.byName)
	}
	return observe.Look{}
}

// check asks the gate; what is known to hold repairs back, or to be missing by right, is no matter for it.
func (p *pass) check(n *taskgraph.Node, t *task, s *slot) {
	e := &s.entry
	if s.verdict.Reason != "" || !t.gated || t.passing && e.finished {
		if s.verdict.State == "" {
			s.verdict.State = gate.Settled
		}
		return
	}
	s.verdict = gate.Check(p.Observer.Object(t.id), gate.Want{
		Manifest: n.Manifest, Mode: p.plan.Mode(), UID: e.uid, Generation: e.generation, Alone: t.alone,
	})
}

// gatedTask tells whether a task has a gate: a tombstone is settled once deletion is asked for, and what is created
// only once is somebody else's from then on, but for the kinds that others build on.
func gatedTask(m *manifest.Manifest) bool {
	if m.Tombstone() || !gate.Gated(m) {
		return false
	}
	return !m.CreateOnly() || m.Is("apiextensions.k8s.io", "CustomResourceDefinition") || isClusterOperator(m)
}
