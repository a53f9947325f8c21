package rollout

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/observe"
	"github.com/cluster-version/cvo/pkg/ownership"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/taskgraph"
)

// Applier makes objects match their manifests; *apply.Applier is one.
type Applier interface {
	Apply(ctx context.Context, m *manifest.Manifest, mode release.Mode) (apply.Change, error)
	Precreate(ctx context.Context, m *manifest.Manifest) (apply.Change, error)
	// Content stands for what Apply would send; it is asked often and has to be cheap.
	Content(m *manifest.Manifest) ([sha256.Size]byte, error)
	// Live reads the whole object, nil if it is not there.
	Live(ctx context.Context, m *manifest.Manifest) (*unstructured.Unstructured, error)
}

// Observer answers with what watches have delivered. It sends no request of its own.
type Observer interface {
	// Object is the latest state of an object of a kind that has a gate, nil if there is none.
	Object(id manifest.ID) client.Object
	// Look is what the metadata of a manifest's object tells; byName if the object does not carry our label. The watch
	// begins when it is first asked for.
	Look(ctx context.Context, m *manifest.Manifest, byName bool) observe.Look
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
	// Repaired is told of every repair of drift; nil for none. It may be called from several goroutines at once.
	Repaired func(Repaired)
	// Metrics count what passes do; nil for none.
	Metrics *Metrics
	// Handover is for a process that a release may replace; nil for one that goes on whatever it applies.
	Handover *Handover

	bell taskgraph.Bell
	last atomic.Pointer[pass]
	// changes counts what an inventory would want to know.
	changes atomic.Uint64
	resting atomic.Bool
	handing atomic.Bool
	// pausing guards pause, and is never held while applying.
	pausing sync.Mutex
	pause   pauser
}

// Resting reports whether the last pass has found everything in place and no other is under way.
func (p *Passer) Resting() bool { return p.resting.Load() }

// Changes counts the changes of what Settled returns that are worth recording.
func (p *Passer) Changes() uint64 { return p.changes.Load() }

// Repaired is a repair of drift as it is told to others.
type Repaired struct {
	ID manifest.ID
	Repair
	// Fight: the object had to be repaired too often, so the next repair is held back until HeldBack.
	Fight    bool
	HeldBack time.Time
}

// Changed has a pass that is under way look again at what it waits for, because a watch has told something new.
func (p *Passer) Changed() { p.bell.Ring() }

const (
	defaultWidth          = 16
	defaultReportInterval = 500 * time.Millisecond
	// Failed applies are tried again after 200 ms, doubling to 25 s, give or take a fifth, so that half a minute is the most
	// that anybody waits. Only errors of the API are waited out by the clock; everything else has an event. Those who do not
	// answer at all are not waited for that long: once they are back, everything can go on.
	retryMin  = 200 * time.Millisecond
	retryMax  = 25 * time.Second
	retryAway = 5 * time.Second
)

// Run makes one pass: every manifest whose predecessors have settled is applied, unless settled says that this very
// content was, and its gate is asked. What does not settle holds back what depends on it and nothing else. The error
// is that of ctx; failures of manifests are in the Progress.
func (p *Passer) Run(ctx context.Context, plan *Plan, settled Settled) (Progress, Settled, error) {
	pass := &pass{Passer: p, plan: plan, before: settled, slots: make([]slot, len(plan.tasks)), reported: p.Clock.Now()}
	p.last.Store(pass)
	p.resting.Store(false)
	p.handing.Store(false)
	width := p.Width
	if width == 0 {
		width = defaultWidth
	}
	result, err := taskgraph.Walk(ctx, plan.Graph, width, &p.bell, nil, pass.visit)
	next := pass.settled()
	progress := pass.progress()
	progress.Complete = err == nil && result.Complete()
	p.resting.Store(progress.Complete)
	return progress, next, err
}

// slot is what a pass learns of one node, by the last of its visits.
type slot struct {
	visited bool
	entry   entry
	verdict gate.Verdict
	err     error
	// lookAt is when the node is to be visited again though nothing may have happened; zero for never.
	lookAt time.Time
	// cancelled: the visit was cut short, which is no trouble of the object; unknown: its watch is still to tell of it,
	// which is none either, and has an end.
	cancelled, unknown bool
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
	if p.hold(n) {
		return taskgraph.Held
	}
	t := &p.plan.tasks[n.Index]
	s := slot{visited: true, entry: p.entry(n, t)}
	pending := p.match(ctx, n, t, &s)
	if s.cancelled {
		p.finish(n, s)
		return taskgraph.Held
	}
	if s.err == nil && !pending {
		p.check(n, t, &s)
		p.handOver(n, &s)
	}
	settled := s.err == nil && s.verdict.State == gate.Settled
	switch {
	case settled:
		if !s.entry.reached {
			p.changes.Add(1)
		}
		if isClusterOperator(n.Manifest) && !s.entry.waitingSince.IsZero() {
			p.changes.Add(1)
		}
		s.entry.reached, s.entry.finished, s.entry.waitingSince = true, true, time.Time{}
	case s.entry.waitingSince.IsZero(), s.entry.waitingSince.After(p.Clock.Now()): // by a predecessor's clock
		s.entry.waitingSince = p.waitingSince(n, &s)
	}
	p.finish(n, s)
	if settled {
		return taskgraph.Settled
	}
	return taskgraph.Held
}

// waitingSince is when the wait for an object began that is found unsettled for the first time in a row: now. A process
// that has just started knows it from the inventory or, where that does not say, from the ClusterOperator that tells when
// it began to progress, so that it comes to the same answer as the one before.
func (p *pass) waitingSince(n *taskgraph.Node, s *slot) time.Time {
	now := p.Clock.Now()
	if !isClusterOperator(n.Manifest) || s.err != nil {
		return now
	}
	p.changes.Add(1)
	if !p.before.restored {
		return now
	}
	if co, ok := p.Observer.Object(n.Manifest.ID()).(*configv1.ClusterOperator); ok {
		began := gate.ProgressingSince(co)
		if began.After(p.plan.Began) && began.Before(now) && !p.plan.Began.IsZero() {
			return began
		}
	}
	return now
}

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
	case n.Manifest.Tombstone():
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

// unconfirmed reports whether others may have loosened something since that was last looked at.
func (e *entry) unconfirmed(state *observe.State) bool {
	return !slices.Equal(e.suspected, state.Loosened) || len(e.suspected) > 0 && state.Generation != e.confirmed
}

// confirm looks at the values of fields by which others may have loosened the security of pods: metadata tells of the
// fields alone. It takes one read for an object whose fields have changed, and hardly any object has such fields.
func (p *pass) confirm(ctx context.Context, n *taskgraph.Node, e *entry, state *observe.State) {
	var confirmed []string
	if len(state.Loosened) > 0 {
		object, err := p.Applier.Live(ctx, n.Manifest)
		if err != nil {
			return // the next look asks again
		}
		for _, s := range state.Loosened {
			if _, path, _ := strings.Cut(s, ": "); object != nil && ownership.Loosens(object.Object, path) {
				confirmed = append(confirmed, s)
			}
		}
	}
	e.suspected, e.loosened, e.confirmed = state.Loosened, confirmed, state.Generation
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

// entry is what is known of the node's object, by an earlier visit of this pass or an earlier pass.
func (p *pass) entry(n *taskgraph.Node, t *task) entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := &p.slots[n.Index]; s.visited {
		return s.entry
	}
	return p.before.entries[t.id]
}

func (p *pass) apply(
	ctx context.Context, n *taskgraph.Node, t *task, s *slot, content inventory.Content, look observe.Look, need need,
) {
	for _, operator := range t.precreate {
		if p.Observer.Object(operator.ID()) == nil {
			// Its own place in the chain reports what goes wrong; here it is only early.
			_, _ = p.Applier.Precreate(ctx, operator)
		}
	}
	if err := p.flush(ctx, n, &s.entry, content); err != nil {
		p.failed(ctx, content, s, err)
		return
	}
	begun := p.Clock.Now()
	change, err := p.Applier.Apply(ctx, n.Manifest, p.plan.Mode())
	if err != nil {
		p.failed(ctx, content, s, err)
		p.measure(s, p.Clock.Since(begun))
		return
	}
	before, now := s.entry, p.Clock.Now()
	s.entry = entry{
		applied: true, sent: true, content: content, uid: change.UID, generation: change.Generation,
		resourceVersion: change.ResourceVersion, fields: change.Fields, dropped: change.Dropped,
		byName: change.Action == apply.Kept, trusted: true, checked: now,
		result: resultOf(change, before, look), at: now, message: change.Message,
		reached: before.reached, waitingSince: before.waitingSince, repairs: before.repairs,
		suspected: before.suspected, loosened: before.loosened, confirmed: before.confirmed,
	}
	s.lookAt = time.Time{}
	p.changes.Add(1)
	if change.Deleting && !n.Manifest.Tombstone() {
		s.entry.result = Deleting // what was applied goes with the object
		s.entry.ended = change.Action != apply.Deleting
	}
	if s.entry.result == Deleting && !n.Manifest.Tombstone() {
		// It is to be created anew once it is gone, which its watch tells; the clock is there for a watch that does not.
		s.entry.applied, s.lookAt = false, now.Add(watchPatience)
	}
	p.measure(s, now.Sub(begun))
	if need.drift != "" && s.entry.result != Unchanged {
		writer := writerOf(look)
		if need.namesake {
			writer = api.FieldManager
		}
		p.repaired(t.id, s, Repair{At: now, Reason: need.drift, Manager: writer})
	}
}

// measure notes what an attempt came to; one that was cut short came to nothing.
func (p *pass) measure(s *slot, took time.Duration) {
	if p.Metrics == nil || s.cancelled {
		return
	}
	p.Metrics.applied(s.entry.result, took)
	if s.err != nil {
		p.Metrics.failed(p.plan.Release.Version)
	}
}

// resultOf tells what an apply did: one that changed nothing leaves the resource version that was known.
func resultOf(change apply.Change, before entry, look observe.Look) Result {
	if change.Action != apply.Applied {
		return Result(change.Action)
	}
	known := before.uid == change.UID && before.resourceVersion == change.ResourceVersion
	if seen := look.State; known || seen != nil && seen.ResourceVersion == change.ResourceVersion {
		return Unchanged
	}
	return Configured
}

func writerOf(look observe.Look) string {
	if look.State == nil {
		return ""
	}
	return look.State.Writer
}

// repaired notes a repair and tells of it.
func (p *pass) repaired(id manifest.ID, s *slot, repair Repair) {
	next, fight := s.entry.repairs.with(repair)
	s.entry.repairs = next
	told := Repaired{ID: id, Repair: repair, Fight: fight, HeldBack: next.until}
	if p.Metrics != nil {
		p.Metrics.repaired(told)
	}
	if p.Repaired != nil {
		p.Repaired(told)
	}
}

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

// follow notes how the deletion that a tombstone asked for goes on.
func (e *entry) follow(state *observe.State, now time.Time) {
	switch {
	case e.result != Deleting:
	case state == nil:
		e.result, e.at, e.message = Deleted, now, ""
	case len(state.Finalizers) > 0:
		e.message = "waiting for its finalizers " + strings.Join(state.Finalizers, ", ")
	}
}

func (p *pass) failed(ctx context.Context, content inventory.Content, s *slot, err error) {
	// Even a cancelled request may have reached the server, so what was applied before is no longer known to be there.
	s.entry.applied = false
	if ctx.Err() != nil {
		s.cancelled = true
		return
	}
	if s.entry.content != content {
		s.entry.failures = 0
	}
	now := p.Clock.Now()
	s.err = err
	s.entry.content, s.entry.err = content, err
	s.entry.result, s.entry.at, s.entry.message = Refused, now, err.Error()
	s.entry.failures++
	longest := retryMax
	if apply.IsAway(err) {
		longest = retryAway
	}
	wait := min(retryMin<<min(s.entry.failures-1, 20), longest)
	p.mu.Lock()
	wait += time.Duration((p.Rand.Float64()*0.4 - 0.2) * float64(wait))
	p.mu.Unlock()
	s.entry.retryAt = now.Add(wait)
	s.lookAt = s.entry.retryAt
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
	return Settled{entries: next}
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
		if len(e.loosened) > 0 {
			progress.Loosened = append(progress.Loosened, Loosened{ID: t.id, Fields: e.loosened})
		}
		if e.result == Deleting {
			progress.Deletions = append(progress.Deletions, Deletion{ID: t.id, Since: e.at, Message: e.message})
		}
		if problem, ok := problemOf(n, s); ok {
			progress.Problems = append(progress.Problems, problem)
		}
		if !s.lookAt.IsZero() && (progress.RetryAt.IsZero() || s.lookAt.Before(progress.RetryAt)) {
			progress.RetryAt = s.lookAt
		}
	}
	progress.collect(components)
	progress.Paused = p.paused(progress)
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
	if !s.visited || s.cancelled || s.unknown || s.err == nil && s.verdict.Reason == "" {
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
