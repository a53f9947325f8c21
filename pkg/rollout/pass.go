package rollout

import (
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/observe"
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
	pause   pauser
}

// Resting reports whether the last pass has found everything in place and no other is under way.
func (p *Passer) Resting() bool { return p.resting.Load() }

// Changes counts the changes of what Settled returns that are worth recording.
func (p *Passer) Changes() uint64 { return p.changes.Load() }

// Changed has a pass that is under way look again at what it waits for, because a watch has told something new.
func (p *Passer) Changed() { p.bell.Ring() }

const (
	defaultWidth          = 16
	defaultReportInterval = 500 * time.Millisecond
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

	mu       sync.Mutex // guards what follows, and Rand; never held while applying
	slots    []slot
	reported time.Time
	// reporting: a report is being received. Another one does not overtake it, or progress would run backwards.
	reporting bool
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

// entry is what is known of the node's object, by an earlier visit of this pass or an earlier pass.
func (p *pass) entry(n *taskgraph.Node, t *task) entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := &p.slots[n.Index]; s.visited {
		return s.entry
	}
	return p.before.entries[t.id]
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
	due := p.Report != nil && !p.reporting && now.Sub(p.reported) >= interval
	var progress Progress
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
