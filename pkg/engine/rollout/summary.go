package rollout

import (
	"fmt"
	"time"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
)

func (p *pass) progress() report.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.progressLocked()
}

// progressLocked summarizes the slots; the caller holds the lock.
func (p *pass) progressLocked() report.Progress {
	progress := report.Progress{Release: p.plan.Release, Mode: p.plan.Mode(), Total: p.plan.total}
	before, paused := p.pausedBefore()
	var unknown []string
	for _, n := range p.plan.Graph.Tasks() {
		t, s := &p.plan.tasks[n.Index], &p.slots[n.Index]
		applied, reached := s.entry.applied, s.entry.wait.reached
		if reached {
			progress.Done++
		}
		if reached && t.id.Name == api.MachineConfigOperator && isClusterOperator(n.Manifest) {
			progress.HandedOver = true
		}
		if len(applied.Dropped) > 0 {
			progress.Dropped = append(progress.Dropped, report.Dropped{ID: t.id, File: n.Manifest.File, Fields: applied.Dropped})
		}
		if loosened := s.entry.observed.Loosened.Confirmed; len(loosened) > 0 {
			progress.Loosened = append(progress.Loosened, report.Loosened{ID: t.id, Fields: loosened})
		}
		if controller := s.entry.observed.Controller; controller != "" {
			progress.Controlled = append(progress.Controlled, report.Controlled{ID: t.id, Controller: controller})
		}
		if s.entry.scaledToZero {
			progress.ScaledToZero = append(progress.ScaledToZero, t.id)
		}
		if applied.Result == report.Deleting {
			progress.Deletions = append(progress.Deletions, report.Deletion{ID: t.id, Since: applied.At, Message: applied.Message})
		}
		if n.Manifest.Tombstone() && (!s.entry.observed.Trusted || s.entry.wait.retry.err != nil) {
			if p.examined {
				unknown = append(unknown, unknownDeletion(n, t, s, before, paused))
			} else {
				progress.UnknownDeletions.Pending = true
			}
		}
		s = p.latest(n)
		if problem, ok := problemOf(n, s); ok {
			progress.Problems = append(progress.Problems, problem)
		}
		progress.RetryAt = earlier(progress.RetryAt, s.recheckAt)
	}
	progress.UnknownDeletions.Reason = printable.List(unknown, printable.Few)
	progress.Runlevels = report.Count(p.reached)
	if paused {
		progress.Paused = pauseBefore(before, progress.Runlevels)
	}
	report.SortProblems(progress.Problems)
	return progress
}

// unknownDeletion returns the reason why this rollout does not know whether the object of a tombstone is deleted. That includes a deletion
// that failed: such a request may have reached the server. A repeated failure has the same reason, although its error may name another
// local port. The caller holds the lock and knows whether the rollout is paused before a runlevel.
func unknownDeletion(n *taskgraph.Node, t *task, s *slot, before int, paused bool) string {
	switch {
	case s.entry.wait.retry.err != nil:
		return printable.Steady(s.entry.wait.retry.err.Error())
	case s.unknown:
		return s.verdict.Message
	case paused && n.Runlevel >= before:
		return fmt.Sprintf("%s is not checked while the rollout is paused before runlevel %d", t.id, before)
	}
	return t.id.String() + " is not checked until the objects before it in the release have settled"
}

// earlier returns the earlier of two times, where zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// reached yields each manifest's group and whether the manifest's gate has settled. The caller holds the lock.
func (p *pass) reached(yield func(taskgraph.Group, bool) bool) {
	for _, n := range p.plan.Graph.Tasks() {
		if !yield(n.Group(), p.slots[n.Index].entry.wait.reached) {
			return
		}
	}
}

// latest returns the slot of a node. If this pass does not visit the node because a predecessor is unsettled again, the slot contains the
// problem that the last visit found. Otherwise the problems of the current runlevel would disappear. It evaluates the gate again. It reports
// a deletion until the next visit, and a fight at most until the truce ends: only a visit can find out whether they continue. The caller
// holds the lock.
func (p *pass) latest(n *taskgraph.Node) *slot {
	t, s := &p.plan.tasks[n.Index], &p.slots[n.Index]
	e := s.entry
	if p.Executor == nil || s.visited {
		return s
	}
	truce := e.observed.Repairs.PausedUntil(p.Clock.Now())
	switch {
	case e.wait.matched.Reason == api.ReasonDeleting:
		return &slot{visited: true, entry: e, verdict: e.wait.matched}
	case e.wait.matched.Reason == api.ReasonFight && !truce.IsZero():
		return &slot{visited: true, entry: e, verdict: e.wait.matched, recheckAt: truce}
	case e.wait.retry.err != nil:
		return &slot{visited: true, entry: e, err: e.wait.retry.err}
	case !e.applied.Stands || e.wait.reached || e.wait.since.IsZero() || !t.gated:
		return s
	}
	unvisited := &slot{visited: true, entry: e}
	if p.check(n, t, unvisited); unvisited.verdict.State == gate.Settled {
		return s
	}
	return unvisited
}

func problemOf(n *taskgraph.Node, s *slot) (report.Problem, bool) {
	if !s.visited || s.canceled || s.unknown || s.err == nil && s.verdict.Reason == "" {
		return report.Problem{}, false
	}
	problem := report.Problem{
		ID: n.Manifest.ID(), File: n.Manifest.File, Runlevel: n.Runlevel, Component: n.Component,
		State: s.verdict.State, Patience: s.verdict.Patience, Reason: s.verdict.Reason, Message: s.verdict.Message,
		Pod: s.pod, Since: s.verdict.Since, Err: s.err,
	}
	if s.entry.wait.since.After(problem.Since) {
		problem.Since = s.entry.wait.since
	}
	if s.err != nil {
		problem.State, problem.Reason, problem.Message = gate.Failed, reasonOf(s.err), s.err.Error()
	}
	return problem, true
}
