package rollout

import (
	"context"
	"fmt"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/taskgraph"
)

// Handover is what a process that is a pod of the operator's own Deployment does at that Deployment's place in the graph:
// if a release brings it with another image it is the last that this process applies, and the rest is left to the process
// that the Deployment starts. A process outside of the cluster has none, and goes on.
type Handover struct {
	// Deployment is the one whose pod this process is.
	Deployment manifest.ID
	// Own reports whether an image is that which this process runs.
	Own func(image string) bool
	// Flush has everything that has settled recorded, before the process may be stopped.
	Flush func(ctx context.Context) error
	// Stands tells which image that Deployment asks for by now, and the generation by which it does; none if that is not
	// known, or there is no Deployment.
	Stands func() (image string, generation int64)
	// Successor tells how the pods with that image get on.
	Successor func(image string) Successor
}

// Successor is how the process gets on that is to take over.
type Successor struct {
	// Trouble is what keeps it from starting, a sentence without full stop; empty if nothing is known to.
	Trouble string
	// Lasting: that has been so for longer than starting takes.
	Lasting bool
}

// setBack has the Deployment applied again whose image somebody set to another. Metadata does not tell that of a writer
// who goes by our field manager, such as an install or an operator of another release, since managedFields has no values;
// and nothing else would have the successor's pods made. An image that an admission webhook puts in the place of ours comes
// with each apply, and does not count.
func (p *pass) setBack(t *task, m *manifest.Manifest, e *entry, content inventory.Content) need {
	h := p.Handover
	if h == nil || t.id != h.Deployment || !e.applied || e.content != content || m.Tombstone() || m.CreateOnly() {
		return need{}
	}
	image, generation := h.Stands()
	want := manifest.OperatorImage(m.Object.Object)
	if image == "" || want == "" || release.SameImage(image, want) || e.sent && generation <= e.generation {
		return need{}
	}
	return need{apply: true, drift: DriftChanged, namesake: true}
}

// leaving returns the image of the operator that a node's manifest hands over to, empty if it does not.
func (p *pass) leaving(n *taskgraph.Node) string {
	h := p.Handover
	if h == nil || n.Manifest.Tombstone() || p.plan.tasks[n.Index].id != h.Deployment {
		return ""
	}
	if image := manifest.OperatorImage(n.Manifest.Object.Object); image != "" && !h.Own(image) {
		return image
	}
	return ""
}

// flush records what has settled before the process may be stopped; an apply of the same content needs that no more.
func (p *pass) flush(ctx context.Context, n *taskgraph.Node, e *entry, content inventory.Content) error {
	if p.leaving(n) == "" || e.applied && e.content == content {
		return nil
	}
	if err := p.Handover.Flush(ctx); err != nil {
		return fmt.Errorf("recording what has settled, before the operator of release %s takes over: %w", p.plan.Release.Version, err)
	}
	return nil
}

// handOver has a Deployment that was applied keep everything beyond it from this process.
func (p *pass) handOver(n *taskgraph.Node, s *slot) {
	image := p.leaving(n)
	if image == "" || s.err != nil || s.cancelled || s.unknown || !s.entry.applied {
		return
	}
	p.handing.Store(true)
	successor := p.Handover.Successor(image)
	who := "the operator of release " + p.plan.Release.Version
	if successor.Lasting && s.verdict.Reason != ReasonFight {
		s.verdict = gate.Verdict{
			State: gate.Failed, Reason: api.ReasonOperatorNotStarting,
			Message: fmt.Sprintf("%s cannot take over: %s", who, successor.Trouble),
		}
		return
	}
	trouble := successor.Trouble
	if s.verdict.Reason == ReasonFight {
		trouble = s.verdict.Message // which is why there are no pods
	}
	s.verdict = waiting(api.ReasonOperatorHandover, "waiting for %s to take over", who)
	if trouble != "" {
		s.verdict.Message += ": " + trouble
	}
}

// Handing reports whether everything that this process may do of the rollout is done, because another is to take over.
func (p *Passer) Handing() bool { return p.handing.Load() }
