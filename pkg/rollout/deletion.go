package rollout

import (
	"context"
	"strings"
	"time"

	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/observe"
	"github.com/cluster-version/cvo/pkg/taskgraph"
)

// isEnding reports whether an object that has to go, before its manifest can be applied, is on its way out.
func (e *entry) isEnding(content inventory.Content, look observe.Look) bool {
	return e.result == Deleting && e.content == content && look.Synced && look.State != nil && look.State.Deleting
}

// absent settles a tombstone whose object is not there, without a request.
func (e *entry) absent(content inventory.Content, look observe.Look, now time.Time) {
	if e.applied && e.content == content || !look.Synced || look.State != nil {
		return
	}
	*e = entry{
		applied: true, content: content, trusted: true, result: Deleted, at: now, reached: e.reached, waitingSince: e.waitingSince,
	}
}

// follow notes how the deletion that a tombstone asked for goes on, as its watch tells it.
func (e *entry) follow(state *observe.State, now time.Time) {
	switch {
	case e.result != Deleting:
	case state == nil:
		e.result, e.at, e.message = Deleted, now, ""
	case len(state.Finalizers) > 0:
		e.message = "waiting for its finalizers " + strings.Join(state.Finalizers, ", ")
	}
}

// awaitsEnd tells whether an object that has to be gone is still there.
func (p *pass) awaitsEnd(ctx context.Context, n *taskgraph.Node, t *task, s *slot, state *observe.State) (pending bool) {
	if s.err != nil || s.cancelled || s.entry.result != Deleting || n.Manifest.Tombstone() && !t.awaited {
		return false
	}
	if s.entry.ended {
		s.verdict = stuck(t.id, state, p.left(ctx, n.Manifest, state))
		return true
	}
	s.verdict = waiting(ReasonDeleting, "%s is being deleted: %s", t.id, s.entry.message)
	return true
}

// left tells what keeps a namespace from going. It takes one read for a namespace that is being deleted.
func (p *pass) left(ctx context.Context, m *manifest.Manifest, state *observe.State) string {
	if id := m.ID(); id.Group != "" || id.Kind != "Namespace" || state == nil || !state.Deleting {
		return ""
	}
	object, err := p.Applier.Live(ctx, m)
	if err != nil || object == nil {
		return "" // that it is being deleted is what has to be told
	}
	return remains(object.Object)
}
