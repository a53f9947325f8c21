package rollout

import (
	"math"
	"slices"
	"sync"

	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/release"
)

// NoBoundary lets a pass derive the boundary of Executor.Pause from the runlevels that have started.
const NoBoundary = -1

// pauser is the pause state of an Executor.
type pauser struct {
	mu        sync.Mutex // guards the fields below; never held during an apply
	requested bool
	// boundary is the first runlevel that must not start; NoBoundary until a pass has determined it.
	boundary int
	// highestBegun is the highest runlevel that has started in this rollout. It is valid if anyBegun is true.
	highestBegun int
	anyBegun     bool
}

// Pause pauses an update at the next boundary between two runlevels. Started runlevels continue until they settle, and no higher runlevel
// starts. Settled objects are still repaired. before is the boundary from an earlier process, or NoBoundary. A second call does not move
// the boundary. Other modes cannot be paused: an install has no boundaries, and a reconciliation has no rollout to pause.
func (p *Executor) Pause(before int) {
	p.pause.mu.Lock()
	defer p.pause.mu.Unlock()
	if !p.pause.requested {
		p.pause.requested, p.pause.boundary = true, before
	}
}

// Resume ends a pause. The next pass continues. Call Changed to make a running pass continue.
func (p *Executor) Resume() {
	p.pause.mu.Lock()
	defer p.pause.mu.Unlock()
	p.pause.requested, p.pause.boundary = false, NoBoundary
}

// blockedByPause reports whether a pause blocks the node. Otherwise it records that the node's runlevel has started.
func (p *pass) blockedByPause(n *taskgraph.Node) bool {
	if p.plan.Mode() != release.Updating {
		return false
	}
	p.pause.mu.Lock()
	defer p.pause.mu.Unlock()
	before, held := p.boundary()
	if held && n.Runlevel >= before {
		return true
	}
	if !p.pause.anyBegun || n.Runlevel > p.pause.highestBegun {
		p.pause.highestBegun, p.pause.anyBegun = n.Runlevel, true
	}
	return false
}

// boundary returns the first runlevel that must not start, and whether there is a pause. The first call determines the runlevel. The caller
// holds the lock.
func (p *pass) boundary() (before int, paused bool) {
	if !p.pause.requested {
		return 0, false
	}
	if p.pause.boundary == NoBoundary {
		p.pause.boundary = p.nextBoundary()
	}
	return p.pause.boundary, true
}

// nextBoundary returns the lowest runlevel above all started runlevels, or math.MaxInt if there is none. A runlevel has started if this
// process has visited it, or if some of its objects settled under an earlier process.
func (p *pass) nextBoundary() int {
	highestBegun, anyBegun := p.pause.highestBegun, p.pause.anyBegun
	if p.anyReached && (!anyBegun || p.highestReached > highestBegun) {
		highestBegun, anyBegun = p.highestReached, true
	}
	levels := p.plan.Graph.Runlevels()
	if !anyBegun {
		return levels[0]
	}
	index := slices.IndexFunc(levels, func(level int) bool { return level > highestBegun })
	if index < 0 {
		return math.MaxInt
	}
	return levels[index]
}

// pausedBefore returns the first runlevel that must not start, and whether there is a pause.
func (p *pass) pausedBefore() (before int, paused bool) {
	if p.Executor == nil || p.plan.Mode() != release.Updating || len(p.plan.tasks) == 0 {
		return 0, false // Settled.Progress has no Executor
	}
	p.pause.mu.Lock()
	defer p.pause.mu.Unlock()
	return p.boundary()
}

// pauseBefore describes the pause before a runlevel; it returns nil if no work remains after it.
func pauseBefore(before int, levels []report.Runlevel) *report.Pause {
	out := &report.Pause{Before: before, Reached: true}
	remaining := false
	for _, level := range levels {
		switch {
		case level.Done == level.Total:
		case level.Runlevel < before:
			out.Reached = false
		default:
			remaining = true
		}
	}
	if !remaining {
		return nil
	}
	return out
}
