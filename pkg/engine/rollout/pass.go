package rollout

import (
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/engine/drift"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Applier makes objects match their manifests. The operator uses *cluster.Applier, which injects the cluster's configuration into the
// manifests and leaves the requests to *apply.Applier.
type Applier interface {
	Apply(ctx context.Context, m *manifest.Manifest, mode release.Mode, options apply.Options) (apply.Change, error)
	Precreate(ctx context.Context, m *manifest.Manifest) (apply.Change, error)
	// Content returns a hash of the object that Apply would send. It must be fast because passes call it often.
	Content(m *manifest.Manifest) ([sha256.Size]byte, error)
	// Live reads the whole object; it returns nil if the object does not exist.
	Live(ctx context.Context, m *manifest.Manifest) (*unstructured.Unstructured, error)
}

// Observer returns states from watches. Its only other requests read discovery, to find the resource of a kind.
type Observer interface {
	// Object returns the latest state of an object with a gate; nil if there is none.
	Object(id manifest.ID) gate.Object
	// Look returns the state of a manifest's object from its metadata. Set byName if the object does not have our label. The first call
	// starts the watch.
	Look(ctx context.Context, m *manifest.Manifest, byName bool) observe.Look
}

// Pods reports why the pods of workloads do not run.
type Pods interface {
	// Follow watches the pods of these workloads, some time from now, and of no others.
	Follow(workloads []*manifest.Manifest)
	// Find returns the latest finding about the pods of a workload.
	Find(id manifest.ID) report.PodFinding
}

// Executor runs passes, all with the same collaborators.
type Executor struct {
	Clock    clock.PassiveClock
	Applier  Applier
	Observer Observer
	// Causes can end the wait after a failed apply early. With nil, only the timer ends it.
	Causes Causes
	// Pods explains why the rollout waits for a workload; nil for no explanation.
	Pods Pods
	// Rand is the source of the jitter of retries. The caller seeds it.
	Rand *rand.Rand
	// Width is the maximum number of manifests applied in parallel; zero means 16.
	Width int
	// Report receives the progress during a pass, at most once per ReportInterval; nil for none.
	Report func(report.Progress)
	// ReportInterval is the minimum time between reports; zero means 500 ms.
	ReportInterval time.Duration
	// Former reads the earlier manifests of an object; nil if there are none. It is called for few objects, if any.
	Former apply.Former
	// Repaired receives every repair of drift; nil for none. Several goroutines may call it at the same time.
	Repaired func(report.Repaired)
	// TakenBack receives apply.Change.TakenBack of every object, except those that Repaired receives; nil for none. Several goroutines may
	// call it at the same time.
	TakenBack func(id manifest.ID, text string)
	// Metrics records applies and repairs; nil for none.
	Metrics *Metrics
	// Handover configures the handover to another process; nil for a process that no release replaces.
	Handover *Handover

	bell taskgraph.Bell
	last atomic.Pointer[pass]
	// changes is the number of changes that an inventory records.
	changes     atomic.Uint64
	resting     atomic.Bool
	handingOver atomic.Bool
	pause       pauser
	probes      drift.Pacer
}

// Resting reports whether the last pass found everything settled and no other pass is running.
func (p *Executor) Resting() bool { return p.resting.Load() }

// Changes returns the number of changes to Settled that an inventory has to record.
func (p *Executor) Changes() uint64 { return p.changes.Load() }

// Changed makes a running pass check its pending gates again, after a watch has reported a change.
func (p *Executor) Changed() { p.bell.Ring() }

const (
	defaultWidth          = 16
	defaultReportInterval = 500 * time.Millisecond
)

// Run makes one pass. It applies every manifest whose predecessors have settled, unless settled shows that the content is already applied.
// Then it checks the gate. An unsettled manifest delays only its dependents, and a workload of an install delays nothing. If an install has
// just applied its last manifest but still waits, Run makes a second pass, which starts the watches that detect drift. The only error is
// the error of ctx; failures of manifests are in Progress.
func (p *Executor) Run(ctx context.Context, plan *Plan, settled Settled) (report.Progress, Settled, error) {
	pass := newPass(plan, settled)
	progress, next, err := p.run(ctx, pass)
	if err == nil && !progress.Complete && next.watched && !pass.watched {
		return p.run(ctx, newPass(plan, next))
	}
	return progress, next, err
}

func (p *Executor) run(ctx context.Context, pass *pass) (report.Progress, Settled, error) {
	pass.Executor, pass.reported = p, p.Clock.Now()
	p.last.Store(pass)
	p.resting.Store(false)
	p.handingOver.Store(false)
	width := p.Width
	if width == 0 {
		width = defaultWidth
	}
	result, err := taskgraph.Walk(ctx, pass.plan.Graph, width, &p.bell, pass.visit)
	pass.examine(err)
	next := pass.settled()
	if p.Pods != nil && err == nil {
		p.Pods.Follow(pass.waitingWorkloads())
	}
	progress := pass.progress()
	progress.Complete = err == nil && result.Complete()
	p.resting.Store(progress.Complete)
	return progress, next, err
}

// slot is the state of one node during a pass: its entry, which a visit may change, and the result of the last visit.
type slot struct {
	visited bool
	// known is true if entry is set, by an earlier pass or by a visit.
	known   bool
	entry   entry
	verdict gate.Verdict
	// pod names the pod that keeps the workload waiting, and the reason; empty if unknown.
	pod string
	err error
	// recheckAt is the time of the next visit if no event occurs; zero if none is planned.
	recheckAt time.Time
	// canceled is true if the visit was canceled, and unknown if the watch has not reported the object yet. Neither is a problem of the
	// object.
	canceled, unknown bool
	// changed is true if the visit has changed what an inventory records.
	changed bool
	// ungated is true if the watch of the gate may not have reported the object yet.
	ungated bool
}

type pass struct {
	*Executor
	plan *Plan
	// restored is true in the first pass of this process.
	restored bool
	// watched is true if an install had applied all its manifests before this pass. From then on it watches them.
	watched bool
	// highestReached is the highest runlevel in which a manifest settled before this pass. It is valid if anyReached is true.
	highestReached int
	anyReached     bool

	mu       sync.Mutex // guards the fields below and Rand; never held during an apply
	slots    []slot
	reported time.Time
	// reporting is true while a report is being delivered. Another report must not overtake it, because progress never decreases.
	reporting bool
	// examined is Settled.examined.
	examined bool
}

// newPass returns a pass before its first visit.
func newPass(plan *Plan, settled Settled) *pass {
	p := &pass{plan: plan, restored: settled.restored, examined: settled.examined, slots: make([]slot, len(plan.tasks))}
	p.watched = settled.watched || plan.Mode() == release.Initializing && settled.stands(plan)
	for _, n := range plan.Graph.Tasks() {
		e, known := settled.entries[plan.tasks[n.Index].id]
		p.slots[n.Index] = slot{known: known, entry: e}
		if e.wait.reached && (!p.anyReached || n.Runlevel > p.highestReached) {
			p.highestReached, p.anyReached = n.Runlevel, true
		}
	}
	return p
}

func (p *pass) visit(ctx context.Context, n *taskgraph.Node) taskgraph.Outcome {
	if p.blockedByPause(n) {
		return taskgraph.Held
	}
	t := &p.plan.tasks[n.Index]
	s := slot{visited: true, known: true, entry: p.entry(n)}
	pending := p.match(ctx, n, t, &s)
	if s.canceled {
		p.finish(n, s)
		return taskgraph.Held
	}
	matched := s.verdict
	if s.err == nil && !pending {
		p.check(n, t, &s)
		if p.handOver(n, &s) {
			matched = gate.Verdict{} // the handover is the reason for the wait
		}
	}
	s.entry.wait.matched = matched
	settled := s.err == nil && s.verdict.State == gate.Settled
	switch {
	case settled:
		s.changed = s.changed || !s.entry.wait.reached || isClusterOperator(n.Manifest) && !s.entry.wait.since.IsZero()
		s.entry.wait = s.entry.wait.met(t.hasTTL)
	case s.entry.wait.since.IsZero(), s.entry.wait.since.After(p.Clock.Now()): // set by a predecessor's clock
		s.entry.wait.since = p.waitingSince(n, &s)
	}
	if s.ungated {
		until := s.entry.wait.since.Add(drift.WatchPatience)
		if s.ungated = p.Clock.Now().Before(until); s.ungated {
			s.recheckAt = earlier(s.recheckAt, until)
		}
	}
	p.finish(n, s)
	switch {
	case settled:
		return taskgraph.Settled
	case !pending && s.err == nil && p.delaysNothing(n, t):
		return taskgraph.Open
	}
	return taskgraph.Held
}

// delaysNothing reports whether the dependents of an applied but unsettled node may start. During an install, the parts of the platform
// depend on each other in no documented order, so no other object waits for the pods of a workload. Only the completion does.
func (p *pass) delaysNothing(n *taskgraph.Node, t *task) bool {
	return p.plan.Mode() == release.Initializing && t.workload && p.successorImage(n) == ""
}

// examine records the end of a pass, unless it was canceled or a watch has not reported an object that it visited.
func (p *pass) examine(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.examined = p.examined || err == nil && !slices.ContainsFunc(p.slots, func(s slot) bool { return s.unknown || s.ungated })
}

// waitingSince returns the start of the wait for an object that no earlier pass found unsettled. Usually that is now. The first pass after
// a restart uses the time in the ClusterOperator's Progressing condition, if the inventory has no time. The new process then reports the
// same time as its predecessor.
func (p *pass) waitingSince(n *taskgraph.Node, s *slot) time.Time {
	now := p.Clock.Now()
	if !isClusterOperator(n.Manifest) || s.err != nil {
		return now
	}
	s.changed = true
	if !p.restored {
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

// entry returns the known state of the node's object, from this pass or an earlier one.
func (p *pass) entry(n *taskgraph.Node) entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots[n.Index].entry
}

// definedAt returns the time when the rollout changed the definition of the object's kind; zero if it did not.
func (p *pass) definedAt(t *task) time.Time {
	if t.definition == nil {
		return time.Time{}
	}
	return p.entry(t.definition).applied.ChangedAt()
}

// finish stores the result of a visit and reports progress if a report is due. It counts a change together with the result, under one lock,
// so that a reader of Changes finds the result in Settled.
func (p *pass) finish(n *taskgraph.Node, s slot) {
	interval := p.ReportInterval
	if interval == 0 {
		interval = defaultReportInterval
	}
	p.mu.Lock()
	p.slots[n.Index] = s
	if s.changed {
		p.changes.Add(1)
	}
	now := p.Clock.Now()
	due := p.Report != nil && !p.reporting && now.Sub(p.reported) >= interval
	var progress report.Progress
	if due {
		p.reported, p.reporting = now, true
		progress = p.progressLocked()
	}
	p.mu.Unlock()
	if due {
		p.Report(progress)
		p.mu.Lock()
		p.reporting = false
		p.mu.Unlock()
	}
}
