package rollout

import (
	"context"
	"fmt"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Handover configures how a pod of the operator's own Deployment treats that Deployment in the graph. If the release has another image for
// it, the Deployment does not settle in this process, and the process in the new pods applies everything after it. In an update the
// Deployment is a barrier, so it is the last object that this process applies. In the other modes, nodes that do not depend on the
// Deployment continue until this process is stopped. A process outside the cluster has no Handover and continues.
type Handover struct {
	// Deployment is the Deployment whose pod this process is.
	Deployment manifest.ID
	// Own reports whether this process runs the given image.
	Own func(image string) bool
	// Flush saves the records of all settled objects before the process may be stopped. After two failures the handover continues.
	Flush func(ctx context.Context) error
	// Successor returns the state of the pods with the given image.
	Successor func(image string) Successor
}

// Successor is the state of the process that continues the rollout.
type Successor struct {
	// Trouble is the reason why the successor does not start, as a clause without a period; empty if none is known.
	Trouble string
	// Lasting is true if the trouble has lasted longer than a normal start.
	Lasting bool
}

// successorImage returns the new operator image if this process must hand over at the node; otherwise "".
func (p *pass) successorImage(n *taskgraph.Node) string {
	h := p.Handover
	if h == nil || n.Manifest.Tombstone() || p.plan.tasks[n.Index].id != h.Deployment {
		return ""
	}
	if image := manifest.OperatorImage(n.Manifest.Object.Object); image != "" && !h.Own(image) {
		return image
	}
	return ""
}

// flush saves the records of settled objects before the process may be stopped. It does nothing if the content is already applied. After a
// second failure the handover continues, because without the records the successor only makes no-op applies.
func (p *pass) flush(ctx context.Context, n *taskgraph.Node, e *entry, content inventory.Content) error {
	if p.successorImage(n) == "" || e.applied.Has(content) {
		return nil
	}
	retried := e.wait.flushError != ""
	err := p.Handover.Flush(ctx)
	if err == nil || ctx.Err() != nil {
		e.wait.flushError = ""
		return err
	}
	if e.wait.flushError = err.Error(); retried {
		return nil
	}
	return fmt.Errorf("saving the inventory before the operator of release %s takes over: %w", p.plan.Release.Version, err)
}

// handOver keeps the applied Deployment unsettled, so this process applies nothing that depends on it. It reports whether the slot's verdict
// is now about the handover.
func (p *pass) handOver(n *taskgraph.Node, s *slot) bool {
	image := p.successorImage(n)
	if image == "" || s.err != nil || s.canceled || s.unknown || !s.entry.applied.Stands {
		return false
	}
	p.handingOver.Store(true)
	successor := p.Handover.Successor(image)
	name := "the operator of release " + p.plan.Release.Version
	if successor.Lasting && s.verdict.Reason != api.ReasonFight {
		s.verdict = gate.Verdict{
			State: gate.Failed, Reason: api.ReasonOperatorNotStarting,
			Message: fmt.Sprintf("%s cannot take over: %s", name, successor.Trouble),
		}
		return true
	}
	trouble := successor.Trouble
	if s.verdict.Reason == api.ReasonFight {
		trouble = s.verdict.Message // the reason why there are no pods
	}
	s.verdict = waitFor(api.ReasonOperatorHandover, "waiting for %s to take over", name)
	if s.entry.wait.flushError != "" {
		s.verdict.Message += " (it will apply all objects again, because saving the inventory failed: " + s.entry.wait.flushError + ")"
	}
	if trouble != "" {
		s.verdict.Message += ": " + trouble
	}
	return true
}

// Handing reports whether this process has applied the Deployment of the process that continues the rollout.
func (p *Executor) Handing() bool { return p.handingOver.Load() }
