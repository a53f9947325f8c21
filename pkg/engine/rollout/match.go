package rollout

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/drift"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// match applies the manifest unless its object already matches. It returns pending if the object has to wait. The slot's verdict then
// contains the reason. Without pending, a verdict other than zero is a problem to report.
func (p *pass) match(ctx context.Context, n *taskgraph.Node, t *task, s *slot) (pending bool) {
	now, e := p.Clock.Now(), &s.entry
	sum, err := p.Applier.Content(n.Manifest)
	content := inventory.ContentOf(sum)
	if retry := &e.wait.retry; retry.err != nil && e.applied.Content == content && now.Before(retry.at) {
		if due := p.due(ctx, n.Manifest, retry, e.applied.At, now); now.Before(due) {
			s.err, s.recheckAt = retry.err, due
			return false
		}
	}
	if err != nil {
		p.failed(ctx, n.Manifest, content, s, err)
		return false
	}
	look := p.look(ctx, n.Manifest, t, e)
	if n.Manifest.Tombstone() && p.plan.Mode() != release.Initializing {
		e.settleAbsent(content, look, now)
	}
	object := drift.Object{
		Manifest: n.Manifest, Content: content, Applied: e.applied, Expires: t.hasTTL && e.wait.finished,
		DefinedAt: p.definedAt(t), SeveralVersions: t.severalVersions,
	}
	observed, need := drift.Assess(object, e.observed, look, now, &p.probes)
	e.observed, s.recheckAt = observed, need.RecheckAt
	if need.Adopted != "" {
		e.applied = e.applied.Adopted(need.Adopted)
	}
	switch until := e.observed.Repairs.PausedUntil(now); {
	case need.Unknown:
		s.unknown = true
		s.verdict = waitFor(api.ReasonNotObserved, "the state of %s has not been observed yet", t.id)
		return true
	case need.Apply && isBeingDeleted(object, look) && !n.Manifest.Tombstone():
		// The next event is the end of the deletion. Another apply would not speed it up.
	case need.Apply && !n.Manifest.Tombstone() && look.Synced && look.State != nil && look.State.Deleting:
		// Another client is deleting the object. Applied fields would be deleted with it and have to be applied again.
		e.applied = e.applied.DeletingByOther(content, now)
		s.recheckAt = now.Add(drift.WatchPatience)
	case need.Drift != "" && !until.IsZero():
		s.recheckAt = until
		s.verdict = fighting(t, p.plan.Mode(), e.observed.Repairs)
	case need.Apply:
		p.apply(ctx, n, t, s, object, look, need)
	case n.Manifest.Tombstone() && look.Synced:
		e.applied = e.applied.Watched(look.State, now)
	case t.isForeignCRD(e) && look.State != nil && look.State.Deleting:
		e.applied = e.applied.DeletingByOther(content, now)
	case look.State != nil && look.State.Deleting && !t.gated:
		s.verdict = foreignDeletionNotice(t.id, look.State.Finalizers, p.remainingContent(ctx, n.Manifest, e, look.State))
	}
	if state := look.State; state != nil && e.observed.Loosened.Outdated(state) {
		p.confirm(ctx, n, s, state)
	}
	if p.awaitsDeletion(ctx, n, t, s, look.State) {
		return true
	}
	p.readForeignCRD(ctx, n.Manifest, t, s)
	return false
}

// look returns the known state of an object. An install skips tombstones. It uses no watches until it has applied everything: watches of
// kinds that have just been created would cost the API server as much as the objects. However, watches report the end of a deletion, and
// after a restart they must confirm the restored objects.
func (p *pass) look(ctx context.Context, m *manifest.Manifest, t *task, e *entry) observe.Look {
	switch installs := p.plan.Mode() == release.Initializing; {
	case installs && m.Tombstone():
		return observe.Look{Synced: true}
	case !installs || p.watched:
		return p.Observer.Look(ctx, m, e.applied.ByName || m.Tombstone())
	case e.applied.Result == report.Deleting, e.applied.Stands && !e.observed.Trusted, t.isForeignCRD(e):
		return p.Observer.Look(ctx, m, e.applied.ByName)
	}
	return observe.Look{}
}

// check evaluates the gate, except for objects in a repair truce and finished Jobs with a TTL.
func (p *pass) check(n *taskgraph.Node, t *task, s *slot) {
	e := &s.entry
	if s.verdict.Reason != "" || !t.gated || t.hasTTL && e.wait.finished {
		if s.verdict.State == "" {
			s.verdict.State = gate.Settled
		}
		return
	}
	object := p.Observer.Object(t.id)
	if object == nil && t.isForeignCRD(e) {
		object = e.foreignCRD.object
	}
	if t.workload && object != nil {
		e.scaledToZero = gate.ScaledToZero(object, n.Manifest)
	}
	s.verdict = gate.Check(object, gate.Want{
		Manifest: n.Manifest, Mode: p.plan.Mode(), UID: e.applied.UID, Generation: e.applied.Generation, Alone: t.alone,
	})
	s.ungated = object == nil && s.verdict.State != gate.Settled && !isClusterOperator(n.Manifest)
	if p.Pods == nil || !t.workload || s.verdict.State == gate.Settled {
		return
	}
	finding := p.Pods.Find(t.id)
	s.pod = finding.Summary
	if finding.Text != "" {
		s.verdict.Message += "; " + finding.Text
	}
}

// isForeignCRD reports whether a create-only CRD of the release existed before our apply. If another client has installed it, it lacks our
// label, and no watch of the gate delivers it.
func (t *task) isForeignCRD(e *entry) bool {
	return e.applied.ByName && t.gated && t.id.Kind == "CustomResourceDefinition"
}

// readForeignCRD reads a CRD of another client for the gate, once per event, because its watch by name reports every change, also of the
// status. It retries a failed read after a while.
func (p *pass) readForeignCRD(ctx context.Context, m *manifest.Manifest, t *task, s *slot) {
	e := &s.entry
	if s.err != nil || s.canceled || !t.isForeignCRD(e) || p.Observer.Object(t.id) != nil {
		return
	}
	state, crd := p.look(ctx, m, t, e).State, &e.foreignCRD
	if state == nil {
		return // the watch reports when it knows the CRD
	}
	if crd.version != state.ResourceVersion || crd.err != nil && !p.Clock.Now().Before(crd.retryAt) {
		object, err := p.liveCRD(ctx, m)
		if err != nil && ctx.Err() != nil {
			s.canceled = true
			return
		}
		*crd = foreignCRD{version: state.ResourceVersion, object: object, err: err, retryAt: p.Clock.Now().Add(confirmRetry)}
	}
	if crd.err != nil {
		s.verdict = waitFor(api.ReasonNotObserved, "%v", crd.err)
		s.recheckAt = earlier(s.recheckAt, crd.retryAt)
	}
}

// liveCRD reads the conditions of a CRD; it returns nil if the CRD does not exist.
func (p *pass) liveCRD(ctx context.Context, m *manifest.Manifest) (gate.Object, error) {
	live, err := p.Applier.Live(ctx, m)
	if err != nil || live == nil {
		return nil, err
	}
	crd := &gate.CRD{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &crd.Conditioned); err != nil {
		return nil, fmt.Errorf("reading the conditions of %s: %w", m.ID(), err)
	}
	crd.ManagedFields, crd.Annotations = nil, nil // they may be large, and the gate does not need them
	return crd, nil
}

// waitingWorkloads returns the workloads whose pods this pass waits for, or would wait for if no predecessor were unsettled again.
func (p *pass) waitingWorkloads() []*manifest.Manifest {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*manifest.Manifest
	for _, n := range p.plan.Graph.Tasks() {
		if !p.plan.tasks[n.Index].workload {
			continue
		}
		s := p.latest(n)
		if s.visited && s.err == nil && (s.verdict.State == gate.Waiting || s.verdict.State == gate.Failed) {
			out = append(out, n.Manifest)
		}
	}
	return out
}

// gatedTask reports whether a task has a gate. A tombstone settles once its deletion is requested. A create-only object belongs to other
// clients after its creation, so it has a gate only if other objects depend on its kind.
func gatedTask(m *manifest.Manifest) bool {
	if m.Tombstone() || !gate.Gated(m) {
		return false
	}
	return !m.CreateOnly() || m.Is("apiextensions.k8s.io", "CustomResourceDefinition") || isClusterOperator(m)
}
