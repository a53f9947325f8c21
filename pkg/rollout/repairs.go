package rollout

import (
	"time"

	"github.com/cluster-version/cvo/pkg/manifest"
)

const (
	// So many repairs of one object within fightWindow are a fight with another writer.
	fightRepairs = 10
	fightWindow  = time.Minute
	// In a fight, repairs are held back for a minute, then twice as long each time, until the other has been quiet
	// for fightOver.
	truceMin  = time.Minute
	truceMax  = 30 * time.Minute
	fightOver = 10 * time.Minute
)

// Repaired is a repair of drift as it is told to others.
type Repaired struct {
	ID manifest.ID
	Repair
	// Fight: the object had to be repaired too often, so the next repair is held back until HeldBack.
	Fight    bool
	HeldBack time.Time
}

// repairs remembers how often an object had to be repaired, so that two writers who want different things do not
// keep each other and the API server busy for ever. It is a value; nil is an object that never was.
type repairs struct {
	total int
	last  Repair
	// recent are the times of the last repairs, a ring whose next slot is total % fightRepairs.
	recent [fightRepairs]time.Time
	// truces in a row, and until when the last one holds.
	truces int
	until  time.Time
}

// heldBack reports until when the object is not to be repaired; zero if it may be.
func (r *repairs) heldBack(now time.Time) time.Time {
	if r == nil || !now.Before(r.until) {
		return time.Time{}
	}
	return r.until
}

// with returns the repairs with one more, and whether it makes a fight, so that the next one is held back.
func (r *repairs) with(repair Repair) (next *repairs, fight bool) {
	next = &repairs{}
	if r != nil {
		*next = *r
	}
	now := repair.At
	if now.Sub(next.last.At) > fightOver+next.truce() {
		next.truces = 0
	}
	next.recent[next.total%fightRepairs] = now
	next.total++
	next.last = repair
	oldest := next.recent[next.total%fightRepairs] // of the last fightRepairs
	// A writer who goes on after a truce goes on fighting.
	if (oldest.IsZero() || now.Sub(oldest) >= fightWindow) && next.truces == 0 {
		return next, false
	}
	next.truces++
	next.until = now.Add(next.truce())
	return next, true
}

// truce is how long repairs are held back.
func (r *repairs) truce() time.Duration {
	if r.truces == 0 {
		return 0
	}
	return min(truceMin<<min(r.truces-1, 10), truceMax)
}
