package rollout

import (
	"math"
	"slices"
	"sync"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/taskgraph"
)

// Pause is how a rollout is held back: nothing of a runlevel from Before on is begun.
type Pause struct {
	Before int `json:"before"`
	// Reached: everything below has settled once, so nothing is under way any more.
	Reached bool `json:"reached"`
}

// NoBoundary has Passer.Pause find the boundary by what has begun.
const NoBoundary = -1

// pauser is what a Passer knows of a pause.
type pauser struct {
	mu    sync.Mutex // guards what follows, and is never held while applying
	asked bool
	// before is the boundary, NoBoundary until a pass has found it.
	before int
	// begun is the highest runlevel whose turn has come in this rollout, as far as passes have seen, and seen whether there
	// is any.
	begun int
	seen  bool
}

// Pause holds an update back at the next boundary between two runlevels: what has begun goes on to its gates, and so does
// the rest of its runlevel, while nothing of a higher one is begun. What has settled is looked after as before. before is
// the boundary of an earlier process, or NoBoundary. A pause that is asked for twice stays where it is. In other modes
// nothing is held back: an install has no boundaries, and a reconciliation is no rollout to wait with.
func (p *Passer) Pause(before int) {
	p.pause.mu.Lock()
	defer p.pause.mu.Unlock()
	if !p.pause.asked {
		p.pause.asked, p.pause.before = true, before
	}
}

// Resume ends a pause. The next pass goes on; Changed has one that is under way do so.
func (p *Passer) Resume() {
	p.pause.mu.Lock()
	defer p.pause.mu.Unlock()
	p.pause.asked, p.pause.before = false, NoBoundary
}

// hold reports whether a node is held back by a pause, and notes that its runlevel has begun otherwise.
func (p *pass) hold(n *taskgraph.Node) bool {
	if p.plan.Mode() != release.Updating {
		return false
	}
	p.pause.mu.Lock()
	defer p.pause.mu.Unlock()
	before, held := p.boundary()
	if held && n.Runlevel >= before {
		return true
	}
	if !p.pause.seen || n.Runlevel > p.pause.begun {
		p.pause.begun, p.pause.seen = n.Runlevel, true
	}
	return false
}

// boundary returns the runlevel that is not begun, found when it is first asked for, and whether there is a pause. The
// caller holds the lock.
func (p *pass) boundary() (before int, held bool) {
	if !p.pause.asked {
		return 0, false
	}
	if p.pause.before == NoBoundary {
		p.pause.before = p.nextBoundary()
	}
	return p.pause.before, true
}

// nextBoundary is the lowest runlevel above all that have begun: by a visit, or because something of them has settled
// already, as the passes of an earlier process have left it. Above the last there is none.
func (p *pass) nextBoundary() int {
	begun, some := p.pause.begun, p.pause.seen
	for _, n := range p.plan.Graph.Tasks() {
		if p.before.entries[p.plan.tasks[n.Index].id].reached && (!some || n.Runlevel > begun) {
			begun, some = n.Runlevel, true
		}
	}
	levels := p.plan.Graph.Runlevels()
	if !some {
		return levels[0]
	}
	at := slices.IndexFunc(levels, func(level int) bool { return level > begun })
	if at < 0 {
		return math.MaxInt
	}
	return levels[at]
}

// paused tells of the pause, nil if nothing is held back.
func (p *pass) paused(progress Progress) *Pause {
	if p.Passer == nil || p.plan.Mode() != release.Updating || len(p.plan.tasks) == 0 {
		return nil // Settled.Progress has no Passer
	}
	p.pause.mu.Lock()
	before, held := p.boundary()
	p.pause.mu.Unlock()
	if !held {
		return nil
	}
	out := &Pause{Before: before, Reached: true}
	above := false
	for _, level := range progress.Runlevels {
		switch {
		case level.Done == level.Total:
		case level.Runlevel < before:
			out.Reached = false
		default:
			above = true
		}
	}
	if !above {
		return nil // there is nothing left to hold back
	}
	return out
}
