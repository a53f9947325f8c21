package rollout

import (
	"context"
	"strings"
	"time"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/drift"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// isBeingDeleted reports whether an object is being deleted so that its manifest can be applied afterwards.
func isBeingDeleted(o drift.Object, look observe.Look) bool {
	return o.Applied.Result == report.Deleting && o.Applied.Content == o.Content && look.Synced && look.State != nil && look.State.Deleting
}

// settleAbsent settles a tombstone without a request if its object does not exist.
func (e *entry) settleAbsent(content inventory.Content, look observe.Look, now time.Time) {
	if e.applied.Has(content) || !look.Synced || look.State != nil {
		return
	}
	*e = entry{
		applied: drift.Absent(content, now), observed: drift.Observed{Trusted: true},
		wait: wait{reached: e.wait.reached, since: e.wait.since},
	}
}

// awaitsDeletion reports whether the pass must still wait for the deletion of an object.
func (p *pass) awaitsDeletion(ctx context.Context, n *taskgraph.Node, t *task, s *slot, state *observe.State) (pending bool) {
	if s.err != nil || s.canceled || s.entry.applied.Result != report.Deleting || n.Manifest.Tombstone() && !t.awaited {
		return false
	}
	if s.entry.applied.DeletedByOther {
		s.verdict = foreignDeletionWait(t.id, state, p.remainingContent(ctx, n.Manifest, &s.entry, state))
		return true
	}
	s.verdict = waitFor(api.ReasonDeleting, "%s is being deleted: %s", t.id, s.entry.applied.Message)
	return true
}

// remainingContent returns the reasons why a namespace has not been deleted yet. It reads the namespace only while it is being deleted, and
// again only after a change.
func (p *pass) remainingContent(ctx context.Context, m *manifest.Manifest, e *entry, state *observe.State) string {
	if id := m.ID(); id.Group != "" || id.Kind != "Namespace" || state == nil || !state.Deleting {
		return ""
	}
	if e.remaining.version == state.ResourceVersion {
		return e.remaining.text
	}
	object, err := p.Applier.Live(ctx, m)
	if err != nil || object == nil {
		return "" // the caller then reports the deletion without details
	}
	messages := api.RemainingContent(object.Object)
	for i := range messages {
		messages[i] = printable.Excerpt(messages[i], maxContentText)
	}
	e.remaining = remaining{state.ResourceVersion, strings.Join(messages, "; ")}
	return e.remaining.text
}
