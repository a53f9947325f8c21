package rollout

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/taskgraph"
)

// Applier makes objects match their manifests; *apply.Applier is one.
type Applier interface {
	Apply(ctx context.Context, m *manifest.Manifest, mode release.Mode) (apply.Change, error)
	Precreate(ctx context.Context, m *manifest.Manifest) (apply.Change, error)
}

// Observer answers with the latest state of an object that watches have delivered, nil if there is none. It sends no
// request. Only objects of kinds with a gate are asked for.
type Observer interface {
	Object(id manifest.ID) client.Object
}

// Passer makes passes. Its collaborators are the same for all of them.
type Passer struct {
	Clock    clock.PassiveClock
	Applier  Applier
	Observer Observer
	// Rand spreads retries; seeded by whoever wires the process.
	Rand *rand.Rand
	// Width is how many manifests are worked on at a time; 0 is 16.
	Width int
	// Report receives the progress so far during a pass, at most every ReportInterval; nil for none.
	Report func(Progress)
	// ReportInterval is 500 ms if zero.
	ReportInterval time.Duration

	bell taskgraph.Bell
}

// Changed has a pass that is under way look again at what it waits for, because a watch has told something new.
func (p *Passer) Changed() { p.bell.Ring() }

const (
	defaultWidth          = 16
	defaultReportInterval = 500 * time.Millisecond
	// Failed applies are tried again after 200 ms, doubling to 30 s, give or take a fifth. Only errors of the API
	// are waited out by the clock; everything else has an event.
	retryMin = 200 * time.Millisecond
	retryMax = 30 * time.Second
)

// Run makes one pass: every manifest whose predecessors have settled is applied, unless settled says that this very
// content was, and its gate is asked. What does not settle holds back what depends on it and nothing else. The error
// is that of ctx; failures of manifests are in the Progress.
func (p *Passer) Run(ctx context.Context, plan *Plan, settled Settled) (Progress, Settled, error) {
	pass := &pass{Passer: p, plan: plan, before: settled, slots: make([]slot, len(plan.tasks)), reported: p.Clock.Now()}
	width := p.Width
	if width == 0 {
		width = defaultWidth
	}
	result, err := taskgraph.Walk(ctx, plan.Graph, width, &p.bell, nil, pass.visit)
	next := pass.settled()
	progress := pass.progress()
	progress.Complete = err == nil && result.Complete()
	return progress, next, err
}

// slot is what a pass learns of one node, by the last of its visits.
type slot struct {
	visited bool
	entry   entry
	verdict gate.Verdict
	err     error
	// cancelled: the visit was cut short, which is no trouble of the object.
	cancelled bool
}

type pass struct {
	*Passer
	plan   *Plan
	before Settled

	mu       sync.Mutex // guards slots, reported and Rand; never held while applying
	slots    []slot
	reported time.Time
}

func (p *pass) visit(ctx context.Context, n *taskgraph.Node) taskgraph.Outcome {
	t := &p.plan.tasks[n.Index]
	s := slot{visited: true, entry: p.entry(n, t)}
	if !s.entry.applied || s.entry.content != t.content || p.drifted(t, s.entry) {
		p.apply(ctx, n, t, &s)
	}
	if s.cancelled {
		p.finish(n, s)
		return taskgraph.Held
	}
	if s.err == nil {
		s.verdict, s.entry.observed = p.check(n, t, s.entry)
	}
	settled := s.err == nil && s.verdict.State == gate.Settled
	switch {
	case settled:
		s.entry.reached, s.entry.waitingSince = true, time.Time{}
	case s.entry.waitingSince.IsZero():
		s.entry.waitingSince = p.Clock.Now()
	}
	p.finish(n, s)
	if settled {
		return taskgraph.Settled
	}
	return taskgraph.Held
}

// entry is what is known of the node's object, by an earlier visit of this pass or an earlier pass.
func (p *pass) entry(n *taskgraph.Node, t *task) entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := &p.slots[n.Index]; s.visited {
		return s.entry
	}
	return p.before.entries[t.id]
}

func (p *pass) apply(ctx context.Context, n *taskgraph.Node, t *task, s *slot) {
	if now := p.Clock.Now(); s.entry.err != nil && s.entry.content == t.content && now.Before(s.entry.retryAt) {
		s.err = s.entry.err
		return
	}
	for _, operator := range t.precreate {
		if p.Observer.Object(operator.ID()) == nil {
			// Its own place in the chain reports what goes wrong; here it is only early.
			_, _ = p.Applier.Precreate(ctx, operator)
		}
	}
	change, err := p.Applier.Apply(ctx, n.Manifest, p.plan.Mode())
	if err != nil {
		p.failed(ctx, t, s, err)
		return
	}
	s.entry = entry{
		applied: true, content: t.content, uid: change.UID, generation: change.Generation, dropped: change.Dropped,
		reached: s.entry.reached, waitingSince: s.entry.waitingSince,
	}
}

func (p *pass) failed(ctx context.Context, t *task, s *slot, err error) {
	// Even a cancelled request may have reached the server, so what was applied before is no longer known to be there.
	s.entry.applied = false
	if ctx.Err() != nil {
		s.cancelled = true
		return
	}
	if s.entry.content != t.content {
		s.entry.failures = 0
	}
	s.err = err
	s.entry.content, s.entry.err = t.content, err
	s.entry.failures++
	wait := min(retryMin<<min(s.entry.failures-1, 20), retryMax)
	p.mu.Lock()
	wait += time.Duration((p.Rand.Float64()*0.4 - 0.2) * float64(wait))
	p.mu.Unlock()
	s.entry.retryAt = p.Clock.Now().Add(wait)
}

// drifted reports whether watches have told, since the content was applied, that the object is gone, was replaced, or
// has another spec. What a change of spec means is for the server to say: applying again changes nothing if the fields
// are not ours.
func (p *pass) drifted(t *task, e entry) bool {
	if !t.gated || e.uid == "" {
		return false
	}
	obj := p.Observer.Object(t.id)
	if obj == nil || obj.GetUID() != e.uid {
		return e.observed
	}
	return obj.GetGeneration() > e.generation
}

// check asks the gate, and tells whether watches have delivered the object that was applied.
func (p *pass) check(n *taskgraph.Node, t *task, e entry) (verdict gate.Verdict, observed bool) {
	if !t.gated {
		return gate.Verdict{State: gate.Settled}, false
	}
	obj := p.Observer.Object(t.id)
	verdict = gate.Check(obj, gate.Want{
		Manifest: n.Manifest, Mode: p.plan.Mode(), UID: e.uid, Generation: e.generation, Alone: t.alone,
	})
	return verdict, e.observed || obj != nil && obj.GetUID() == e.uid
}

// gatedTask tells whether a task has a gate: a tombstone is settled once deletion is asked for, and what is created
// only once is somebody else's from then on, but for the kinds that others build on.
func gatedTask(m *manifest.Manifest) bool {
	if m.Tombstone() || !gate.Gated(m) {
		return false
	}
	return !m.CreateOnly() || m.Is("apiextensions.k8s.io", "CustomResourceDefinition") || isClusterOperator(m)
}

// finish stores what a visit found, and reports the progress now and then.
func (p *pass) finish(n *taskgraph.Node, s slot) {
	interval := p.ReportInterval
	if interval == 0 {
		interval = defaultReportInterval
	}
	p.mu.Lock()
	p.slots[n.Index] = s
	now := p.Clock.Now()
	due := p.Report != nil && now.Sub(p.reported) >= interval
	var progress Progress
	if due {
		p.reported = now
		progress = p.progressLocked()
	}
	p.mu.Unlock()
	if due {
		p.Report(progress)
	}
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
	return Settled{next}
}

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
		if problem, ok := problemOf(n, s); ok {
			progress.Problems = append(progress.Problems, problem)
		}
		if s.err != nil && !e.retryAt.IsZero() && (progress.RetryAt.IsZero() || e.retryAt.Before(progress.RetryAt)) {
			progress.RetryAt = e.retryAt
		}
	}
	progress.collect(components)
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
	if !s.visited || s.cancelled || s.err == nil && s.verdict.Reason == "" {
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
